"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from spsample.cli.main import app

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_version():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("spsample ")


def test_help_has_examples():
    result = run("train", "--help")
    assert result.exit_code == 0
    assert "spsample train digits" in result.stdout
    assert "--fanouts" in result.stdout


def test_help_is_documented():
    """Every option is on the page, and the page names no other."""
    page = (ROOT / "docs" / "api" / "cli.md").read_text("utf-8")
    options = {option for parameter in get_command(app).commands["train"].params for option in parameter.opts}
    options = {option for option in options if option.startswith("--")}
    assert set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE)) == options | {"--help"}
    other = {option for parameter in get_command(app).commands["train"].params for option in parameter.secondary_opts}
    of_others = {"--version", "--comm", "--parts", "--method", "--hops", "--stores"}
    assert set(re.findall(r"--[a-z][a-z-]+", page)) == options | other | {"--help"} | of_others


def test_help_names_the_presets():
    pytest.importorskip("torch")
    from spsample.cli.train import train
    from spsample.settings import PRESETS

    words = re.findall(r"[a-z_]+", train.__doc__)
    assert set(PRESETS) <= set(words)
    assert "planetoid_cora.npz" in train.__doc__


WAIT_POLICY = """
import os, sys
os.environ.pop("OMP_WAIT_POLICY", None)
if VALUE:
    os.environ["OMP_WAIT_POLICY"] = VALUE
import spsample.cli.main
assert os.environ.get("OMP_WAIT_POLICY") == VALUE  # nothing happens on import
assert not {"torch", "spsample._core"} & set(sys.modules)
maps = "/proc/self/maps"
if os.path.exists(maps):
    assert not [line for line in open(maps) if "gomp" in line or "libomp" in line]
try:
    spsample.cli.main.app(["info", "none.npz"])
except SystemExit:
    print(os.environ["OMP_WAIT_POLICY"])
"""


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_waiting_threads_sleep_unless_told_otherwise(given, expected):
    """OpenMP reads the variable when it is loaded, so it must be set before."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    code = f"VALUE = {given!r}\n{WAIT_POLICY}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, cwd=ROOT
    )
    assert done.stdout.strip() == expected, done.stderr


def run_without_torch(*arguments):
    code = f"import sys; sys.modules['torch'] = None; from spsample.cli.main import app; app({list(arguments)})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_help_needs_no_torch():
    done = run_without_torch("train", "--help")
    assert done.returncode == 0, done.stderr


def test_without_torch_there_is_one_clear_line():
    done = run_without_torch("train", "rmat:5,2")
    assert done.returncode == 2
    assert "torch" in done.stderr
    assert 'pip install "spsample[pyg]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_train_prints_tables():
    pytest.importorskip("torch")
    result = run("train", "planted:400,5", "--epochs", "2", "--fanouts", "5", "--hidden", "8")
    assert result.exit_code == 0, result.output
    for words in (
        "planted: 400 vertices, 2,000 edges; 1 minibatch of 240 seeds per epoch, sampled up to 64 at once (backend ",
        "sampler: GraphSAGE([5]",
        "settings: --sampler graphsage --fanouts 5 --batch-size 512 --bulk-size 64 ",
        " --hidden 8 ",
        " --epochs 2 --lr 0.01 ",
        " --optimizer adam ",
        "test accuracy",
        "Bayes rate",
        "sampling",
        "evaluation",
        "total",
    ):
        assert words in result.stdout


def test_train_with_a_cache(tmp_path):
    pytest.importorskip("torch")
    options = ["--epochs", "2", "--fanouts", "5", "--hidden", "8", "--batch-size", "64", "--out", str(tmp_path / "run")]
    result = run("train", "planted:400,5", *options, "--cache-budget", "8KiB", "--cache-score", "inclusion")
    assert result.exit_code == 0, result.output
    assert " --cache-budget 8KiB --cache-score inclusion " in result.stdout
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    first, last = (line["cache"] for line in lines)
    assert 0 < first["hits"] < last["hits"]
    share, rows = last["hits"] / (last["hits"] + last["misses"]), last["hits"] + last["misses"]
    assert f"features: {100 * share:.2f} % of {rows:,} rows cached; " in " ".join(result.stdout.split())
    resumed = run("train", "--resume", str(tmp_path / "run"), "--epochs", "3", "--json")
    assert resumed.exit_code == 0, resumed.output
    assert json.loads(resumed.stdout)["runs"][0]["cache"]["hits"] > last["hits"]


def test_train_with_a_score_and_no_cache():
    pytest.importorskip("torch")
    result = run("train", "rmat:5,2", "--epochs", "1", "--cache-score", "presc")
    assert result.exit_code == 0, result.output
    assert "note: --cache-score has no effect without --cache-budget" in result.stderr
    assert "rows cached" not in result.stdout


@pytest.mark.parametrize("sampler", ["graphsage", "ladies", "fastgcn"])
def test_train_prints_json(sampler):
    pytest.importorskip("torch")
    name = "fanouts" if sampler == "graphsage" else "layer_sizes"
    sizes = ["--" + name.replace("_", "-"), "50,40"]
    result = run("train", "rmat:7,4", "--sampler", sampler, *sizes, "--epochs", "1", "--json")
    assert result.exit_code == 0, result.output
    (report,) = json.loads(result.stdout)["runs"]
    assert report["dataset"] == "rmat"
    assert 0 <= report["test"] <= 1
    assert len(report["history"]) == 1
    assert report["settings"]["sampler"].endswith("([50, 40])")


def test_rewire_and_seed():
    pytest.importorskip("torch")
    options = ["--epochs", "1", "--json", "--random-seed", "3"]
    (report,) = json.loads(run("train", "planted:400,5", "--rewire", *options).stdout)["runs"]
    assert report["dataset"] == "planted-rewired"
    assert report["bayes_rate"] is None


def test_random_seed_reaches_rewiring(monkeypatch):
    pytest.importorskip("torch")
    seen = []
    monkeypatch.setattr("spsample.data.rewire", lambda dataset, random_seed: seen.append(random_seed) or dataset)
    assert run("train", "planted:400,5", "--rewire", "--epochs", "1", "--random-seed", "3").exit_code == 0
    assert seen == [3]


def test_settings_give_the_same_run_again():
    pytest.importorskip("torch")
    dataset = ["train", "planted:400,5"]
    first = run(*dataset, "--epochs", "2", "--sampler", "ladies", "--layer-sizes", "60,50", "--random-seed", "2")
    (settings,) = re.findall(r"^settings: (.*)$", first.stdout, re.MULTILINE)
    again = run(*dataset, *settings.split())
    assert again.exit_code == 0, again.output
    assert settings in again.stdout
    figures = [result.stdout[result.stdout.index("test accuracy") :] for result in (first, again)]
    assert figures[0] == figures[1]


def test_several_seeds_give_mean_and_deviation():
    pytest.importorskip("torch")
    options = ["train", "planted:400,5", "--epochs", "1", "--repeats", "3", "--random-seed", "4"]
    report = json.loads(run(*options, "--json").stdout)
    tests = [single["test"] for single in report["runs"]]
    assert [single["settings"]["random_seed"] for single in report["runs"]] == [4, 5, 6]
    assert report["summary"]["test"]["mean"] == pytest.approx(statistics.mean(tests))
    assert report["summary"]["test"]["std"] == pytest.approx(statistics.stdev(tests))
    assert "mean and deviation" in run(*options).stdout


def test_a_run_folder_and_its_resumption(tmp_path):
    pytest.importorskip("torch")
    folder = tmp_path / "run"
    options = ["train", "planted:400,5", "--epochs", "2", "--repeats", "2", "--lr", "0.02", "--fanouts", "4,3"]
    first = run(*options, "--out", str(folder), "--json")
    assert first.exit_code == 0, first.output
    settings = (folder / "config.toml").read_text("utf-8")
    assert "lr = 0.02" in settings
    assert {path.name for path in folder.iterdir()} >= {"results.json", "split-0-seed-0", "split-0-seed-1"}
    again = run("train", "--resume", str(folder), "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["runs"][0]["test"] == json.loads(first.stdout)["runs"][0]["test"]
    assert "random seed 0: all 2 epochs are trained" in run("train", "--resume", str(folder)).stderr
    copy = run("train", "--config", str(folder / "config.toml"), "--json")
    scores = [[single["val"] for single in json.loads(result.stdout)["runs"]] for result in (first, copy)]
    assert scores[0] == scores[1]
    other = run("train", "--resume", str(folder), "--lr", "0.5", "--hidden", "9")
    assert other.exit_code == 2
    assert "--hidden 9 (there 64), --lr 0.5 (there 0.02)" in other.stderr
    taken = run(*options, "--out", str(folder))
    assert taken.exit_code == 2
    assert f"--resume {folder}" in taken.stderr


def test_a_file_of_settings(tmp_path):
    pytest.importorskip("torch")
    config = tmp_path / "a.toml"
    config.write_text('[train]\ndataset = "planted:400,5"\nfanouts = [4, 3]\nlr = 0.02\nepochs = 1\n[other]\na = 1\n')
    settings = run("train", "--config", str(config), "--lr", "0.5").stdout
    assert "GraphSAGE([4, 3])" in settings
    assert " --epochs 1 --lr 0.5 " in settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[train]\nepoch = 1", "the key 'epoch' in [train]; expected options of train. Did you mean 'epochs'?"),
        (
            "[train]\nlearning_rate = 1",
            "the key 'learning_rate' in [train]; expected options of train. Did you mean 'lr'?",
        ),
        ("[train]\nzzz = 1", "the key 'zzz' in [train]; expected options of train. See spsample train --help"),
        ("[train]\nconfig = 'a'", "the key 'config' in [train]"),
        ("[train]\nepochs = true", "epochs = True; expected a number or a text"),
        ("[train]\nresidual = 1", "residual = 1; expected true or false"),
        ("[train]\nall-splits = 'no'", "all-splits = 'no'; expected true or false"),
        ("train = 1", "train = 1; expected a table [train]"),
        ("[train", "a file that is not TOML"),
        ("[train]\nepochs = 2020-01-01", "epochs of type date; expected a number, a text"),
    ],
)
def test_a_bad_file_of_settings(tmp_path, text, words):
    config = tmp_path / "a.toml"
    config.write_text(text)
    result = run("train", "--config", str(config))
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_missing_files_of_settings(tmp_path):
    assert "which is no file" in run("train", "--config", str(tmp_path)).stderr
    assert "without config.toml" in run("train", "--resume", str(tmp_path)).stderr


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.name)
def test_committed_settings_are_known(path):
    """Every key is an option; the data set need not be there."""
    command = get_command(app).commands["train"]
    context = command.make_context("train", ["--config", str(path)])
    assert context.params["epochs"] >= 1
    assert context.params["evaluation"] == "both"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["karate"], "dataset: got 'karate'"),
        (["./karate"], "dataset: got './karate', but there is no such file or folder; expected 'digits', "),
        (["none.npz"], "dataset: got 'none.npz', which does not exist; expected "),
        (["planted:9"], "planted:NODES: got 9"),
        (["rmat:0,4"], "rmat:SCALE: got 0"),
        (
            ["planted:400", "--layer-sizes", "9,9"],
            "--layer-sizes: got '9,9' with --sampler graphsage; expected --fanouts",
        ),
        (["planted:400", "--fanouts", "9,9", "--sampler", "ladies"], "--fanouts: got '9,9' with --sampler ladies"),
        (["planted:400", "--fanouts", "9,9", "--sampler", "fastgcn"], "expected --layer-sizes with that sampler"),
        (["planted:400", "--split", "0", "--all-splits"], "--split: got 0 with --all-splits"),
        (["planted:400", "--lr", "-1"], "--lr: got -1.0"),
        (["planted:400", "--bulk-size", "0"], "--bulk-size: got 0"),
        (["planted:400", "--weight-decay", "-1"], "--weight-decay: got -1.0"),
        (["planted:400", "--eval-every", "0"], "--eval-every: got 0"),
        (["planted:400", "--sampler", "other"], "--sampler: got 'other'"),
        (["planted:400", "--fanouts", "a,b"], "--fanouts: got 'a,b'"),
        (["planted:400", "--fanouts", "0"], "--fanouts[0]: got 0"),
        (["planted:400", "--layer-sizes", "-3", "--sampler", "ladies"], "--layer-sizes[0]: got -3"),
        (["planted:400", "--model", "other"], "--model: got 'other'"),
        (["planted:400", "--scaling", "other"], "--scaling: got 'other'"),
        (["planted:400", "--metric", "other"], "--metric: got 'other'"),
        (["planted:400", "--split", "1"], "--split: got 1"),
        (["planted:400", "--epochs", "0"], "--epochs: got 0"),
        (["planted:400", "--batch-size", "0"], "--batch-size: got 0"),
        (["planted:400", "--dropout", "2"], "--dropout: got 2.0"),
        (["planted:400", "--hidden", "0"], "--hidden: got 0"),
        (["planted:400", "--backend", "other"], "--backend: got 'other'"),
        (["planted:400", "--random-seed", "-1"], "--random-seed: got -1"),
        (["planted:400", "--repeats", "0"], "--repeats: got 0"),
        (["planted:400", "--schedule", "other"], "--schedule: got 'other'"),
        (["planted:400", "--test-sizes", "5"], "--test-sizes: got 1 sizes"),
        (["planted:400", "--evaluation-memory", "lots"], "--evaluation-memory: got 'lots'"),
        (["planted:400", "--model", "gat", "--heads", "7"], "--heads: got 7"),
        (["planted:400", "--tensorboard"], "--tensorboard: got it without --out"),
    ],
)
def test_errors_are_one_line(arguments, words):
    pytest.importorskip("torch")
    result = run("train", *arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("spsample: error: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = run("train", "planted:400", "--tensorboard", "--out", str(tmp_path / "a"))
    assert result.exit_code == 2
    assert "pip install tensorboard" in result.stderr
    assert not (tmp_path / "a").exists()


def test_missing_figures_are_told(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    result = run("train", "planted:400", "--epochs", "1", "--out", str(tmp_path / "a"))
    assert result.exit_code == 0, result.output
    assert "no figures without matplotlib" in result.stderr
    assert f"{tmp_path / 'a'}: checkpoint.pt, config.toml, metrics.jsonl, results.json\n" in result.stdout
    monkeypatch.undo()
    resumed = run("train", "--resume", str(tmp_path / "a"))
    assert "no figures" not in resumed.stderr
    written = ["checkpoint.pt", "config.toml", "curves.png", "metrics.jsonl", "phases.png", "results.json"]
    assert resumed.stdout.endswith(f"{tmp_path / 'a'}: {', '.join(written)}\n")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == written
    assert all((tmp_path / "a" / name).read_bytes().endswith(b"IEND\xaeB`\x82") for name in written if "png" in name)


def test_several_runs_have_a_folder_each_and_their_figures_in_common(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    result = run("train", "planted:400", "--epochs", "1", "--repeats", "2", "--out", str(tmp_path / "a"))
    told = result.stdout.splitlines()[-1].removeprefix(f"{tmp_path / 'a'}: ").split(", ")
    assert told == ["config.toml", "curves.png", "phases.png", "results.json", "split-0-seed-0/", "split-0-seed-1/"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [name.rstrip("/") for name in told]


@pytest.mark.parametrize("command", [["plan", "planted:400"], ["sample", "planted:400", "-o", "b"]])
def test_empty_sizes_are_refused(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*command, "--fanouts", "")
    assert result.exit_code == 2
    assert "--fanouts: got ''" in result.stderr


def test_flags_of_a_file_can_be_taken_back(tmp_path):
    pytest.importorskip("torch")
    config = tmp_path / "a.toml"
    config.write_text("[train]\ndataset = 'planted:300'\nepochs = 1\nresidual = true\nlayer_norm = true\n")
    on, off = (run("train", "--config", str(config), *more).stdout for more in ((), ("--no-residual",)))
    assert "--residual --layer-norm" in on
    assert "--residual" not in off
    assert "--layer-norm" in off


def test_every_command_on_a_graph_takes_a_file_of_settings(tmp_path):
    config = tmp_path / "a.toml"
    sizes = "fanouts = [3, 2]\nbatch-size = 32\n"
    config.write_text(
        f"[plan]\nsource = 'planted:300'\n{sizes}[sample]\nsource = 'planted:300'\n{sizes}output = '{tmp_path}/bulks'\n"
        f"[convert]\nsource = 'planted:300'\nstore = '{tmp_path}/store'\noverwrite = true\n"
    )
    plan = run("plan", "--config", str(config), "--batch-size", "60", "--json")
    assert json.loads(plan.stdout)["num_batches"] == 3, plan.output
    assert run("sample", "--config", str(config)).exit_code == 0
    assert json.loads((tmp_path / "bulks" / "manifest.json").read_text())["sampler"] == "GraphSAGE([3, 2])"
    assert run("convert", "--config", str(config)).exit_code == 0
    assert (tmp_path / "store" / "meta.json").is_file()


@pytest.mark.parametrize("arguments", [("sample", "planted:300", "-o"), ("train", "planted:300", "--out")])
def test_what_the_system_refuses_is_one_line(arguments, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "file").touch()
    result = run(*arguments, str(tmp_path / "file" / "below"))
    assert result.exit_code == 2
    assert result.stderr.startswith("spsample: error:")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["plan", "sample"])
def test_no_batches_at_once_are_refused(command, tmp_path):
    more = ["-o", str(tmp_path / "bulks")] if command == "sample" else []
    result = run(command, "planted:300", "--bulk-size", "0", *more)
    assert result.exit_code == 2
    assert "--bulk-size: got 0" in result.stderr
