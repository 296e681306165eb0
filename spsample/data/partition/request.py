"""`PartitionRequest`: what a method makes parts from, its arguments checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_int
from spsample.errors import InputError
from spsample.store import Graph
from spsample.store.base_graph import require_local
from spsample.store.validation import validate_seeds

__all__ = ["PartitionRequest", "as_train_vertices", "check_parts_of_train", "require_hops", "require_num_parts"]

_MOST_PARTS = 2**20
"""Methods take memory for each part, whether it gets a vertex or not."""


@dataclass(frozen=True, eq=False)
class PartitionRequest:
    """A graph, how many parts it is wanted in, and what training needs of them.

    Attributes
    ----------
    graph : Graph
    num_parts : int
        At least 1.
    seeds : int64 array or None
        Train vertices, ascending and distinct, at least one a part.
    hops : int or None
        How far sampling goes from a train vertex: layers of the model.
    random_seed : int
    """

    graph: Graph
    num_parts: int
    seeds: NDArray[np.int64] | None = None
    hops: int | None = None
    random_seed: int = 0

    @classmethod
    def of(cls, graph: Any, num_parts: Any, seeds: Any, hops: Any, random_seed: Any) -> PartitionRequest:
        """Check what a user gives.

        Raises
        ------
        InputError, DTypeError
            Naming the argument.

        Examples
        --------
        >>> PartitionRequest.of(Graph([0, 1, 2], [1, 0]), 1, [1, 0, 1], None, 0).seeds
        array([0, 1])
        """
        require_local(graph)
        parts = require_num_parts(num_parts)
        train = None if seeds is None else as_train_vertices(seeds, graph.num_nodes)
        if train is not None:
            check_parts_of_train(parts, train)
        far = None if hops is None else require_hops(hops)
        return cls(graph, parts, train, far, require_int("random_seed", random_seed, minimum=0, maximum=2**31 - 1))

    def train_vertices(self, method: str) -> NDArray[np.int64]:
        """Return the train vertices, which this method cannot do without."""
        if self.seeds is None:
            raise InputError(argument="seeds", given="nothing", expected=f"train vertices for method={method!r}")
        return self.seeds

    def layers(self, method: str) -> int:
        """Return the hops, which this method cannot do without."""
        if self.hops is None:
            expected = f"the number of layers that will be sampled, for method={method!r}"
            raise InputError(argument="hops", given="nothing", expected=expected)
        return self.hops


def require_num_parts(num_parts: Any) -> int:
    """Return a number of parts, from 1 to 2^20."""
    return require_int("num_parts", num_parts, minimum=1, maximum=_MOST_PARTS)


def require_hops(hops: Any) -> int:
    """Return a number of hops, at least 1."""
    return require_int("hops", hops, minimum=1, maximum=2**31 - 1)


def as_train_vertices(seeds: Any, num_nodes: int) -> NDArray[np.int64]:
    """Return train vertices ascending, each once; refuse what is none.

    Examples
    --------
    >>> as_train_vertices([3, 1, 3], 4)
    array([1, 3])
    """
    train = np.unique(validate_seeds(seeds, num_nodes))
    if len(train) == 0:
        raise InputError(argument="seeds", given="no vertex", expected="at least one train vertex")
    return train


def check_parts_of_train(num_parts: int, train: NDArray[np.int64]) -> None:
    """Refuse more parts than train vertices.

    Examples
    --------
    >>> check_parts_of_train(3, np.array([0, 7]))
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: num_parts: got 3; expected at most 2, the number of train vertices
    """
    if num_parts > len(train):
        expected = f"at most {len(train)}, the number of train vertices"
        raise InputError(argument="num_parts", given=str(num_parts), expected=expected)
