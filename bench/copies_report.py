"""Tables and the picture of `copies`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.table import Table

from figures import pyplot

if TYPE_CHECKING:
    from copies import Result
    from copies_bound import Near
    from copies_search import Gap
    from copies_times import BesidePartitions, Timing

T = TypeVar("T")
_BEST = "best-copies"
_EQUAL = 1e-9
"""Relative: costs that differ by less are equal."""
_SHOWN_DEVICES = (2, 8)
_MOST_SHOWN = 1.6


def _distinct(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def summary_table(results: list[Result]) -> Table:
    """A row for each method on each graph: its mean over that of best-copies, and its largest device over its mean."""
    over = "mean over best-copies"
    shown = Table("graph", "method", f"{over}: least", "median", "most", "in the run: least", "median")
    shown.add_column("largest device over best-copies': least")
    shown.add_column("over its mean: most")
    for graph in _distinct(one.graph for one in results):
        on_graph = [one for one in results if one.graph == graph]
        in_run_of_best = {_place(one): one.mean_in_run for one in on_graph if one.method == _BEST}
        for method in _distinct(one.method for one in on_graph):
            cells = [one for one in on_graph if one.method == method]
            means = [one.mean_over_best for one in cells]
            in_run = [one.mean_in_run / (in_run_of_best[_place(one)] or 1.0) for one in cells]
            uneven = max(one.largest / one.mean if one.mean else 1.0 for one in cells)
            shown.add_row(
                *(graph, method, f"{min(means):.9f}", f"{statistics.median(means):.4f}", f"{max(means):.3f}"),
                *(f"{min(in_run):.4f}", f"{statistics.median(in_run):.4f}"),
                *(f"{min(one.largest_over_best for one in cells):.5f}", f"{uneven:.5f}"),
            )
        shown.add_section()
    return shown


def _place(one: Result) -> tuple[int, float, float]:
    return one.devices, one.share, one.alpha


def alpha_table(results: list[Result], method: str) -> Table:
    """By devices and alpha: on how many graphs and budgets a method has the least mean, and its most over it."""
    alphas = _distinct(one.alpha for one in results)
    shown = Table(f"{method}: devices", *(f"alpha {alpha}" for alpha in alphas))
    for devices in _distinct(one.devices for one in results):
        row = []
        for alpha in alphas:
            where = (method, devices, alpha)
            over = [one.mean_over_best for one in results if (one.method, one.devices, one.alpha) == where]
            least = sum(ratio < 1 + _EQUAL for ratio in over)
            row.append(f"{least} of {len(over)}, most {max(over):.3f}")
        shown.add_row(str(devices), *row)
    return shown


def gap_table(gaps: list[Gap]) -> Table:
    """What greedy plans spare over the most that any plan spares."""
    shown = Table("greedy with", "devices", "cases", "best plan in", "spares, mean", "least")
    for one in gaps:
        shown.add_row(
            one.kind, str(one.devices), str(one.cases), f"{one.best:.0%}", f"{one.mean:.4f}", f"{one.least:.3f}"
        )
    return shown


def bound_table(bounds: list[Near]) -> Table:
    """What greedy plans of whole graphs spare over a bound that no plan passes."""
    shown = Table("greedy with", "graph", "budget", "spares of the bound, at least", "largest device over mean")
    for one in bounds:
        figures = f"{one.spared_over_bound:.7f}", f"{one.largest_over_mean:.4f}"
        shown.add_row(one.kind, one.graph, f"{one.share:.0%}", *figures)
    return shown


def timing_table(timings: list[Timing]) -> Table:
    """A row for each method and budget."""
    shown = Table("vertices", "budget", "method", "seconds", "user", "user over np.argsort", "over half the vertices")
    for one in timings:
        over = f"{one.over_argsort:.2f} ({one.least_over_argsort:.2f} to {one.most_over_argsort:.2f})"
        growth = "" if one.over_half is None else f"{one.over_half:.2f}"
        seconds = f"{one.seconds:.3f}", f"{one.user_seconds:.3f}"
        shown.add_row(f"{one.vertices:,}", f"{one.share:.0%}", one.method, *seconds, over, growth)
    return shown


def beside_table(times: list[BesidePartitions]) -> Table:
    """A row for each method, a column for each graph."""
    graphs = _distinct(one.graph for one in times)
    shown = Table("user seconds", *graphs)
    seconds = {(one.what, one.graph): f"{one.user_seconds:.4f}" for one in times}
    for what in _distinct(one.what for one in times):
        shown.add_row(what, *(seconds.get((what, graph), "") for graph in graphs))
    return shown


def plot(results: list[Result], path: Path) -> None:
    """Cost over that of best-copies against alpha: a row of panels for each graph, a line for each method."""
    plt = pyplot() if results else None
    if plt is None:
        return
    graphs, shares = _distinct(one.graph for one in results), _distinct(one.share for one in results)
    columns = list(product(shares, _SHOWN_DEVICES))
    size = (2.9 * len(columns), 2.3 * len(graphs) + 1.2)
    figure, panels = plt.subplots(
        len(graphs), len(columns), figsize=size, layout="constrained", squeeze=False, sharex=True, sharey=True
    )
    for axes, (graph, where) in zip(panels.flat, product(graphs, columns), strict=True):
        cells = [one for one in results if (one.graph, one.share, one.devices) == (graph, *where)]
        _lines(axes, cells)
        axes.set_title(f"{graph}: {where[0]:.0%}, {where[1]} devices", fontsize="small")
        axes.set(xscale="log", ylim=(0.97, _MOST_SHOWN))
        axes.grid(alpha=0.3)
    for axes in panels[-1]:
        axes.set_xlabel("alpha", fontsize="small")
    figure.suptitle(f"Mean cost over that of best-copies, up to {_MOST_SHOWN}; dashed: the device that pays most")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(axes: Any, cells: list[Result]) -> None:
    """A line for each method, and a dashed one for its largest device."""
    best = {one.alpha: one.mean for one in cells if one.method == _BEST}
    for number, method in enumerate(_distinct(one.method for one in cells)):
        line = [one for one in cells if one.method == method]
        alphas = [one.alpha for one in line]
        is_best = method == _BEST
        style = {"color": "black" if is_best else f"C{number - 1}", "zorder": 5 if is_best else 2}
        drawn = ("mean", "-", method, 1.4), ("largest", "--", None, 0.8)
        for field, dashes, label, width in drawn:
            over = [getattr(one, field) / best[one.alpha] if best[one.alpha] else 1.0 for one in line]
            axes.plot(alphas, over, linestyle=dashes, label=label, linewidth=width, **style)
