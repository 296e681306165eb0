"""Bulk sampling composed of CuPy's library calls, its products by cuSPARSE (`gpu/composition.py`)."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import cupyx.scipy.sparse
import numpy as np

from gpu.composition import Composition, Library, SampledLayer
from peers.cuda_timing import timed
from peers.task import Figures, Inputs, Options, Task, Work

PACKAGES = ("cupy",)

BATCHES_AT_ONCE = 8
"""Batches of a group, whose table of columns takes 13 bytes a vertex."""


@cache
def _composition(inputs: Inputs, form: str) -> Composition:
    weights = None
    if form == "exponential":
        weights = cupy.asarray(np.random.default_rng(2).standard_exponential(len(inputs.indices), np.float32))
    A = (cupy.asarray(inputs.indptr), cupy.asarray(inputs.indices), weights)
    return Composition(Library(cupy, cupyx.scipy.sparse), A)


def _method(inputs: Inputs, options: Options, name: str) -> Work:
    composition = _composition(inputs, options.get("graph", "unweighted"))
    sample: Any = getattr(composition, name)
    seeds, at_once = cupy.asarray(inputs.seeds(options)), options.get("batches_at_once", BATCHES_AT_ONCE)

    def work() -> Figures:
        edges = 0
        for begin in range(0, len(seeds), at_once):
            layers: list[SampledLayer] = sample(seeds[begin : begin + at_once], options["fanouts"])
            edges += sum(layer.nnz for layer in layers)
        return {"batches": len(seeds), "edges": edges}

    return timed(work, cupy.cuda.Event)


def graphsage(inputs: Inputs, options: Options) -> Work:
    """GraphSAGE, some batches at a time."""
    return _method(inputs, options, "graphsage")


def ladies(inputs: Inputs, options: Options) -> Work:
    """LADIES, some batches at a time."""
    return _method(inputs, options, "ladies")


TASKS: dict[str, Task] = {"graphsage": graphsage, "ladies": ladies}
