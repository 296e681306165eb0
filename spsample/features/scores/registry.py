"""`score`: one number for each vertex, by the method of that name; and scores, given or by name, to choose rows by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import default_float_environment
from spsample.comm import LocalCommunicator, collective
from spsample.comm.objects import comm_of, require_same
from spsample.common.checks import check_length, require_choice, require_type
from spsample.errors import DTypeError, InputError
from spsample.features.scores.column_sums import out_degree, random_order, reverse_pagerank
from spsample.features.scores.inclusion import inclusion, posterior, states_proportion
from spsample.features.scores.order import highest
from spsample.features.scores.visits import presc, replay
from spsample.sampling import Sampler
from spsample.sampling.arguments import check_arguments
from spsample.store.base_graph import BaseGraph, require_graph
from spsample.store.validation import as_weights, check_weights

if TYPE_CHECKING:
    from spsample.comm import Communicator
    from spsample.features.source import FeatureSource


Method = Callable[..., Any]
"""Takes graph, seeds (int64), sampler and batch size, and options by name; returns a number for each vertex."""

_METHODS: dict[str, Method] = {
    "posterior": posterior,
    "inclusion": inclusion,
    "presc": presc,
    "replay": replay,
    "out-degree": out_degree,
    "reverse-pagerank": reverse_pagerank,
    "random": random_order,
}


def score_names() -> tuple[str, ...]:
    """Return the names that `score` knows, those of `register_score` among them.

    Examples
    --------
    >>> "out-degree" in score_names()
    True
    """
    return tuple(_METHODS)


def usual_score(graph: BaseGraph, sampler: Sampler) -> str:
    """Return "posterior", or "presc" for a sampler that does not state what it draws in proportion to.

    Examples
    --------
    >>> import spsample as sp
    >>> usual_score(sp.Graph([0, 0], []), sp.GraphSAGE([2]))
    'posterior'
    """
    return "posterior" if states_proportion(graph, sampler) else "presc"


def register_score(name: str, method: Method) -> None:
    """Give a score of your own a name.

    Parameters
    ----------
    name : str
        Not one that is taken.
    method : callable
        ``method(graph, seeds, sampler, batch_size, **options)``, which returns (n,) finite numbers of at least 0: the
        larger, the sooner a vertex is cached. The arguments are checked before it is called. On several ranks it is
        called on all of them, and must give the same numbers on each.

    Raises
    ------
    InputError, DTypeError
        If the name is taken or no text, or `method` cannot be called.

    Examples
    --------
    >>> import spsample as sp
    >>> register_score("in-degree", lambda graph, seeds, sampler, batch_size: graph.in_degrees())
    >>> score("in-degree", sp.Graph([0, 2, 2], [0, 1]), [0], sp.GraphSAGE([2]), batch_size=1)
    array([2., 0.])
    """
    require_type("name", name, str, "a name")
    if name in _METHODS:
        raise InputError(argument="name", given=repr(name), expected="a name that is not taken")
    if not callable(method):
        raise DTypeError(argument="method", given=f"a {type(method).__name__}", expected="a function")
    _METHODS[name] = method


@default_float_environment()
def score(
    name: str, graph: BaseGraph, seeds: Any, sampler: Sampler, batch_size: int, **options: Any
) -> NDArray[np.float64]:
    """Score vertices: the larger, the more batches are expected to need the features of a vertex.

    Parameters
    ----------
    name : str
        One of `score_names`.
    graph : Graph, or another that `bulk_sample` takes
        On several ranks the call is collective, and gives the same numbers on all of them.
    seeds : array-like of int
        The seeds of an epoch.
    sampler : Sampler
    batch_size : int
        Seeds of a batch.
    options
        What the method of that name takes besides.

    Returns
    -------
    float64 array (n,)

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used, or the method returns anything but a finite number of at least 0 for each vertex.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> score("out-degree", graph, [0, 1], sp.GraphSAGE([2]), batch_size=1)
    array([1., 1., 2.])
    """
    require_graph(graph)
    with collective(graph.comm, call="the checks of score"):
        require_choice("name", name, score_names())
        ids, batch_size = check_arguments(graph, seeds, sampler, batch_size)
        method = _METHODS[name]
        _require_options(name, method, options)
    plain = {option: value for option, value in options.items() if isinstance(value, (int, float, str, range))}
    require_same(graph.comm, name=name, seeds=ids, sampler=sampler, batch_size=batch_size, options=plain)
    scores = require_scores(f"score {name!r}", method(graph, ids, sampler, batch_size, **options), graph.num_nodes)
    return scores.astype(np.float64, copy=False)


def require_scores(argument: str, values: Any, num_nodes: int) -> NDArray[Any]:
    """Return scores as float32 or float64, once they are one finite number of at least 0 for each vertex.

    Raises
    ------
    InputError, DTypeError

    Examples
    --------
    >>> require_scores("scores", [1, 2], 2)
    array([1., 2.])
    >>> require_scores("scores", [1.0, -2.0], 2)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: scores: got -2.0 at position 1; expected finite weights of at least 0
    """
    scores = as_weights(argument, values)
    check_length(argument, scores, num_nodes, "vertex")
    check_weights(argument, scores)
    return scores


def _require_options(name: str, method: Method, options: dict[str, Any]) -> None:
    """Refuse options that the method does not take, and the want of those that it needs."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except ValueError:  # a compiled function without a signature
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    unknown = [option for option in options if option not in known]
    if unknown:
        expected = f"an option of the score {name!r}: {', '.join(known) or 'it has none'}"
        raise InputError(argument=unknown[0], given="a value", expected=expected)
    missing = [option for option in known if known[option] is inspect.Parameter.empty and option not in options]
    if missing:
        raise InputError(argument=missing[0], given="nothing", expected=f"a value: the score {name!r} needs it")


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
        self._value = require_scores(argument, value, num_rows) if is_plain else value
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
        return require_scores(self.argument, self._value(), self.num_rows) if callable(self._value) else self._value

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
