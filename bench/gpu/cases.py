"""The cases of `sampling` and `layerwise`: who does what, in which form of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cases import CUDA, CUDA_MEMORY, CUSPARSE, SPSAMPLE, WHOLEGRAPH, Case, Side

OURS = "spsample cuda"
LIMIT = "copy of the bytes that must move"

GOALS = {"WholeGraph": 2.0, "cuSPARSE composition": 10.0}
"""How many times as fast as these a bulk is meant to be."""


@dataclass(frozen=True)
class Settings:
    """k batches of b seeds; sizes nearest to the seeds first."""

    batches: int = 196
    batch_size: int = 1024
    fanouts: tuple[int, ...] = (15, 10, 5)
    layer_batch_size: int = 512
    layer_sizes: tuple[int, ...] = (512, 512, 512)
    few_batches: int = 16
    """Batches of the composition, whose time per batch is what is compared."""


def sampling_cases(settings: Settings) -> dict[str, Case]:
    """GraphSAGE, blocks: every layer draws its whole frontier anew."""
    made = [_node_wise(settings, form) for form in ("unweighted", "exponential")]
    return {case.name: case for case in made}


def layerwise_cases(settings: Settings) -> dict[str, Case]:
    """LADIES, p_v ~ number of edges from the frontier, targets kept among the sources."""
    own = {"method": "LADIES", "fanouts": list(settings.layer_sizes), "batch_size": settings.layer_batch_size}
    return {"ladies": _case("ladies", "LADIES, values included", "cuSPARSE composition", own, settings)}


def _node_wise(settings: Settings, form: str) -> Case:
    name = "unweighted" if form == "unweighted" else "weighted"
    own = {"fanouts": list(settings.fanouts), "batch_size": settings.batch_size, "graph": form}
    return _case(name, f"GraphSAGE blocks, {name} rows", "WholeGraph", own, settings)


def _case(name: str, about: str, baseline: str, own: dict[str, Any], settings: Settings) -> Case:
    own = {**own, "batches": settings.batches}
    few = {**own, "batches": min(settings.few_batches, settings.batches)}
    is_node_wise = own.get("method", "GraphSAGE") == "GraphSAGE"
    task = "graphsage" if is_node_wise else "ladies"
    peers = [Side("WholeGraph", WHOLEGRAPH, "batches", own)] if is_node_wise else []
    return Case(
        name=name,
        about=about,
        baseline=baseline,
        sides=(
            Side(OURS, CUDA, "bulk", own),
            *peers,
            Side("cuSPARSE composition", CUSPARSE, task, few),
            Side("spsample cpu", SPSAMPLE, "bulk", {**own, "backend": "cpu"}),
            Side(LIMIT, CUDA_MEMORY, "copy", {"batches": settings.batches}),
        ),
        count=Side("bytes", SPSAMPLE, "count_bytes", {**own, "backend": "cpu"}),
    )
