"""Scores of vertices, by which rows are chosen: given ones, or those of a name for the batches to be sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import LocalCommunicator, collective
from spsample.comm.objects import comm_of, require_same
from spsample.common.arrays import as_array
from spsample.common.checks import check_length, require_choice
from spsample.errors import InputError
from spsample.features.score_order import highest
from spsample.features.scores.registry import score, score_names
from spsample.store.base_graph import require_graph
from spsample.store.validation import as_weights, check_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features.source import FeatureSource

WORKLOAD = ("graph", "seeds", "sampler", "batch_size")
"""The arguments of `score` that say which batches are sampled."""


class VertexScores:
    """The need for each vertex: scores, a function that returns them, the name of some, or None.

    Parameters
    ----------
    argument : str
        Its name, for messages.
    value : array (vertices,), function, str or None
        An array is checked at once, what a function returns when it is called.
    workload : dict
        Graph, seeds, sampler and batch_size where they are known, and options of a score that is a name.
    num_rows : int
        Number of vertices.
    use : str, optional
        A use of the workload beside a name, in words.
    is_optional : bool
        Whether None will do.

    Raises
    ------
    InputError, DTypeError
        If there is no such score, or what it needs is missing; or scores are not one finite number of at least 0 for
        each row, or come with a workload that has no use.

    Examples
    --------
    >>> VertexScores("score", [3, 1], {}, 2).scores()
    array([3., 1.])
    """

    def __init__(
        self,
        argument: str,
        value: Any,
        workload: Mapping[str, Any],
        num_rows: int,
        *,
        use: str = "",
        is_optional: bool = False,
    ) -> None:
        self.argument, self.workload, self.num_rows = argument, dict(workload), num_rows
        self.name = value if isinstance(value, str) else None
        if self.name is not None:
            require_choice("score", self.name, score_names())
            use = f"the score {self.name!r} is computed from them"
        is_plain = self.name is None and not callable(value) and not (is_optional and value is None)
        self._value = self._checked(value) if is_plain else value
        for name in workload if self.name is None else ():
            if not use or name not in WORKLOAD:
                expected = f"it with one, such as {argument}='posterior'"
                raise InputError(argument=name, given="it without the name of a score", expected=expected)
        if use:
            _require_workload(self.workload, use, num_rows)

    @property
    def batches(self) -> dict[str, Any]:
        """Graph, seeds, sampler and batch_size."""
        return {name: self.workload[name] for name in WORKLOAD}

    def scores(self) -> NDArray[Any]:
        """(vertices,) the scores; those of a name are computed now, collective on the ranks of the graph."""
        if self.name is not None:
            return score(self.name, **self.workload)
        scores: NDArray[Any] = self._checked(self._value()) if callable(self._value) else self._value
        return scores

    def require_same_kind(self, comm: Communicator, **options: Any) -> None:
        """Refuse ranks of which some gave a name or one of these options, and others another or none; collective."""
        if comm.size > 1:
            require_same(comm, **{self.argument: self.name or "an array"}, **options)

    def choose(self, count: int, source: FeatureSource) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
        """The `count` vertices of the largest scores, ascending, of equal ones the first; and the scores.

        None where all vertices are chosen, or none. Scores are computed only where a rank needs them. Collective on the
        ranks of the source, and on those of the graph that a score is computed from.
        """
        is_part = 0 < count < self.num_rows
        graph = comm_of(self.workload.get("graph"))
        is_needed = is_part
        if graph.size > 1:
            is_needed = bool(graph.all_reduce(np.array([is_part], np.int64), "max", phase="scores")[0])
        own = LocalCommunicator() if graph.size > 1 else source.comm
        with collective(own, call=f"the choice of rows by {self.argument}"):
            scores = self.scores() if is_needed else None
            if scores is None or not is_part:
                return np.arange(count), None
            return highest(scores, count), scores

    def _checked(self, value: Any) -> NDArray[Any]:
        scores = as_weights(self.argument, as_array(self.argument, value))
        check_length(self.argument, scores, self.num_rows, "vertex")
        check_weights(self.argument, scores)
        return scores


def ranks_of(source: Any, workload: Mapping[str, Any]) -> Communicator:
    """The ranks that make a cache together: those of the source or of the graph that its scores are computed from."""
    graph = comm_of(workload.get("graph"))
    return graph if graph.size > 1 else comm_of(source)


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
