"""How much each vertex is wanted: scores that are given, or those of a name for the batches that will be sampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm.objects import comm_of, require_same
from spsample.common.arrays import as_array
from spsample.common.checks import check_length, require_choice
from spsample.errors import InputError
from spsample.features.scores.registry import score, score_names
from spsample.store.base_graph import require_graph
from spsample.store.validation import as_weights, check_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator

__all__ = ["WORKLOAD", "Wanted", "ranks_of"]

WORKLOAD = ("graph", "seeds", "sampler", "batch_size")
"""What says which batches are sampled: arguments of `score`."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """How much each vertex of a graph is wanted: scores, or the name of some.

    Attributes
    ----------
    score : str or array (vertices,)
    workload : dict
        With a name: graph, seeds, sampler, batch_size, and options of that score; else empty.

    Examples
    --------
    >>> Wanted.of([3, 1], {}, 2).score
    array([3., 1.])
    """

    score: str | NDArray[Any]
    workload: Mapping[str, Any]

    @classmethod
    def of(cls, given: Any, workload: Mapping[str, Any], num_rows: int) -> Wanted:
        """Check what was given for a source of `num_rows` rows.

        Raises
        ------
        InputError, DTypeError
            If there is no such score, or what it needs is missing; or scores are not one finite number of at least 0
            for each row, or come with a workload.
        """
        if not isinstance(given, str):
            if workload:
                name = next(iter(workload))
                raise InputError(argument=name, given="it with an array of scores", expected="it with a score's name")
            return cls(_as_scores(given, num_rows), {})
        require_choice("score", given, score_names())
        _require_workload(given, workload)
        nodes = workload["graph"].num_nodes
        if nodes != num_rows:
            expected = f"one of the {num_rows} vertices that have features"
            raise InputError(argument="graph", given=f"one of {nodes} vertices", expected=expected)
        return cls(given, dict(workload))

    def scores(self) -> NDArray[Any]:
        """(vertices,) the scores; those of a name are computed now, collective on the ranks of the graph."""
        return score(self.score, **self.workload) if isinstance(self.score, str) else self.score

    def require_same_kind(self, comm: Communicator) -> None:
        """Refuse ranks of which some gave scores and others a name, or another name; collective."""
        if comm.size > 1:
            require_same(comm, score=self.score if isinstance(self.score, str) else "an array")

    def is_needed(self, here: bool) -> bool:
        """Whether any rank of the graph needs scores; collective on these."""
        comm = comm_of(self.workload.get("graph"))
        return here if comm.size == 1 else bool(comm.all_reduce(np.array([here], np.int64), "max", phase="scores")[0])


def ranks_of(source: Any, workload: Mapping[str, Any]) -> Communicator:
    """The ranks that make a cache together: those of the source or of the graph that its scores are computed from."""
    graph = comm_of(workload.get("graph"))
    return graph if graph.size > 1 else comm_of(source)


def _as_scores(given: Any, num_rows: int) -> NDArray[Any]:
    scores = as_weights("score", as_array("score", given))
    check_length("score", scores, num_rows, "vertex")
    check_weights("score", scores)
    return scores


def _require_workload(name: str, workload: Mapping[str, Any]) -> None:
    """Refuse a score's name without what it is computed from."""
    missing = [argument for argument in WORKLOAD if workload.get(argument) is None]
    if missing:
        raise InputError(
            argument=missing[0],
            given="nothing",
            expected=f"graph, seeds, sampler and batch_size: the score {name!r} is computed from them",
            hint="Or give one score per vertex.",
        )
    require_graph(workload["graph"])
