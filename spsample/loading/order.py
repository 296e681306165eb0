"""The order in which epochs of a loader visit the seeds, and its place in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.common.arrays import as_array
from spsample.common.checks import require_int
from spsample.errors import DTypeError, InputError
from spsample.sampling.arguments import require_word
from spsample.sparse import keys
from spsample.store.validation import validate_seeds

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_seeds(graph: Any, seeds: Any, argument: str = "seeds") -> NDArray[np.int64]:
    """Return vertex ids as int64; of a mask over the vertices those where it is true. Errors name `argument`.

    Raises
    ------
    DTypeError, InputError
        As `validate_seeds`; or if a mask has not one entry per vertex.
    """
    expected = "vertex ids, or a mask over the vertices of dtype bool"
    dtype = str(getattr(seeds, "dtype", ""))
    if "bool" not in dtype and not (isinstance(seeds, list) and seeds and isinstance(seeds[0], bool)):
        return validate_seeds(seeds, int(graph.num_nodes), argument, expected)
    mask = as_array(argument, seeds)
    if mask.shape != (graph.num_nodes,):
        shape = f"{expected} and shape ({graph.num_nodes},)"
        raise InputError(argument=argument, given=f"a mask of shape {mask.shape}", expected=shape)
    return np.flatnonzero(mask)


class Delivered(NamedTuple):
    """A collated batch.

    Attributes
    ----------
    next_batch
        Number of the next step's first batch.
    begins_bulk
        True of the first one of a bulk.
    batch
        The batch, or the result of a transform.
    nbytes
        Bytes of its features.
    ends_bulk
        True of the last one of a bulk.
    size
        Bytes that are held for the batch; None where unknown.
    batch_id
        Of the batch; None of several batches.
    """

    next_batch: int
    begins_bulk: bool
    batch: Any
    nbytes: int = 0
    ends_bulk: bool = False
    size: int | None = None
    batch_id: int | None = None


class Order:
    """All seeds, in the order given or in one that follows from the random seed and the epoch.

    A subclass that draws is for a loader on one rank.

    Attributes
    ----------
    num_positions : int
        Number of seeds that every epoch visits.

    Examples
    --------
    >>> Order(4, shuffle=True).positions(0, 0), Order(4, shuffle=False).positions(0, 0)
    (array([3, 2, 0, 1]), array([0, 1, 2, 3]))
    """

    def __init__(self, num_positions: int, *, shuffle: bool) -> None:
        self.num_positions, self.shuffle = num_positions, shuffle

    def positions(self, random_seed: int, epoch: int) -> NDArray[np.int64]:
        """Return the positions in the order of an epoch."""
        return keys.shuffle(self.num_positions, random_seed, epoch) if self.shuffle else np.arange(self.num_positions)

    def identity(self) -> dict[str, Any]:
        """Return values that tell it from other orders; ``shuffle`` is one of them."""
        return {"shuffle": self.shuffle}

    def state(self, epoch: int) -> dict[str, Any]:
        """Return the state of what is drawn for an epoch: empty here."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on with the state of a loader, which contains the result of `state`, and its epoch."""

    def end(self, epoch: int) -> None:
        """End an epoch whose positions were not asked for: nothing to do here."""


_A_STATE = "what state_dict() of the same loader returned"


def require_state(state: Any) -> Mapping[str, Any]:
    """Return the state, where it is a mapping.

    Raises
    ------
    DTypeError
    """
    if not isinstance(state, Mapping):
        raise DTypeError(argument="state", given=f"an object of type {type(state).__name__}", expected=_A_STATE)
    return state


def checked_place(state: Any, mine: dict[str, Any], num_batches: int) -> tuple[int, int]:
    """Return epoch and next batch of a state, after checks that it is of a loader with the identity `mine`."""
    state = {"batches": "shuffled", **require_state(state)}  # states of older releases do not have the key
    if _differs("batches", state["batches"], mine["batches"]):
        given, expected = (f"the state of {identity['batches']} batches" for identity in (state, mine))
        raise InputError(argument="state", given=given, expected=expected)
    missing = [key for key in ("next_batch", "epoch", *mine) if key not in state]
    if missing:
        raise InputError(argument="state", given=f"no {', no '.join(map(repr, missing))}", expected=_A_STATE)
    other = [key for key in mine if _differs(key, state[key], mine[key])]
    if other:
        theirs, wanted = ({key: identity[key] for key in other} for identity in (state, mine))
        of_parts = {"ranks", "num_parts", "parts_sha256"} & set(other)
        hint = "Local batches go on with as many ranks and the same partition as that loader's." if of_parts else ""
        raise InputError(argument="state", given=str(theirs), expected=str(wanted), hint=hint)
    next_batch = require_int("next_batch", state["next_batch"], minimum=0, maximum=num_batches)
    return require_word("epoch", state["epoch"]), next_batch


def _differs(key: str, theirs: Any, mine: Any) -> bool:
    is_unknown = key == "graph_digest" and (theirs is None or mine is None)
    return not is_unknown and (type(theirs) is not type(mine) or bool(theirs != mine))
