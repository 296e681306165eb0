"""What the tasks of cases share: the graph, the sampler and the ranks of a cell, as spsample's."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import spsample as sp
from spsample.comm import Communicator, LocalCommunicator

from .inputs import Inputs

SAMPLERS: dict[str, Any] = {
    "sage": sp.GraphSAGE,
    "sage-subgraph": partial(sp.GraphSAGE, layout="subgraph"),
    "ladies": sp.LADIES,
    "ladies-squared-count": partial(sp.LADIES, law="squared_count"),
    "fastgcn": sp.FastGCN,
}


def graph_of(inputs: Inputs) -> sp.Graph:
    """A in memory."""
    return sp.Graph(inputs.indptr, inputs.indices, validate=False)


def sampler_of(inputs: Inputs, **options: Any) -> sp.Sampler:
    """That of ``sampler``, with ``fanouts``."""
    name = inputs.get("sampler", "sage")
    if name not in SAMPLERS:
        raise ValueError(f"sampler {name!r}, which is none of {', '.join(SAMPLERS)}")
    sampler: sp.Sampler = SAMPLERS[name](inputs.fanouts, **options)
    return sampler


def comm_of(inputs: Inputs) -> Communicator:
    """The ranks that do the work together."""
    return inputs.comm or LocalCommunicator()


class Calls:
    """`bulk_sample` of all seeds, ``bulk_size`` batches to a call; each pass is an epoch of its own."""

    def __init__(self, inputs: Inputs, sampler: sp.Sampler, graph: Any = None, **options: Any) -> None:
        self._graph = graph_of(inputs) if graph is None else graph
        self._sampler, self._options = sampler, options
        self._seeds, self._epochs = inputs.seeds, itertools.count(1)
        self.batches, self._batch_size = inputs.seeds.shape
        self._bulk_size = min(int(inputs.get("bulk_size", 0)) or self.batches, self.batches)

    def __call__(self) -> Any:
        """Yield the bulks of a pass."""
        epoch, b = next(self._epochs), self._batch_size
        for first in range(0, self.batches, self._bulk_size):
            yield sp.bulk_sample(
                self._graph,
                self._seeds[first : first + self._bulk_size].ravel(),
                self._sampler,
                batch_size=b,
                epoch=epoch,
                first_batch=first,
                **self._options,
            )
