"""cuSPARSE: bulk sampling composed of CuPy's library calls (`_composition.py`)."""

from __future__ import annotations

from .. import gpu
from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs
from ._composition import Composition, Library

AT_ONCE = 8
"""Batches of a group, whose table of columns takes 13 bytes a vertex and batch."""


def composed(inputs: Inputs) -> Work:
    """Some batches at a time; seeds lie on the device."""
    cupy, sampling = gpu.cupy(), gpu.Sampling.of(inputs)
    import cupyx.scipy.sparse

    weights = sampling.weights(inputs)
    A = (*map(cupy.asarray, (inputs.indptr, inputs.indices)), None if weights is None else cupy.asarray(weights))
    composition = Composition(Library(cupy, cupyx.scipy.sparse), A)
    sample = composition.ladies if sampling.name == "ladies" else composition.graphsage
    seeds = cupy.asarray(inputs.seeds)

    def work() -> Figures:
        groups = (seeds[begin : begin + AT_ONCE] for begin in range(0, len(seeds), AT_ONCE))
        edges = sum(layer.nnz for group in groups for layer in sample(group, sampling.fanouts))
        return {"batches": len(seeds), "edges": edges}

    return gpu.timed(work)


PEER = Peer("cuSPARSE", ("cupy",), {"gpu-bulks": (Side("cuSPARSE, composed", composed),)})
