"""``spsample bench``: hands its arguments on to the benchmarks, which are a package of their own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import typer

import spsample
from spsample.errors import MissingDependencyError, require_module

__all__ = ["bench"]


def bench(ctx: typer.Context) -> None:
    """Measure: sampling, loaders, epochs, traffic, beside other libraries; reports, comparisons, figures of papers.

    `spsample bench --help` lists the cases, `spsample bench CASE --help` their options.
    """
    for package in ("pandas", "plotly"):
        require_module(package, needed_for="spsample bench", extra="bench")
    checkout = Path(spsample.__file__).parents[1]
    if find_spec("spsample.bench") is None and (checkout / "bench" / "command.py").exists():
        spsample.__path__.append(str(checkout))  # sources whose core was built in place, without an installation
    if find_spec("spsample.bench") is None:
        raise MissingDependencyError(package="spsample.bench", needed_for="spsample bench", extra="bench")
    from spsample.bench.command import bench as command

    command.main(ctx.args, prog_name="spsample bench")
