"""The graph, seeds, sampler and keys of a sampling call, checked the same way wherever they are handed in."""

from __future__ import annotations

import reprlib
from typing import Any

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_int
from spsample.errors import DTypeError, InputError
from spsample.sampling.sampler import Sampler
from spsample.store.base_graph import require_graph
from spsample.store.validation import validate_seeds

_MADE_BY_INIT = frozenset(("sizes", "replace", "include_targets"))


def check_arguments(graph: Any, seeds: Any, sampler: Any, batch_size: Any) -> tuple[Int64Array, int]:
    """The seeds as int64 and the batch size, once graph, seeds, sampler and batch size are known to fit.

    Raises
    ------
    DTypeError
        If `graph` is no graph, `sampler` no sampler, or another argument has the wrong type.
    InputError
        If a seed or the batch size is out of range.
    """
    require_sampler(sampler)
    require_graph(graph)
    return validate_seeds(seeds, graph.num_nodes), require_int("batch_size", batch_size, minimum=1)


def require_sampler(sampler: Any) -> None:
    """Refuse what is no sampler.

    Examples
    --------
    >>> require_sampler(3)
    Traceback (most recent call last):
    ...
    spsample.errors.DTypeError: sampler: got 3; expected a Sampler such as spsample.GraphSAGE([15, 10])
    """
    if not isinstance(sampler, Sampler):
        raise DTypeError(
            argument="sampler",
            given=reprlib.repr(sampler),
            expected="a Sampler such as spsample.GraphSAGE([15, 10])",
        )
    if not vars(sampler).keys() >= _MADE_BY_INIT:
        name = type(sampler).__name__
        expected = f"{name}.__init__ to call super().__init__(sizes)"
        raise InputError(argument="sampler", given=f"a {name} without sizes", expected=expected)


def require_word(argument: str, value: Any) -> int:
    """A random seed or an epoch: an integer in [0, 2^64).

    Examples
    --------
    >>> require_word("epoch", 3)
    3
    """
    return require_int(argument, value, minimum=0, maximum=2**64 - 1)
