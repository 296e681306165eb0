"""Figures of training runs, as PNG. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spsample.common.checks import require_path, require_type
from spsample.errors import InputError, require_module
from spsample.settings import METRIC_NAMES
from spsample.store.folder import system_errors, whole_file
from spsample.timeline import work_seconds
from spsample.training.results import TrainResult, total_seconds

_BLUE, _ORANGE, _GREY = "#2b6cb0", "#c05621", "#4a5568"


def plot_curves(results: Sequence[TrainResult], path: str | Path) -> None:
    """Draw loss and validation metric by epoch; of several runs each thin, and their mean.

    Parameters
    ----------
    results
        Of one run, or of several splits or seeds.
    path
        Of the PNG.

    Raises
    ------
    MissingDependencyError
        If matplotlib is not installed.
    """
    path = _checked(results, path)
    figure, axes = _figure(2, (9.0, 3.4))
    first = results[0]
    metric = METRIC_NAMES.get(first.metric, first.metric)
    losses = [[(r.epoch + 1, r.loss) for r in result.history] for result in results]
    vals = [[(r.epoch + 1, 100 * r.val) for r in result.history if r.val is not None] for result in results]
    _lines(axes[0], losses, _BLUE)
    _lines(axes[1], vals, _ORANGE)
    axes[0].set(xlabel="epoch", ylabel="training loss", title="Loss")
    axes[1].set(xlabel="epoch", ylabel=f"validation {metric} (%)", title=f"Validation {metric}")
    if len(results) == 1:
        best = (first.best_epoch + 1, 100 * first.val)
        axes[1].plot(*best, "o", color=_GREY, markersize=5)
        text = f"best: {best[1]:.2f} % at epoch {best[0]}\ntest: {100 * first.test:.2f} %"
    else:
        tests = 100 * np.array([result.test for result in results])
        text = f"{len(results)} runs, test: {tests.mean():.2f} ± {tests.std(ddof=1):.2f} %"
    axes[1].text(0.97, 0.05, text, transform=axes[1].transAxes, ha="right", va="bottom", fontsize=9, color=_GREY)
    _save(figure, f"{first.dataset}   {first.sampler}", path)


def plot_phases(results: Sequence[TrainResult], path: str | Path) -> None:
    """Draw the seconds per phase, summed over the runs; parameters and errors as in `plot_curves`."""
    path = _checked(results, path)
    spent = work_seconds(total_seconds(results))
    phases, seconds = list(spent), np.array(list(spent.values()))
    total = max(float(seconds.sum()), 1e-12)
    figure, axis = _figure(1, (6.4, 0.9 + 0.42 * len(phases)))
    axis.barh(phases[::-1], seconds[::-1], color=_BLUE, height=0.6)
    for position, value in enumerate(seconds[::-1]):
        label = f" {value:.2f} s, {100 * value / total:.1f} %"
        axis.text(value, position, label, va="center", fontsize=9, color=_GREY)
    axis.set(xlabel="seconds", xlim=(0, 1.3 * max(float(seconds.max()), 1e-12)))
    axis.grid(visible=False, axis="y")
    _save(figure, f"Time per phase: {total:.1f} s in all", path)


def _checked(results: Sequence[TrainResult], path: str | Path) -> Path:
    """The path, once there are results to draw."""
    require_type("results", results, (list, tuple), "a list of results")
    if not results:
        raise InputError(argument="results", given="none", expected="at least one result")
    for number, result in enumerate(results):
        require_type(f"results[{number}]", result, TrainResult, "a TrainResult")
    return require_path("path", path)


def _lines(axis: Any, curves: Sequence[Sequence[tuple[int, float]]], color: str) -> None:
    """One curve, or several thin ones and their mean over those that reach as far."""
    if len(curves) == 1:
        axis.plot(*zip(*curves[0], strict=True), color=color, linewidth=1.8)
        return
    values: dict[int, list[float]] = {}
    for curve in curves:
        axis.plot(*zip(*curve, strict=True), color=color, linewidth=0.7, alpha=0.35)
        for epoch, value in curve:
            values.setdefault(epoch, []).append(value)
    epochs = sorted(epoch for epoch, many in values.items() if len(many) == len(curves))
    axis.plot(epochs, [np.mean(values[epoch]) for epoch in epochs], color=color, linewidth=2.2, label="mean")
    axis.legend(frameon=False, loc="best")


def _figure(columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    require_module("matplotlib.figure", needed_for="plots", extra="plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns)
    for axis in np.atleast_1d(axes):
        axis.grid(visible=True, color="#e2e8f0", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=columns > 1))
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, title: str, path: Path) -> None:
    figure.suptitle(title, fontsize=10, color=_GREY)
    form = path.suffix[1:].lower()
    if form not in figure.canvas.get_supported_filetypes():
        raise InputError(argument="path", given=str(path), expected="a name that ends in .png, .pdf or .svg")
    with system_errors(path, "a file that can be written"), whole_file(path) as file:
        figure.savefig(file, format=form, dpi=150)
