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
from spsample.features.cache_choice import is_auto
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
        Graph, seeds, sampler and batch_size where they are known, and options of a score that is a name.

    Examples
    --------
    >>> Wanted.of([3, 1], {}, 2).score
    array([3., 1.])
    """

    score: str | NDArray[Any]
    workload: Mapping[str, Any]

    @classmethod
    def of(cls, given: Any, workload: Mapping[str, Any], num_rows: int, *, budget: Any = 0) -> Wanted:
        """Check what was given for a source of `num_rows` rows; with a budget "auto" batches must be known.

        Raises
        ------
        InputError, DTypeError
            If there is no such score, or what it needs is missing; or scores are not one finite number of at least 0
            for each row, or come with a workload that has no use.
        """
        use = "the budget 'auto' is what a loader of its batches leaves" if is_auto(budget) else ""
        if isinstance(given, str):
            require_choice("score", given, score_names())
            use = f"the score {given!r} is computed from them"
        scores = given if isinstance(given, str) else _as_scores(given, num_rows)
        useless = [] if isinstance(given, str) else [name for name in workload if not use or name not in WORKLOAD]
        if useless:
            raise InputError(argument=useless[0], given="it with an array of scores", expected="it with a score's name")
        if use:
            _require_workload(workload, use, num_rows)
        return cls(scores, dict(workload))

    @property
    def batches(self) -> dict[str, Any]:
        """Graph, seeds, sampler and batch_size."""
        return {name: self.workload[name] for name in WORKLOAD}

    def scores(self) -> NDArray[Any]:
        """(vertices,) the scores; those of a name are computed now, collective on the ranks of the graph."""
        return score(self.score, **self.workload) if isinstance(self.score, str) else self.score

    def require_same_kind(self, comm: Communicator, budget: Any) -> None:
        """Refuse ranks of which some gave a name, or the budget "auto", and others another one or none; collective."""
        if comm.size > 1:
            kind = self.score if isinstance(self.score, str) else "an array"
            require_same(comm, score=kind, budget="auto" if is_auto(budget) else "bytes")

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


def _require_workload(workload: Mapping[str, Any], use: str, num_rows: int) -> None:
    """Refuse the want of something that says which batches are sampled, and a graph of other vertices."""
    missing = [argument for argument in WORKLOAD if workload.get(argument) is None]
    if missing:
        expected = f"graph, seeds, sampler and batch_size: {use}"
        hint = "Give them, or one score per vertex and a budget in bytes."
        raise InputError(argument=missing[0], given="nothing", expected=expected, hint=hint)
    require_graph(workload["graph"])
    nodes = workload["graph"].num_nodes
    if nodes != num_rows:
        expected = f"one of the {num_rows} vertices that have features"
        raise InputError(argument="graph", given=f"one of {nodes} vertices", expected=expected)
