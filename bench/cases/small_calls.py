"""Calls for few seeds that repeat: their time, beside pyg-lib's, and the fresh pages that they touch."""

from __future__ import annotations

import itertools
import resource
from typing import Any

from ..case import Case, Figures, Plot, Side, Values, Work
from ..inputs import Inputs
from ..ours import Calls, sampler_of


def bulk(inputs: Inputs) -> Work:
    """Batches as they are in a bulk."""
    return _repeated(Calls(inputs, sampler_of(inputs)), lambda bulk: bulk.num_edges)


def coo(inputs: Inputs) -> Work:
    """Each batch as int64 COO edges with ids of edges and vertices, tensors of torch."""
    import torch  # noqa: F401  (missing where to_pyg would miss it)

    calls = Calls(inputs, sampler_of(inputs), edge_ids=True)
    return _repeated(calls, lambda bulk: sum(e.edge_index.size(1) for batch in bulk for e in batch.to_pyg()[2]))


def _repeated(calls: Calls, edges_of: Any) -> Work:
    """All calls of a pass; the page faults of the median call, which those of the first do not move."""

    def work() -> Figures:
        edges, faults = 0, [_faults()]
        for bulk in calls():
            edges += edges_of(bulk)
            faults.append(_faults())
        each = sorted(after - before for before, after in itertools.pairwise(faults))
        return {"batches": calls.batches, "edges": edges, "page_faults": each[len(each) // 2]}

    return work


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


_SAGE: Values = {"sampler": "sage", "fanouts": "10,5"}
CASE = Case(
    about="Calls of one or some batches on a small graph: time a batch, and page faults of a call that repeats.",
    claim="A call for one batch of 16 seeds takes tens of microseconds, and calls that repeat touch no fresh pages.",
    parameters={
        "graph": ("rmat:12,8",),
        "threads": (1,),
        "batches": (2048,),
        "batch_size": (16, 1024),
        "bulk_size": (1, 16),
    },
    quick={"batch_size": (16,), "bulk_size": (1,)},
    sides=(
        Side("GraphSAGE", bulk, _SAGE),
        Side("GraphSAGE, COO and edge ids", coo, _SAGE),
        Side("LADIES", bulk, {"sampler": "ladies", "fanouts": "32,32"}),
        Side("FastGCN", bulk, {"sampler": "fastgcn", "fanouts": "32,32"}),
    ),
    job="small-calls",
    baselines=("GraphSAGE, COO and edge ids", "GraphSAGE"),
    plots=(Plot("ms", facet="batch_size", color="bulk_size", logarithmic=True, title="ms a batch"),),
)
