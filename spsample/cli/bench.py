"""``spsample bench``: hands its arguments on to the benchmarks, which are a package of their own."""

from __future__ import annotations

import typer

from spsample.errors import require_module


def bench(ctx: typer.Context) -> None:
    """Measure: sampling, loaders, epochs, traffic, beside other libraries; reports, comparisons, figures of papers.

    `spsample bench --help` lists the cases, `spsample bench CASE --help` their options.
    """
    for package in ("click", "pandas", "plotly"):
        require_module(package, needed_for="spsample bench", extra="bench")
    from spsample.bench.command import bench as command

    command.main(ctx.args, prog_name="spsample bench")
