"""Options are declared once: commands, files of settings, checks and tables come from the fields of dataclasses."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from spsample.cli.main import app
from spsample.cli.options import default_text, listed
from spsample.cli.train import SETTINGS
from spsample.common.options import settings_of
from spsample.convert import ConvertOptions
from spsample.errors import InputError
from spsample.settings import PRESETS, ModelConfig, Recording, TrainConfig, differing

COMMANDS = ("convert", "plan", "sample", "train")
OWN = {"dataset", "out", "resume", "as_json", "config", "set_", "help_all"}


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


def params(command):
    return get_command(app).commands[command].params


def context(*words):
    return get_command(app).commands["train"].make_context("train", list(words)).params


def settings(*words):
    """What differs from no options at all."""
    known = context(*words)
    return {name: value for name, value in known.items() if value is not None and name not in OWN}


def test_each_option_is_declared_once():
    declared = Counter(setting.name for setting in listed(*SETTINGS))
    assert set(declared.values()) == {1}
    assert {param.name for param in params("train")} == set(declared) | OWN
    for command in COMMANDS:
        names = Counter(name for param in params(command) for name in (*param.opts, *param.secondary_opts))
        assert set(names.values()) == {1}


@pytest.mark.parametrize(
    "name",
    ["batch_size", "bulk_size", "memory_budget", "prefetch", "fanouts", "sampler", "random_seed", "replicate_hubs"],
)
def test_commands_share_what_is_said_of_an_option(name):
    """But for the default, which is a command's own."""
    commands = ("train", "plan", "sample")
    told = [param.help.partition(" [default")[0] for one in commands for param in params(one) if param.name == name]
    assert len(told) >= 2
    assert len(set(told)) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_few_and_help_all_every_option(command):
    short, whole = run(command, "--help"), run(command, "--help-all")
    assert short.exit_code == whole.exit_code == 0, whole.output
    flags = {flag for param in params(command) for flag in param.opts if flag.startswith("--")}
    assert all(re.search(rf"{flag}\b", whole.output) for flag in flags)
    assert max(map(len, whole.output.splitlines())) <= 80
    listed_flags = {flag for flag in flags if re.search(rf"^│ +\*? *{flag}\b", short.output, re.MULTILINE)}
    assert {"--help-all", "--set", "--config"} <= listed_flags
    assert len(listed_flags) <= 24
    if command == "train":
        assert len(listed_flags) <= 18 < len(flags) // 2
        assert "--momentum" not in listed_flags


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr=0.02", ["--lr", "0.02"]),
        ("weight-decay=0.5", ["--weight-decay", "0.5"]),
        ("weight_decay=0.5", ["--weight-decay", "0.5"]),
        ("fanouts=4,3", ["--fanouts", "4,3"]),
        ("residual=true", ["--residual"]),
        ("residual=false", ["--no-residual"]),
        ("no_residual=true", ["--no-residual"]),
        ("replicated=true", ["--replicated"]),
        ("residual=True", ["--residual"]),
        ("residual=YES", ["--residual"]),
        ("residual=1", ["--residual"]),
        ("residual=False", ["--no-residual"]),
        ("residual=no", ["--no-residual"]),
        ("residual=0", ["--no-residual"]),
        ("no-residual=0", ["--residual"]),
        ("all_splits=true", ["--all-splits"]),
        ("partition=a=b.npy", ["--partition", "a=b.npy"]),
    ],
)
def test_set_is_the_option(text, words):
    assert settings("--set", text) == settings(*words) != {}


