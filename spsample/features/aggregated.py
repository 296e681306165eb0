"""The first aggregation of a model, made once for all vertices: A x instead of sampled sums of every batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.common.checks import require_choice, require_int, require_type
from spsample.common.units import require_bytes
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.features.memory import FeatureStore
from spsample.features.source import FeatureSource
from spsample.store import Graph

Aggregation = Literal["mean", "gcn"]
_AGGREGATIONS = ("mean", "gcn")


def aggregate_features(
    graph: Graph,
    features: Any,
    aggregation: Aggregation = "mean",
    *,
    out: NDArray[np.float32] | None = None,
    memory_budget: int | str = "1GiB",
) -> NDArray[np.float32]:
    """Aggregate the features of all vertices once, over all of their in-neighbours.

    A model whose first aggregation has no parameter gives the same output on these as on the features with whole
    neighbourhoods, and samples one layer less: PaGraph's preprocessing (PP).

    Parameters
    ----------
    graph : Graph
        In memory, or a memory map.
    features : FeatureSource or array-like
        One row per vertex, d numbers each.
    aggregation : {"mean", "gcn"}
        "mean": rows of 2 d numbers, (x_v, (A x)_v) with A the (weighted) mean over the in-neighbours, for the model
        ``"precomputed-sage"``. "gcn": rows of d numbers of ``D^(-1/2) (A + I) D^(-1/2) x``, D the row sums of A + I,
        for ``"precomputed-gcn"``.
    out : float32 array, optional
        Where rows go, such as a memory map. None: a new array.
    memory_budget : int or str
        Bytes for what is worked on at a time, about.

    Returns
    -------
    float32 array (n, 2 d) or (n, d)

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.
    CapacityError
        If a row of the graph adds up to more than float32 holds.

    References
    ----------
    Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020, section 5.2.

    Examples
    --------
    >>> graph = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
    >>> aggregate_features(graph, np.array([[1.0], [2.0], [4.0]])).tolist()
    [[1.0, 3.0], [2.0, 0.0], [4.0, 0.0]]
    """
    require_type("graph", graph, Graph, "a Graph")
    require_choice("aggregation", aggregation, _AGGREGATIONS)
    source = features if isinstance(features, FeatureSource) else FeatureStore(features)
    if source.num_rows != graph.num_nodes:
        expected = f"one row per vertex: {graph.num_nodes:,}"
        raise InputError(argument="features", given=f"{source.num_rows:,} rows", expected=expected)
    shape = (graph.num_nodes, aggregated_dim(source.dim, aggregation))
    out = np.zeros(shape, np.float32) if out is None else out
    require_type("out", out, np.ndarray, "a float32 array")
    if out.dtype != np.float32:
        raise DTypeError(argument="out", given=f"dtype {out.dtype}", expected="float32")
    if out.shape != shape:
        raise InputError(argument="out", given=f"shape {out.shape}", expected=f"shape {shape}")
    if not out.flags.writeable:
        raise InputError(argument="out", given="an array that cannot be written to", expected="one that can")
    with np.errstate(over="ignore"):
        degrees = graph.row_sums()
    if not np.isfinite(degrees).all():
        given = f"a row {int(np.argmin(np.isfinite(degrees)))} whose weights add up to more than float32 holds"
        raise CapacityError(argument="graph", given=given, expected="smaller weights")
    for first, last in _parts(graph, source.dim, require_bytes("memory_budget", memory_budget)):
        rows = _AggregatedRows(graph, source, degrees, first, last)
        if aggregation == "mean":
            totals = rows.degrees[rows.own]
            inverse = np.divide(1, totals, out=np.zeros_like(totals), where=totals > 0)
            out[first:last, : source.dim] = rows.x[rows.own]
            out[first:last, source.dim :] = (rows.A @ rows.x) * inverse[:, None]
        else:
            roots = np.sqrt(rows.degrees + 1)[:, None]
            scaled = rows.x / roots
            out[first:last] = (rows.A @ scaled + scaled[rows.own]) / roots[rows.own]
    return out


def aggregated_dim(dim: int, aggregation: Aggregation) -> int:
    """Numbers of a row that is made of a row of `dim` numbers.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.

    Examples
    --------
    >>> aggregated_dim(8, "mean"), aggregated_dim(8, "gcn")
    (16, 8)
    """
    require_choice("aggregation", aggregation, _AGGREGATIONS)
    dim = require_int("dim", dim, minimum=0)
    return 2 * dim if aggregation == "mean" else dim


class _AggregatedRows:
    """Rows first .. last - 1 of A, and the features that their sums need: each row is read once for the part."""

    def __init__(
        self, graph: Graph, source: FeatureSource, degrees: NDArray[np.float32], first: int, last: int
    ) -> None:
        begin, end = int(graph.indptr[first]), int(graph.indptr[last])
        self.vertices = np.arange(first, last)
        self.needed, local = np.unique(np.concatenate([self.vertices, graph.indices[begin:end]]), return_inverse=True)
        self.own, columns = local[: last - first], local[last - first :]
        self.x = source.gather(self.needed)
        self.degrees = degrees[self.needed].astype(np.float32)
        pointers = graph.indptr[first : last + 1] - begin
        self.A = sparse.csr_array(
            (self._values(graph, begin, end, pointers), columns, pointers), shape=(last - first, len(self.needed))
        )

    @staticmethod
    def _values(graph: Graph, begin: int, end: int, pointers: NDArray[np.int64]) -> NDArray[np.float32]:
        if graph.data is not None:
            return np.asarray(graph.data[begin:end], np.float32)
        if graph.weighting == "row":
            lengths = np.diff(pointers)
            return np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
        return np.ones(end - begin, np.float32)


def _parts(graph: Graph, dim: int, memory_budget: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, of as many entries as fit; of one row at least."""
    entry_bytes, row_bytes = 40 + 8 * dim, 48 + 16 * dim
    cost = graph.indptr * entry_bytes + np.arange(graph.num_nodes + 1) * row_bytes
    first = 0
    while first < graph.num_nodes:
        last = int(np.searchsorted(cost, cost[first] + memory_budget, side="right")) - 1
        last = min(max(last, first + 1), graph.num_nodes)
        yield first, last
        first = last
