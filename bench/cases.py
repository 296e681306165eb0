"""The cases of `bench sampling`: who does what, and what each is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from process import Peer

PEERS = {
    peer.module: peer
    for peer in (
        Peer("spsample", "spsample_bulk"),
        Peer("SciPy", "scipy_reference"),
        Peer("memory", "memory_limits"),
        Peer("torch", "torch_sparse_mm"),
        Peer("DGL", "dgl_loader", "SPSAMPLE_BENCH_DGL_PYTHON"),
        Peer("PyG", "pyg_loader", "SPSAMPLE_BENCH_PYG_PYTHON"),
        Peer("spsample cuda", "cuda_bulk"),
        Peer("cuSPARSE", "cusparse_composition"),
        Peer("WholeGraph", "wholegraph"),
        Peer("memory", "cuda_memory"),
    )
}
SPSAMPLE, SCIPY, MEMORY, TORCH, DGL, PYG, CUDA, CUSPARSE, WHOLEGRAPH, CUDA_MEMORY = PEERS


@dataclass(frozen=True)
class Side:
    """One side of a case: the `task` of a peer's module under its options, beside those of all."""

    name: str
    peer: str
    task: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """Sides that take turns; times per batch are compared with that of the side `baseline`.

    The figures of `count`, run once before, become options of all sides. Every run of a case with `fresh` has a
    process of its own; with `apart` every side has one, for memory that a process keeps for one of them serves another
    badly.
    """

    name: str
    about: str
    baseline: str
    sides: tuple[Side, ...]
    count: Side | None = None
    fresh: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Settings:
    """What the cases are sized by: fanouts nearest to the seeds first, k batches of b seeds."""

    fanouts: tuple[int, ...] = (15, 10, 5)
    batches: int = 196
    batch_size: int = 1024
    dim: int = 100
    layer_batch_size: int = 512
    layer_sizes: tuple[int, ...] = (512, 512, 512)
    fastgcn_sizes: tuple[int, ...] = (400, 400)
    few_batches: int = 12
    """Batches of a side that is too slow for all of them; its time per batch is what is compared."""
    calls: int = 2000
    """In a row: short turns would measure how a process wakes up."""


def cases(settings: Settings) -> dict[str, Case]:
    """All cases by name."""
    made = (
        _blocks,
        _subgraph,
        _loader_blocks,
        _loader_subgraph,
        _variants,
        _whole_rows,
        *_LAYERWISE,
        _row_selection,
        _product,
        _threads,
        _calls,
        _memory,
    )
    return {case.name: case for case in (make(settings) for make in made)}


def _sampling(settings: Settings, **more: Any) -> dict[str, Any]:
    """Options of node-wise sampling."""
    return {"fanouts": list(settings.fanouts), "batches": settings.batches, "batch_size": settings.batch_size, **more}


def _blocks(settings: Settings) -> Case:
    own = _sampling(settings)
    return Case(
        name="blocks",
        about="every layer draws its whole frontier anew",
        baseline="DGL DataLoader",
        sides=(
            Side("spsample, CSR", SPSAMPLE, "bulk", own),
            Side("spsample, COO and edge ids", SPSAMPLE, "bulk_to_pyg", own),
            Side("DGL DataLoader", DGL, "blocks", own),
            Side("limit batch by batch", MEMORY, "random_lines", {"batches": settings.batches}),
        ),
        count=Side("lines", SPSAMPLE, "count_lines", own),
        apart=True,
    )


def _subgraph(settings: Settings) -> Case:
    own = _sampling(settings, sampler={"layout": "subgraph"})
    few = _sampling(settings, batches=min(settings.few_batches, settings.batches))
    return Case(
        name="subgraph",
        about="each vertex is drawn once",
        baseline="pyg-lib operation",
        sides=(
            Side("spsample, CSR", SPSAMPLE, "bulk", own),
            Side("spsample, COO and edge ids", SPSAMPLE, "bulks_to_pyg", {**own, "bulk_size": settings.batches}),
            Side("pyg-lib operation", PYG, "pyg_lib_sample", few),
            Side("NeighborLoader", PYG, "neighbor_loader", {**few, "workers": 0}),
            Side("NeighborLoader, 2 workers", PYG, "neighbor_loader", {**few, "workers": 2}),
        ),
    )


def _loader_blocks(settings: Settings) -> Case:
    own = _sampling(settings, dim=settings.dim)
    few = {**own, "batches": min(settings.few_batches, settings.batches)}
    return Case(
        name="loader-blocks",
        about=f"a pass of the loader, {settings.dim} float32 features put to each batch",
        baseline="spsample BulkLoader",
        sides=(
            Side("spsample BulkLoader", SPSAMPLE, "loader", own),
            Side("spsample, COO and edge ids", SPSAMPLE, "loader_to_pyg", own),
            Side("DGL DataLoader", DGL, "blocks_with_features", few),
            Side(
                "its rows read in random order",
                MEMORY,
                "random_rows",
                {"row_bytes": 4 * settings.dim, "batches": settings.batches},
            ),
        ),
        count=Side("rows", SPSAMPLE, "loader", own),
    )


def _loader_subgraph(settings: Settings) -> Case:
    own = _sampling(settings, dim=settings.dim, sampler={"layout": "subgraph"})
    few = {**own, "batches": min(settings.few_batches, settings.batches)}
    return Case(
        name="loader-subgraph",
        about=f"a pass of the loader, {settings.dim} float32 features put to each batch, each vertex drawn once",
        baseline="spsample, pyg()",
        sides=(
            Side("spsample, pyg()", SPSAMPLE, "loader_pyg", own),
            Side("NeighborLoader", PYG, "neighbor_loader", {**few, "workers": 0}),
            Side("NeighborLoader, 2 workers", PYG, "neighbor_loader", {**few, "workers": 2}),
        ),
    )


