"""Whole bulks as one SHA-256, over one process or many ranks."""

from __future__ import annotations

import hashlib

import numpy as np

from spsample.comm import LocalCommunicator


def bulk_digest(bulk, comm=None):
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


def _batch_digest(mb):
    digest = hashlib.sha256()
    for name, array in _arrays(mb):
        digest.update(f"{name} {None if array is None else (array.dtype.str, array.shape)}".encode())
        digest.update(b"" if array is None else np.ascontiguousarray(array).data)
    return digest.digest()


def _arrays(mb):
    yield "seeds", mb.seeds
    yield "seed_inverse", mb.seed_inverse
    for number, layer in enumerate(mb.layers, 1):
        yield f"dst {number}", layer.dst_nodes
        yield f"src {number} of a matrix of {layer.adj.shape}", layer.src_nodes
        for name in ("indptr", "indices", "data"):
            yield f"{name} {number}", getattr(layer.adj, name)
        yield f"edge_ids {number}", layer.edge_ids
