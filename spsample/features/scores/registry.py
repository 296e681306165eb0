"""`score`: one number for each vertex, by the method of that name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import default_float_environment
from spsample.comm import collective
from spsample.comm.objects import require_same
from spsample.common.arrays import as_array
from spsample.common.checks import check_length, first_bad, require_choice, require_type
from spsample.errors import DTypeError, InputError
from spsample.features.scores.column_sums import out_degree, random_order, reverse_pagerank
from spsample.features.scores.inclusion import inclusion, posterior, states_proportion
from spsample.features.scores.visits import presc, replay
from spsample.sampling import Sampler
from spsample.sampling.arguments import check_arguments
from spsample.store.base_graph import BaseGraph, require_graph

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
    return require_scores(f"score {name!r}", method(graph, ids, sampler, batch_size, **options), graph.num_nodes)


def require_scores(argument: str, values: Any, num_nodes: int) -> NDArray[np.float64]:
    """Return scores as float64, once they are known to be one finite number of at least 0 for each vertex.

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
    spsample.errors.InputError: scores: got -2.0 at position 1; expected finite numbers of at least 0
    """
    array = as_array(argument, values)
    if array.dtype.kind not in "iuf":
        raise DTypeError(argument=argument, given=f"dtype {array.dtype}", expected="real numbers")
    if array.ndim != 1:
        raise InputError(argument=argument, given=f"shape {array.shape}", expected=f"shape ({num_nodes},)")
    check_length(argument, array, num_nodes, "vertex")
    scores = array.astype(np.float64, copy=False)
    bad = ~(np.isfinite(scores) & (scores >= 0))
    if bad.any():
        raise InputError(argument=argument, given=first_bad(bad, scores), expected="finite numbers of at least 0")
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
