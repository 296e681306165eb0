"""Which seeds an epoch visits in which order, and the state that leads back into it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.common.arrays import as_array
from spsample.common.checks import require_int
from spsample.errors import DTypeError, InputError
from spsample.sampling.arguments import require_word
from spsample.sparse import keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.loading.loader import BulkLoader

__all__ = ["as_seeds", "checked_place", "identity", "positions"]

MAYBE_UNKNOWN = "graph_digest"
"""The key of a state that is compared only where both sides know it."""


def as_seeds(graph: Any, seeds: Any, argument: str = "seeds") -> Any:
    """`seeds`, or of a mask over the vertices the ids where it is true; errors name `argument`.

    Raises
    ------
    InputError
        If a mask has not one entry per vertex.
    """
    dtype = str(getattr(seeds, "dtype", ""))
    if "bool" not in dtype and not (isinstance(seeds, list) and seeds and isinstance(seeds[0], bool)):
        return seeds
    mask = as_array(argument, seeds)
    num_nodes = getattr(graph, "num_nodes", None)
    if num_nodes is not None and mask.shape != (num_nodes,):
        raise InputError(
            argument=argument,
            given=f"a mask of shape {mask.shape}",
            expected=f"vertex ids, or a mask over the vertices: ({num_nodes},)",
        )
    return np.flatnonzero(mask)


def positions(loader: BulkLoader, epoch: int) -> NDArray[np.int64]:
    """Positions among the loader's seeds in the order of an epoch."""
    if not loader.shuffle:
        return np.arange(len(loader.seeds))
    return keys.shuffle(len(loader.seeds), loader.random_seed, epoch)


def digest_of(seeds: NDArray[np.int64]) -> str:
    """SHA-256 of the seeds as little-endian 64-bit integers."""
    return sha256(seeds.astype("<i8", copy=False).tobytes()).hexdigest()


def identity(loader: BulkLoader) -> dict[str, Any]:
    """What decides the batches of an epoch; of the graph its digest where it is known, else its size and weighting."""
    graph = loader.graph
    return {
        "law_version": keys.LAW_VERSION,
        "sampler": repr(loader.sampler),
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "weighting": graph.weighting,
        "graph_digest": graph.digest,
        "num_seeds": len(loader.seeds),
        "seeds_sha256": loader.seeds_sha256,
        "batch_size": loader.batch_size,
        "random_seed": loader.random_seed,
        "shuffle": loader.shuffle,
        "drop_last": loader.drop_last,
    }


def checked_place(state: Any, mine: dict[str, Any], num_batches: int) -> tuple[int, int]:
    """Epoch and next batch of a state, once it is known to be of a loader with the identity `mine`.

    Raises
    ------
    DTypeError
        If `state` is no mapping.
    InputError
        If it lacks a key or is of another loader.
    """
    expected = "what state_dict() of the same loader returned"
    if not isinstance(state, Mapping):
        raise DTypeError(argument="state", given=f"an object of type {type(state).__name__}", expected=expected)
    missing = [key for key in ("next_batch", "epoch", *mine) if key not in state]
    if missing:
        raise InputError(argument="state", given=f"no {', no '.join(map(repr, missing))}", expected=expected)
    other = [key for key in mine if _differs(key, state[key], mine[key])]
    if other:
        theirs = {key: state[key] for key in other}
        raise InputError(argument="state", given=str(theirs), expected=str({key: mine[key] for key in other}))
    next_batch = require_int("next_batch", state["next_batch"], minimum=0, maximum=num_batches)
    return require_word("epoch", state["epoch"]), next_batch


def _differs(key: str, theirs: Any, mine: Any) -> bool:
    if key == MAYBE_UNKNOWN and (theirs is None or mine is None):
        return False
    return type(theirs) is not type(mine) or bool(theirs != mine)
