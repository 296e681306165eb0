"""The order of one of torch's samplers as that of a loader's epochs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spsample.common.checks import check_range, require_int, require_type, short
from spsample.errors import DTypeError, InputError
from spsample.loading.order import Order


class SamplerOrder(Order):
    """Positions that a sampler gives, drawn once for each epoch, at its start.

    Where the sampler has a rank's share of the seeds, all ranks may load the state of one. It has no order then, but
    has the number drawn before: each rank draws as many from its own sampler, so that these stay in step.

    Parameters
    ----------
    sampler
        As of torch's ``DataLoader``: iterable over positions, with a length.
    num_seeds
        Positions are in [0, num_seeds).
    argument
        What errors call it.

    Attributes
    ----------
    num_positions : int
        Of every epoch.
    rank : int
        That of a ``DistributedSampler`` or its like among those that share the seeds; else 0.

    Examples
    --------
    >>> order = SamplerOrder([2, 0, 2], num_seeds=3)
    >>> order.num_positions, order.positions(0, 0)
    (3, array([2, 0, 2]))
    """

    def __init__(self, sampler: Any, num_seeds: int, argument: str = "sampler") -> None:
        expected = "a sampler as of torch's DataLoader: iterable over positions, with a length"
        if not hasattr(sampler, "__iter__") or not hasattr(sampler, "__len__"):  # to ask for it may draw
            lacks = "a length" if hasattr(sampler, "__iter__") else "__iter__"
            raise DTypeError(
                argument=argument,
                given=f"an object of type {type(sampler).__name__} without {lacks}",
                expected=expected,
            )
        super().__init__(len(sampler), shuffle=True)
        rank = getattr(sampler, "rank", None)
        self.rank = rank if isinstance(rank, int) else 0
        self._has_share = isinstance(rank, int) and getattr(sampler, "num_replicas", 2) > 1
        self._sampler, self._num_seeds, self._argument = sampler, num_seeds, argument
        self._epoch: int | None = None  # that of the order drawn last
        self._drawn = np.empty(0, np.int64)
        self._draws = 0

    def positions(self, random_seed: int, epoch: int) -> NDArray[np.int64]:
        """Positions that the sampler gave when it was first asked in this epoch; its own random numbers decide.

        Raises
        ------
        DTypeError, InputError
            If it gives anything but as many positions as its length says.
        """
        if self._epoch != epoch:
            self._drawn, self._epoch = self._draw(), epoch
        return self._drawn

    def identity(self) -> dict[str, Any]:
        """Number of positions of an epoch."""
        return {"shuffle": "sampler", "num_positions": self.num_positions}

    def state(self, epoch: int) -> dict[str, Any]:
        """The epoch's positions, a tensor (torch loads no arrays of others); of a share how many were before."""
        is_drawn = self._epoch == epoch
        if self._has_share:
            return {"draws": self._draws - is_drawn}
        return {"order": torch.tensor(self._drawn) if is_drawn else None}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on with what was drawn; where nothing was, the sampler is asked."""
        if self._has_share:
            before = require_int("draws", state.get("draws", 0), minimum=0)
            if (self._epoch, self._draws) != (state["epoch"], before + 1):
                self._epoch = None
            for _ in range(self._draws, before):
                self._draw()
            return
        self._epoch = None
        if (order := state.get("order")) is not None:
            require_type("state", order, torch.Tensor, "an order that state_dict() returned")
            self._drawn, self._epoch = self._checked(order.tolist()), state["epoch"]

    def end(self, epoch: int) -> None:
        """Draw what the sampler has given for an epoch that is over, so that its next draw is of the next one."""
        self.positions(0, epoch)

    def _draw(self) -> NDArray[np.int64]:
        self._draws += 1
        return self._checked(islice(self._sampler, self.num_positions + 1))

    def _checked(self, drawn: Iterable[Any]) -> NDArray[np.int64]:
        positions = np.fromiter(map(self._position, drawn), np.int64)
        if len(positions) != self.num_positions:
            more = f"{len(positions)}" if len(positions) < self.num_positions else "more"
            expected = f"{self.num_positions}, the length that the sampler had when the loader was made"
            raise InputError(argument=self._argument, given=f"{more} positions in an epoch", expected=expected)
        check_range(self._argument, positions, self._num_seeds, "positions among input_nodes")
        return positions

    def _position(self, position: Any) -> int:
        try:
            return index(position)
        except TypeError:
            expected = "positions among input_nodes, one at a time"
            raise DTypeError(argument=self._argument, given=short(position), expected=expected) from None


class _Flat:
    """The positions of a batch sampler whose batches are all of one size, but for the last."""

    def __init__(self, batch_sampler: Any) -> None:
        missing = [name for name in ("sampler", "batch_size", "drop_last") if not hasattr(batch_sampler, name)]
        if missing:
            raise InputError(
                argument="batch_sampler",
                given=f"a {type(batch_sampler).__name__} without {', '.join(missing)}",
                expected="torch's BatchSampler: batches of one size",
                hint="Call loader(positions) for each batch of your own.",
            )
        self.batches, self.batch_size = batch_sampler, batch_sampler.batch_size
        self.rank = getattr(batch_sampler.sampler, "rank", None)
        self.num_replicas = getattr(batch_sampler.sampler, "num_replicas", 2)

    def __len__(self) -> int:
        positions = len(self.batches.sampler)
        return positions - positions % self.batch_size if self.batches.drop_last else positions

    def __iter__(self) -> Iterator[Any]:
        batches = [list(batch) for batch in self.batches]
        wrong = [len(batch) for batch in batches[:-1] if len(batch) != self.batch_size]
        if wrong:
            expected = f"{self.batch_size} in each but the last"
            raise InputError(argument="batch_sampler", given=f"a batch of {wrong[0]} positions", expected=expected)
        return chain.from_iterable(batches)


def order_of(options: dict[str, Any], num_seeds: int) -> tuple[bool | SamplerOrder, int]:
    """The order of epochs, and their batch size, by the options of torch's ``DataLoader``.

    Raises
    ------
    InputError, DTypeError
        If a sampler is none.
    """
    sampler, batch_sampler = options.get("sampler"), options.get("batch_sampler")
    if batch_sampler is not None:
        flat = _Flat(batch_sampler)
        return SamplerOrder(flat, num_seeds, "batch_sampler"), flat.batch_size
    order = bool(options.get("shuffle")) if sampler is None else SamplerOrder(sampler, num_seeds)
    return order, options.get("batch_size", 1)
