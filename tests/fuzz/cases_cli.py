"""The command line: every option of every command, from what the commands say of themselves."""

from __future__ import annotations

import typer
from case import Case
from typer.testing import CliRunner

from spsample.cli.main import app
from spsample.data import planted

JUNK = ["", "x", "-1", "0", "1", "2", "3", "1e3", "0.5", "nan", "inf", "9" * 400, "1,2", ",", "1GiB", "é", "a=b", "no"]
RIGHT = {
    "epochs": ["1"],
    "fanouts": ["2", "2,2"],
    "layer_sizes": ["4", "4,4"],
    "sampler": ["graphsage", "ladies", "fastgcn"],
    "hidden": ["4"],
    "backend": ["auto", "cpu", "reference", "local"],
    "evaluation": ["full", "sampled", "both"],
    "network": ["perlmutter", "ethernet"],
    "random_seed": ["3"],
    "seeds": ["1", "0,1", "train", "all"],
    "format": ["text", "npz"],
    "columns": ["0,1"],
    "memory_budget": ["1GiB"],
    "stage_threads": ["auto", "1,2", "1,1,1"],
    "prefetch_budget": ["1MiB", "1"],
    "method": ["metis", "metis-seeds", "pagraph", "ldg", "ranges", "random"],
    "hops": ["1", "2"],
    "score": ["posterior", "presc", "out-degree", "random"],
    "cache_score": ["posterior", "presc", "random"],
    "cache_budget": ["0", "4KiB", "auto"],
    "cache_replacement": ["static", "lookahead"],
    "fetch": ["batch", "bulk"],
    "features_on_disk": ["1MiB"],
    "aggregation": ["mean", "gcn"],
}
COSTLY = {"hidden", "epochs", "seeds", "num_parts", "ranks"}
"""Where a right number may be so large that what it asks for takes long."""

ARGUMENTS = {
    "train": ["planted:40"],
    "convert": ["rmat:4,2", "STORE"],
    "info": ["planted:40"],
    "sample": ["planted:40"],
    "plan": ["planted:40"],
    "partition": ["planted:40"],
    "cache-report": ["planted:40"],
    "reorder": ["SAVED"],
    "precompute": ["planted:40"],
}
LEFT_OUT = {"doctor": {"comm", "selftest"}, "launch": set()}
"""Options that start processes."""


def small(value):
    """Whether it is no number beyond what is quickly done."""
    return not (value.isdecimal() and int(value) > 3)


def chosen(make, command, name, folder):
    """Right, nearly right or junk."""
    if name in RIGHT and make.chance(0.8):
        return make.choice(RIGHT[name])
    paths = [str(folder / "new"), str(folder / "some.toml"), str(folder), "/proc/no"]
    value = make.choice([*JUNK, *paths])
    return "1" if name in COSTLY and not small(value) else value


def place(make, argument, folder):
    """Of a store that a command makes or reads; other arguments as they are."""
    if argument == "STORE":
        return str(folder / f"store-{make.integer(0, 2)}")
    if argument == "SAVED":
        planted(40, degree=3, num_classes=2).save(folder / "saved", overwrite=True)
        return str(folder / "saved")
    return argument


def fuzz_command(make, folder):
    (folder / "some.toml").write_text(make.choice(["", "[train]\nepochs = 1\n", "epochs = ", "x = 1\n", "\x00"]))
    commands = typer.main.get_command(app).commands
    name = make.choice([*ARGUMENTS, "train", "plan", "doctor"])
    words = [name]
    for argument in ARGUMENTS.get(name, []):
        right = place(make, argument, folder)
        words.append(make.choice(JUNK) if make.chance(0.05) else right)
    options = {p.name: p for p in commands[name].params if p.opts and p.opts[0].startswith("-")}
    if name == "train":
        words += ["--epochs", "1", "--hidden", "4", "--fanouts", "2", "--layer-sizes", "4"]
    if name in ("sample", "partition", "reorder", "precompute"):
        words += ["--output" if name == "sample" else "--out", str(folder / f"out-{make.integer(0, 3)}")]
    for key in make.rng.permutation(sorted(options))[: make.integer(0, 5)]:
        if key in LEFT_OUT.get(name, ()):
            continue
        option = options[key]
        words.append(option.opts[0])
        if not option.is_flag:
            words.append(chosen(make, name, key, folder))
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code not in (0, 1, 2):
        raise RuntimeError(f"exit code {result.exit_code} of {words}")
    if result.exit_code and not result.output.strip():
        raise RuntimeError(f"nothing said by {words}")


CASES = {"command": Case(fuzz_command, (), 3)}
