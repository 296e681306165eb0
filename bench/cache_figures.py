"""Pictures of `cache-hits`: hits by the size of a cache, by the fanout, and by the epochs of a trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from figures import pyplot

_WIDTH, _HEIGHT = 3.4, 2.7


def plot_hits(results: Sequence[Any], path: Path) -> None:
    """Hits against the share of the rows that is cached, a line for each score: a panel for each graph and sampler."""
    columns = list(dict.fromkeys(one.graph for one in results))
    _draw(
        results,
        path,
        title="Hits of a static cache, %, by the share of the rows it keeps",
        panel=lambda one: (one.sampler, one.graph),
        columns=len(columns),
        line=lambda one: one.score,
        point=lambda one: (100 * one.share, 100 * one.hits),
        xlabel="rows cached, %",
    )


def plot_trials(results: Sequence[Any], path: Path) -> None:
    """Points below the best set against the epochs of the trial, a line for each score, a tenth of the rows cached."""
    shown = [one for one in results if one.share == 0.1]
    _draw(
        shown,
        path,
        title="Hits below those of the best set, points, by the epochs of the trial: a tenth of the rows cached",
        panel=lambda one: (one.sampler, one.graph),
        columns=len(dict.fromkeys(one.graph for one in shown)),
        line=lambda one: one.score,
        point=lambda one: (one.epochs, 100 * one.below),
        xlabel="epochs of the trial",
    )


def plot_fanouts(results: Sequence[Any], path: Path) -> None:
    """The share of accesses of the hottest rows against the fanout, a line for each score."""
    _draw(
        results,
        path,
        title="Accesses to the hottest rows, %, by the fanout of three layers",
        panel=lambda one: (f"hottest {one.share:.0%}", one.graph),
        columns=len(dict.fromkeys(one.graph for one in results)),
        line=lambda one: one.score,
        point=lambda one: (one.fanout, 100 * one.hits),
        xlabel="fanout",
    )


def _draw(
    results: Sequence[Any],
    path: Path,
    *,
    title: str,
    panel: Callable[[Any], tuple[str, str]],
    columns: int,
    line: Callable[[Any], str],
    point: Callable[[Any], tuple[float, float]],
    xlabel: str,
) -> None:
    plt = pyplot() if results else None
    if plt is None:
        return
    rows, names = (list(dict.fromkeys(kinds)) for kinds in zip(*(panel(one) for one in results), strict=True))
    labels = list(dict.fromkeys(line(one) for one in results))
    size = (_WIDTH * columns, _HEIGHT * len(rows) + 0.8)
    figure, panels = plt.subplots(len(rows), columns, figsize=size, layout="constrained", squeeze=False)
    for (i, row), (j, name) in ((a, b) for a in enumerate(rows) for b in enumerate(names)):
        axes = panels[i][j]
        for number, label in enumerate(labels):
            points = [point(one) for one in results if panel(one) == (row, name) and line(one) == label]
            if points:
                style = {"color": "black", "linestyle": "--"} if label == "best set" else {"color": f"C{number % 10}"}
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1.2, label=label, **style)
        axes.set_title(f"{name}, {row}", fontsize="small")
        axes.set_xlabel(xlabel, fontsize="small")
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.tick_params(labelsize="x-small")
        axes.grid(alpha=0.3)
    handles, texts = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=5, fontsize="small")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)
