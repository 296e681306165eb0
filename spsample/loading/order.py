"""The order in which epochs of a loader visit the seeds, and its place in it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.common.arrays import as_array
from spsample.common.checks import require_int
from spsample.errors import DTypeError, InputError
from spsample.loading.local_order import Batches, ShuffledBatches
from spsample.sampling.arguments import require_word
from spsample.sampling.sampler import require_bool
from spsample.sparse import keys
from spsample.store.validation import validate_seeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.sampling import Sampler
    from spsample.store.base_graph import BaseGraph

__all__ = ["Delivered", "Epochs", "Order", "as_seeds", "require_state"]

MAYBE_UNKNOWN = "graph_digest"
"""The key of a state that is compared only where both sides know it."""


_OF_LOCAL_BATCHES = "Local batches go on with as many ranks and the same partition as that loader's."


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

    A subclass that draws is for a loader on one rank, whose features do not look ahead into the next epoch.

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


class Epochs:
    """Seeds in batches, epoch by epoch, and the place of a loader among them.

    Parameters
    ----------
    graph, seeds, sampler, batch_size
        Checked by `check_arguments`.
    shuffle
        Draw an order for every epoch; otherwise seeds come in the order given. Or an `Order`.
    drop_last
        Leave out the last batch of an epoch where it has fewer seeds than the others.
    random_seed
        Decides orders and samples.
    cut
        The cut of an epoch's order into batches; None: into runs of it.
    """

    def __init__(
        self,
        graph: BaseGraph,
        seeds: NDArray[np.int64],
        sampler: Sampler,
        batch_size: int,
        *,
        shuffle: bool | Order,
        drop_last: bool,
        random_seed: int,
        cut: Batches | None = None,
    ) -> None:
        self.graph, self.sampler, self.batch_size = graph, sampler, batch_size
        self.seeds = seeds.copy()
        self.seeds.flags.writeable = False
        self.seeds_sha256 = sha256(self.seeds.astype("<i8", copy=False).tobytes()).hexdigest()
        self._order = _order_of(shuffle, len(seeds))
        self.shuffle = bool(shuffle)
        self.drop_last = require_bool("drop_last", drop_last)
        self.random_seed = require_word("random_seed", random_seed)
        self._cut = ShuffledBatches(self._order.num_positions, batch_size, self.drop_last) if cut is None else cut
        self.epoch = 0
        self._next_batch = 0
        self._resume = False
        self._pass = 0  # number of the newest pass: only that one moves the loader on, unless another place was chosen

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Keep the seeds read-only after pickling or copying."""
        self.__dict__.update(state)
        self.seeds.flags.writeable = False

    @property
    def num_batches(self) -> int:
        """Minibatches per epoch, of all ranks together."""
        return self._cut.num_batches

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, in [0, 2^64), which starts at its first batch.

        A pass that is under way goes on, and no longer moves the loader.
        """
        self.epoch = require_word("epoch", epoch)
        self._pass += 1
        self._next_batch = 0
        self._resume = False

    def end_epoch(self) -> None:
        """Make the next pass one of the next epoch; a sampler that draws the order has drawn that of this one."""
        self._order.end(self.epoch)
        self.set_epoch(_after(self.epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return the place of the loader, after the batch that was delivered last, and facts that decide its batches.

        Batches that threads have prepared beyond it are not part of it. ``next_batch`` counts the batches of all ranks,
        so that a loader on other ranks can go on.
        """
        return {
            "next_batch": self._next_batch,
            "epoch": self.epoch,
            **self._identity(),
            **self._order.state(self.epoch),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass go on where ``state`` was taken.

        Raises
        ------
        DTypeError
            If ``state`` is no mapping.
        InputError
            If it lacks a key, or is of a loader with another graph (by digest where both are known, else by size and
            weighting), another sampler, random seed or batch size, other seeds or another version of the law.
        """
        epoch, next_batch = _checked_place(state, self._identity(), self.num_batches)
        self.set_epoch(epoch)
        self._order.load_state(state)
        self._next_batch = next_batch
        self._resume = True

    def _positions(self, epoch: int) -> NDArray[np.int64]:
        """Return the positions among the seeds in the order of an epoch's batches."""
        return self._cut.ordered(self._order.positions(self.random_seed, epoch))

    def _one_pass(
        self, deliver: Callable[[int, int], Iterator[Delivered]], advance: bool
    ) -> Generator[Any, None, None]:
        """Yield the batches of ``deliver(epoch, first)``: from the first on, or from where a state was taken.

        After a pass that was left, this one is of the next epoch where ``advance`` says so.
        """
        if advance and self._next_batch and not self._resume:
            self.set_epoch(_after(self.epoch))
        epoch, first = self.epoch, self._next_batch if self._resume else 0
        self._next_batch, self._resume = first, False
        self._pass += 1
        this_pass = self._pass
        for delivered in deliver(epoch, first):
            if self._pass == this_pass:
                self._next_batch = delivered.next_batch
            yield delivered.batch
        if self._pass == this_pass:
            self.set_epoch(_after(epoch))

    def _identity(self) -> dict[str, Any]:
        """Return all that decides the batches; of the graph its digest where known, else its size and weighting."""
        return {
            "law_version": keys.LAW_VERSION,
            "sampler": repr(self.sampler),
            "num_nodes": self.graph.num_nodes,
            "num_edges": self.graph.num_edges,
            "weighting": self.graph.weighting,
            "graph_digest": self.graph.digest,
            "num_seeds": len(self.seeds),
            "seeds_sha256": self.seeds_sha256,
            "batch_size": self.batch_size,
            "random_seed": self.random_seed,
            **self._order.identity(),
            "drop_last": self.drop_last,
            **self._cut.identity(),
        }


def _order_of(shuffle: bool | Order, num_seeds: int) -> Order:
    return shuffle if isinstance(shuffle, Order) else Order(num_seeds, shuffle=require_bool("shuffle", shuffle))


def _after(epoch: int) -> int:
    return min(epoch + 1, 2**64 - 1)


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


def _checked_place(state: Any, mine: dict[str, Any], num_batches: int) -> tuple[int, int]:
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
        hint = _OF_LOCAL_BATCHES if {"ranks", "num_parts", "parts_sha256"} & set(other) else ""
        raise InputError(argument="state", given=str(theirs), expected=str(wanted), hint=hint)
    next_batch = require_int("next_batch", state["next_batch"], minimum=0, maximum=num_batches)
    return require_word("epoch", state["epoch"]), next_batch


def _differs(key: str, theirs: Any, mine: Any) -> bool:
    if key == MAYBE_UNKNOWN and (theirs is None or mine is None):
        return False
    return type(theirs) is not type(mine) or bool(theirs != mine)