def test_set_wins_over_a_file_and_an_argument_can_be_set(tmp_path):
    config = tmp_path / "a.toml"
    config.write_text('[train]\nlr = 0.5\nepochs = 7\ndataset = "digits"\n')
    file = ["--config", str(config)]
    given = ["--set", "lr=0.02", "--set", "dataset=planted:300"]
    for words in ([*file, *given], [*given, *file]):
        known = context(*words)
        assert (known["learning_rate"], known["epochs"], known["dataset"]) == (0.02, 7, "planted:300")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--set", "epoch=1"], "--set: got 'epoch'; expected options of train. Did you mean 'epochs'?"),
        (["--set", "zzz=1"], "--set: got 'zzz'; expected options of train. See spsample train --help-all."),
        (["--set", "config=a.toml"], "--set: got 'config'"),
        (["--set", "epochs"], "--set: got 'epochs'; expected NAME=VALUE"),
        (["--set", "residual=2"], "--set: got residual = '2'; expected true or false"),
        (["--set", "residual="], "--set: got residual = ''; expected true or false"),
        (["--set", "learning_rate=0.1"], "--set: got 'learning_rate'; expected options of train. Did you mean 'lr'?"),
        (["--set", "learning-rat=0.1"], "--set: got 'learning-rat'; expected options of train. Did you mean 'lr'?"),
        (["--set", "architecture=gat"], "--set: got 'architecture'; expected options of train. Did you mean 'model'?"),
        (["--set", "replicatd=yes"], "--set: got 'replicatd'; expected options of train. Did you mean 'replicated'?"),
        (["--set", "lr=1", "--lr", "2"], "--set: got --lr twice"),
    ],
)
def test_what_cannot_be_set(words, error):
    result = run("train", "planted:300", *words)
    assert result.exit_code == 2
    assert error in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            "plan rmat:8,8 --bulk-size foo",
            "--bulk-size: got 'foo' of type str; expected an integer of at least 1, or 'auto'",
        ),
        ("train digits --replicate-hubs foo", "--replicate-hubs: got 'foo'"),
        ("train digits --set bulk=4", "Did you mean 'bulk_size'?"),
        ("train digits --set warmup=4", "Did you mean 'warmup_epochs'?"),
        ("plan rmat:8,8 --set net=ethernet", "Did you mean 'network'?"),
        ("plan rmat:8,8 --ranks 4 --bulk-size 8", "--bulk-size: got 8 with --ranks"),
        ("plan rmat:8,8 --ranks 4 --prefetch -1", "--prefetch: got -1; expected an integer of at least 0"),
        ("plan rmat:8,8 --ranks 4 --set links=ethernet", "See spsample plan --help-all."),
        ("train digits --backend-comm foo", "--backend-comm: got 'foo'; expected one of"),
        ("train digits --algorithm foo", "--algorithm: got 'foo'; expected one of"),
        ("train digits --set feature_dtype=foo", "--feature-dtype: got 'foo'; expected one of"),
    ],
)
def test_every_option_is_checked_by_its_declaration(words, error):
    result = run(*words.split())
    assert result.exit_code == 2
    assert error in result.output


def test_a_default_can_be_given():
    assert run("plan", "rmat:6,8", "--ranks", 2, "--bulk-size", "auto").exit_code == 0


def test_every_command_with_a_file_of_settings_takes_set(tmp_path):
    result = run("convert", "planted:300", tmp_path / "store", "--set", "threads=1", "--set", "symmetrize=true")
    assert result.exit_code == 0, result.output
    assert '"batch_size": 50' in run("plan", "planted:300", "--set", "batch_size=50", "--json").stdout


def test_choices_are_what_there_is():
    pytest.importorskip("torch")
    from spsample.features import score_names
    from spsample.features.copies import METHODS
    from spsample.training import model_names
    from spsample.training.metrics import METRICS
    from spsample.training.optimisation import OPTIMIZERS, SCHEDULES

    there = {setting.name: set(setting.option.choices) for setting in listed(*SETTINGS)}
    assert there["optimizer"] == set(OPTIMIZERS)
    assert there["schedule"] == set(SCHEDULES)
    built_in = {name for name in score_names() if not name.startswith("own-")}  # pages of the docs register others
    assert there["cache_score"] == built_in - {"aligraph"}
    assert there["copies"] == set(METHODS)
    assert there["metric"] == {"auto", *METRICS}
    assert there["architecture"] <= set(model_names())


def test_defaults_that_depend_on_the_data_set():
    names = differing()
    assert {"hidden", "dropout", "learning_rate", "epochs"} <= names
    assert not {"random_seed", "optimizer", "sampler"} & names
    shown = {setting.name: default_text(setting, names) for setting in listed(*SETTINGS)}
    assert shown["epochs"] == "preset"
    assert shown["partitioned"] == "partitioned"
    assert shown["all_splits"] == ""
    assert PRESETS


@pytest.mark.parametrize("cls", [TrainConfig, ModelConfig, Recording, ConvertOptions])
def test_fields_are_checked(cls):
    for setting in settings_of(cls):
        if setting.type in (int, float, bool):
            with pytest.raises(InputError, match=f"^{setting.name}: got"):
                cls(**{setting.name: "much"})


def test_settings_need_no_torch():
    import subprocess
    import sys

    code = "import sys; sys.modules['torch'] = None; import spsample.settings, spsample.convert.options"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