def _variants(settings: Settings) -> Case:
    own = _sampling(settings)
    again = {"sampler": {"replace": True}}
    return Case(
        name="variants",
        about="laws of one row against the uniform one; weights from an exponential distribution",
        baseline="uniform",
        sides=(
            Side("uniform", SPSAMPLE, "bulk", own),
            Side("weighted", SPSAMPLE, "bulk", {**own, "graph": "exponential"}),
            Side("uniform, replaced", SPSAMPLE, "bulk", {**own, **again}),
            Side("weighted, replaced", SPSAMPLE, "bulk", {**own, **again, "graph": "exponential"}),
        ),
    )


def _whole_rows(settings: Settings) -> Case:
    own = _sampling(settings, fanouts=[-1])
    return Case(
        name="whole-rows",
        about="fanout -1, one layer: copying the rows, the whole call, and two limits of the memory",
        baseline="copy of as many bytes",
        sides=(
            Side("rows taken", SPSAMPLE, "take_rows", own),
            Side("whole call", SPSAMPLE, "bulk", own),
            Side("copy of as many bytes", MEMORY, "copy", {"batches": settings.batches}),
            Side("its lines read in random order", MEMORY, "random_lines", {"batches": settings.batches}),
        ),
        count=Side("bytes and lines", SPSAMPLE, "count_rows", own),
    )


def _layerwise(settings: Settings, method: str, law: str | None, targets: bool) -> Case:
    sizes = settings.layer_sizes if method == "LADIES" else settings.fastgcn_sizes
    own = {"fanouts": list(sizes), "batches": settings.batches, "batch_size": settings.layer_batch_size}
    sampler = {"include_targets": targets, **({"law": law} if law else {})}
    few = {**own, "batches": min(max(settings.few_batches // 3, 1), settings.batches), "law": law}
    name = "-".join(filter(None, (method.lower(), law, "targets" if targets else None))).replace("_", "-")
    note = "; SciPy's method keeps none" if targets else ""
    return Case(
        name=name,
        about=f"{len(sizes)} layers of {sizes[0]}, values included{note}",
        baseline="SciPy",
        sides=(
            Side("spsample", SPSAMPLE, "bulk", {**own, "method": method, "sampler": sampler}),
            Side("SciPy", SCIPY, method.lower(), few),
        ),
    )


_LAYERWISE = tuple(
    lambda settings, arguments=arguments: _layerwise(settings, *arguments)
    for arguments in (
        ("LADIES", "norm", False),
        ("LADIES", "norm", True),
        ("LADIES", "squared_count", False),
        ("LADIES", "squared_count", True),
        ("FastGCN", None, False),
        ("FastGCN", None, True),
    )
)


def _one_task(settings: Settings, name: str, about: str, peers: dict[str, str]) -> Case:
    """The task of the case's name, by each of the peers under its label, against SciPy."""
    own, task = _sampling(settings), name.replace("-", "_")
    sides = tuple(Side(label, peer, task, own) for label, peer in peers.items())
    return Case(name=name, about=about, baseline="SciPy", sides=sides)


def _row_selection(settings: Settings) -> Case:
    peers = {"spsample": SPSAMPLE, "SciPy": SCIPY}
    return _one_task(settings, "row-selection", "A[rows] of all seeds, float32 values", peers)


def _product(settings: Settings) -> Case:
    peers = {"spsample": SPSAMPLE, "SciPy": SCIPY, "torch.sparse.mm": TORCH}
    return _one_task(settings, "product", "Q A, one entry in each row of Q, float32 values", peers)


def _threads(settings: Settings) -> Case:
    own = _sampling(settings)
    return Case(
        name="threads",
        about="blocks as CSR",
        baseline="1 thread",
        sides=(
            Side("1 thread", SPSAMPLE, "bulk", {**own, "threads": 1}),
            Side("all threads", SPSAMPLE, "bulk", own),
        ),
    )


def _calls(settings: Settings) -> Case:
    own = {"batches": 1, "batch_size": 16, "calls": settings.calls, "graph": "small"}
    return Case(
        name="small-call",
        about="one batch of 16 seeds on 2^12 vertices; a call counts as a batch",
        baseline="GraphSAGE",
        sides=(
            Side("GraphSAGE", SPSAMPLE, "many_calls", {**own, "fanouts": [10, 5]}),
            Side("LADIES", SPSAMPLE, "many_calls", {**own, "method": "LADIES", "fanouts": [32, 32]}),
            Side("FastGCN", SPSAMPLE, "many_calls", {**own, "method": "FastGCN", "fanouts": [32, 32]}),
        ),
    )


def _memory(settings: Settings) -> Case:
    own = _sampling(settings)
    layers = {"batches": settings.batches, "batch_size": settings.layer_batch_size, "method": "LADIES"}
    return Case(
        name="peak-memory",
        about="of one call in a fresh process, beyond the graph, against the bytes of its result",
        baseline="blocks",
        sides=(
            Side("blocks", SPSAMPLE, "peak_memory", own),
            Side("blocks, edge ids", SPSAMPLE, "peak_memory", {**own, "edge_ids": True}),
            Side("subgraph", SPSAMPLE, "peak_memory", {**own, "sampler": {"layout": "subgraph"}}),
            Side("LADIES", SPSAMPLE, "peak_memory", {**layers, "fanouts": list(settings.layer_sizes)}),
        ),
        fresh=True,
    )
