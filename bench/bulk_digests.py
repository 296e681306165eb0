"""Whole bulks as one SHA-256, over one process or many ranks: what `same_bulks.py`, `soak.py` and tests compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import spsample as sp
from graphs import dataset_graph, graph_folder
from spsample.comm import Communicator, LocalCommunicator

SAMPLERS: dict[str, sp.Sampler] = {
    "GraphSAGE": sp.GraphSAGE([10, 10, 5]),
    "LADIES": sp.LADIES([256, 256, 256]),
    "FastGCN": sp.FastGCN([256, 256]),
}


def bulk_digest(bulk: sp.BulkSample, comm: Communicator | None = None) -> str:
    """SHA-256 of all batches of a bulk by batch id, wherever they lie; the same on every rank. Collective.

    A batch is its seeds and, of each layer, dst, src, shape, indptr, indices, data and edge ids, with their dtypes.
    Raises ValueError where a batch is on two ranks.
    """
    comm = LocalCommunicator() if comm is None else comm
    digests = [np.frombuffer(_batch_digest(mb), np.uint8) for mb in bulk]
    own = np.stack(digests) if digests else np.zeros((0, 32), np.uint8)
    counts = comm.all_gather(np.array([len(own)], np.int64), phase="digests")[:, 0]
    ids = comm.all_gather_v(np.array(bulk.batch_ids, np.int64), counts, phase="digests")
    everyone = comm.all_gather_v(own, counts, phase="digests")
    order = np.argsort(ids, kind="stable")
    if len(np.unique(ids)) != len(ids):
        raise ValueError(f"a batch is on two ranks: {sorted(ids.tolist())}")
    return hashlib.sha256(ids[order].tobytes() + everyone[order].tobytes()).hexdigest()


def _batch_digest(mb: sp.MiniBatch) -> bytes:
    digest = hashlib.sha256()
    for name, array in _arrays(mb):
        digest.update(f"{name} {None if array is None else (array.dtype.str, array.shape)}".encode())
        digest.update(b"" if array is None else np.ascontiguousarray(array).data)
    return digest.digest()


def _arrays(mb: sp.MiniBatch) -> Iterator[tuple[str, Any]]:
    yield "seeds", mb.seeds
    yield "seed_inverse", mb.seed_inverse
    for number, layer in enumerate(mb.layers, 1):
        yield f"dst {number}", layer.dst_nodes
        yield f"src {number} of a matrix of {layer.adj.shape}", layer.src_nodes
        yield f"indptr {number}", layer.adj.indptr
        yield f"indices {number}", layer.adj.indices
        yield f"data {number}", layer.adj.data
        yield f"edge_ids {number}", layer.edge_ids


def store_of(spec: str, weighted: bool, cache: Path) -> Path:
    """The store of a graph in `cache`; made where it is missing."""
    name = spec.replace(":", "_").replace(",", "_")
    path = cache / f"{name}-{'weighted' if weighted else 'unweighted'}.store"
    if not path.is_dir():
        graph = _graph(spec, cache)
        if weighted:
            graph = sp.Graph(graph.indptr, graph.indices, _weights(graph.num_edges), edge_ids=graph.edge_ids)
        cache.mkdir(parents=True, exist_ok=True)
        graph.save(path)
    return path


def _graph(spec: str, cache: Path) -> sp.Graph:
    if not spec.startswith("rmat:"):
        return dataset_graph(spec)
    folder = graph_folder(spec, cache)
    return sp.Graph(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices")))


def _weights(entries: int) -> np.ndarray:
    """Positive weights of all magnitudes, and zeros."""
    weights = np.random.default_rng(0).exponential(1.0, entries).astype(np.float32)
    weights[::17] = 0
    return weights


def seeds_of(num_nodes: int, count: int) -> np.ndarray:
    """Any vertices, some of them twice."""
    return np.random.default_rng(1).integers(0, num_nodes, count)
