"""The picture of `spsample cache-report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spsample.timeline.figures import save_figure

if TYPE_CHECKING:
    from spsample.advice import CacheReport

__all__ = ["draw_report"]


def draw_report(report: CacheReport, path: Path) -> bool:
    """Draw hits, unions, copies and partitions; False where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    panels = [_draw_hits, _draw_unions]
    if report.copies:
        panels += [_draw_copies, _draw_partitions]
    figure = Figure(figsize=(5.2 * 2, 3.9 * (len(panels) // 2)), layout="constrained")
    for axes, draw in zip(figure.subplots(len(panels) // 2, 2).flat, panels, strict=True):
        draw(report, axes)
    save_figure(figure, path)
    return True


def _draw_hits(report: CacheReport, axes: Any) -> None:
    for name, how in dict.fromkeys((one.score, one.replacement) for one in report.hits):
        cells = [one for one in report.hits if (one.score, one.replacement) == (name, how)]
        known = how == "lookahead"
        axes.plot(
            [100 * one.budget for one in cells],
            [100 * one.hits for one in cells],
            label=f"{name}, lookahead" if known else name,
            linewidth=2.2 if known else 1.2,
            linestyle="--" if name.startswith("the trial") else "-",
            marker="o",
            markersize=3,
        )
    axes.set(title="Rows that are hit", xlabel="rows cached, %", ylabel="rows hit, %", ylim=(0, 100))
    axes.legend(fontsize="x-small")


def _draw_unions(report: CacheReport, axes: Any) -> None:
    axes.plot([one.k for one in report.unions], [one.rows_per_batch for one in report.unions], marker="o", markersize=3)
    axes.axvline(report.bulk_size, color="grey", linewidth=0.8, linestyle=":")
    axes.set(title="Fetched together", xlabel="batches k", ylabel="distinct rows of k batches, over k", xscale="log")
    axes.set_ylim(bottom=0)


def _draw_copies(report: CacheReport, axes: Any) -> None:
    names = [one.method for one in report.copies]
    host = [100 * one.host_bytes / max(report.bytes_per_epoch, 1.0) for one in report.copies]
    peers = [100 * one.peer_bytes / max(report.bytes_per_epoch, 1.0) for one in report.copies]
    axes.barh(names, host, label="from the host", color="C3")
    axes.barh(names, peers, left=host, label="from peers", color="C0")
    axes.set(
        title=f"Copies on {report.ranks} devices of {report.budget:.0%} each", xlabel="rows, % of all", xlim=(0, 100)
    )
    axes.legend(fontsize="x-small")


def _draw_partitions(report: CacheReport, axes: Any) -> None:
    cells = report.partitions
    most = max((one.epoch for one in cells), default=1.0) or 1.0
    names = [f"{one.method}, {one.batches}, {one.cache}" for one in cells]
    colors = ["C2" if one.batches == "local" else "C7" for one in cells]
    axes.barh(names[::-1], [100 * one.epoch / most for one in cells][::-1], color=colors[::-1])
    axes.set(title=f"Received by {report.ranks} ranks", xlabel="bytes, % of the most")
    axes.tick_params(axis="y", labelsize="small")
