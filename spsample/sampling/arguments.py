"""The graph, seeds, sampler and keys of a sampling call, checked the same way wherever they are handed in."""

from __future__ import annotations

import reprlib
from typing import Any, Protocol

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_int
from spsample.errors import DTypeError, InputError
from spsample.sampling.sampler import Sampler
from spsample.sparse import GraphOperand
from spsample.store.validation import validate_seeds


class SupportsSampling(Protocol):
    """A graph that bulk_sample takes: `Graph`, and later the distributed ones."""

    @property
    def num_nodes(self) -> int:
        """Number of vertices."""
        ...

    def operand(self, backend: str | None = None) -> GraphOperand:
        """A as the sampling algebra sees it."""
        ...


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
    if isinstance(graph, type) or not hasattr(graph, "num_nodes") or not callable(getattr(graph, "operand", None)):
        raise DTypeError(
            argument="graph",
            given=f"an object of type {type(graph).__name__}",
            expected="an spsample.Graph",
            hint="Make one by Graph.from_edge_index, Graph.from_scipy or Graph(indptr, indices).",
        )
    ids = validate_seeds(seeds, require_int("graph.num_nodes", graph.num_nodes, minimum=0))
    return ids, require_int("batch_size", batch_size, minimum=1)


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
    if not {"sizes", "replace", "include_targets"} <= vars(sampler).keys():
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
