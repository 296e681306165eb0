"""Traced runs: which vertices each batch of a run needs. Caches, copies, parts and disks are measured on them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from spsample.data import Dataset
from spsample.features import score

from .inputs import Inputs
from .ours import graph_of, sampler_of

Ids = NDArray[np.int64]
RUN_SEED = 1
"""The random seed of runs: none of those that scores take for their trials."""


def train_vertices(inputs: Inputs) -> Ids:
    """Those of the store; a random tenth of the vertices that have in-neighbours where it names none."""
    stored = inputs.store / "train_idx.npy"
    if stored.exists():
        return np.asarray(np.load(stored), np.int64)
    known = np.flatnonzero(np.diff(inputs.indptr))
    return np.sort(np.random.default_rng(0).choice(known, max(len(known) // 10, 1), replace=False))


def dataset_of(inputs: Inputs) -> Dataset:
    """That of the store, with train vertices, and random features and classes where it has none."""
    data, train = sp.load_dataset(str(inputs.store)), train_vertices(inputs)
    if data.x is not None and not inputs.get("dim"):
        return data
    rest = np.setdiff1d(np.flatnonzero(np.diff(inputs.indptr)), train)[:2000]
    y = inputs.y
    return replace(data, x=inputs.x, y=y, num_classes=47, train_idx=train, val_idx=rest[::2], test_idx=rest[1::2])


@dataclass(frozen=True, eq=False)
class Run:
    """A graph, the train vertices of an epoch, and a sampler."""

    graph: sp.Graph
    seeds: Ids
    sampler: sp.Sampler
    batch_size: int

    @classmethod
    def of(cls, inputs: Inputs) -> Run:
        """That of a cell: one object in a process, so that it is counted and scored once."""
        how = inputs.get("sampler", "sage"), str(inputs["fanouts"]), int(inputs["batch_size"])
        return _run_of(inputs.store, *how)

    @property
    def dataset(self) -> Dataset:
        """Without features: what makes parts of it needs no more."""
        n, none = self.graph.num_nodes, np.empty(0, np.int64)
        return Dataset("traced", self.graph, None, np.zeros(n, np.int64), self.seeds, none, none, 0)

    def loader(self, **options: Any) -> sp.BulkLoader:
        """Of the run."""
        how: dict[str, Any] = {"batch_size": self.batch_size, "bulk_size": 16, "random_seed": RUN_SEED, **options}
        return sp.BulkLoader(self.graph, self.seeds, self.sampler, shuffle=True, prefetch=0, **how)

    def batches(self, epochs: int) -> Iterator[Ids]:
        """The src vertices of each batch of the first epochs."""
        loader = self.loader()
        for epoch in range(epochs):
            yield from (np.array(batch.src_nodes) for bulk in loader.bulks(epoch) for batch in bulk)


@lru_cache(maxsize=4)
def _run_of(store: Path, sampler: str, fanouts: str, batch_size: int) -> Run:
    inputs = Inputs(store, {"sampler": sampler, "fanouts": fanouts})
    return Run(graph_of(inputs), train_vertices(inputs), sampler_of(inputs), batch_size)


@lru_cache(maxsize=16)
def counts_of(run: Run, epochs: int) -> Ids:
    """(n,) batches of the run that need each vertex."""
    counts = np.zeros(run.graph.num_nodes, np.int64)
    for vertices in run.batches(epochs):
        counts[vertices] += 1
    return counts


@lru_cache(maxsize=16)
def scores_of(run: Run, name: str, **options: int) -> tuple[NDArray[np.float64], float]:
    """(n,) scores, and the seconds that they took."""
    begin = time.perf_counter()
    scores = score(name, run.graph, run.seeds, run.sampler, run.batch_size, **options)
    return scores, time.perf_counter() - begin


def hottest(scores: NDArray[Any], rows: int) -> Ids:
    """The vertices of the largest scores."""
    return np.argsort(-scores, kind="stable")[:rows]
