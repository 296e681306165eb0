"""Values and draw numbers that run out of range: `CapacityError`, on every backend, and never inf or nan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import spsample as sp
from spsample.backends import Draw, available_backends, get_backend
from spsample.backends.reference.random import Stream
from spsample.errors import CapacityError
from spsample.sparse import stack

BACKENDS = available_backends()


def star(weights: list[float], dtype: type[np.floating]) -> sp.Graph:
    """Vertex 0 with an edge from every other vertex, and an edge of weight 1 to vertex 1."""
    sources = [*range(1, len(weights) + 1), 0]
    targets = [*([0] * len(weights)), 1]
    edge_weight = np.array([*weights, 1.0], dtype)
    return sp.Graph.from_edge_index([sources, targets], num_nodes=len(weights) + 1, edge_weight=edge_weight)


def values(graph: sp.Graph, sampler: sp.Sampler, backend: str) -> Any:
    return sp.bulk_sample(graph, [1, 0], sampler, batch_size=2, backend=backend).layers[0].data


@pytest.mark.parametrize(
    ("dtype", "weight", "sampler"),
    [
        (np.float32, 3e38, sp.LADIES([2])),  # rounding to float32
        (np.float32, 3e38, sp.LADIES([2], replace=True)),
        (np.float32, 3e38, sp.FastGCN([2])),
        (np.float64, 1e308, sp.LADIES([2])),  # the product
        (np.float64, 1e308, sp.LADIES([2], values="reference")),
        (np.float64, 1e308, sp.LADIES([9], normalize_rows=True)),  # the row sum only
    ],
    ids=repr,
)
def test_values_that_overflow(dtype: type[np.floating], weight: float, sampler: sp.Sampler) -> None:
    graph = star([weight] * 6, dtype)
    errors = []
    for backend in BACKENDS:
        with pytest.raises(CapacityError, match="Scale the weights") as caught:
            values(graph, sampler, backend)
        errors.append((caught.value.argument, str(caught.value)))
    assert errors[0][0] == "data"
    assert f"from the weight {dtype(weight)!s}" in errors[0][1]
    assert len(set(errors)) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_bad_entry_is_named(backend: str) -> None:
    graph = star([1.0, 3e38, 3e38], np.float32)
    A = graph.operand(backend)
    Q = stack([np.array([1, 0], np.int32)])  # the entry of vertex 1, then those of vertex 0
    rows = A.backend.take_rows(A.matrix, Q, True)
    sources = A.backend.compact(Q, rows.entry_ptr, rows.columns, True)
    local = rows._replace(columns=sources.local)
    with pytest.raises(CapacityError, match=r"value inf at sampled entry 2 .* \(entry 1 of the matrix\)"):
        A.backend.entry_values(A.matrix, Q, local, sources.src_ptr, np.full(len(sources.src), 2.0), False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_values_that_fit(backend: str) -> None:
    data = values(star([1e37] * 6, np.float32), sp.LADIES([9]), backend)
    assert np.isfinite(data).all()
    assert sorted(data.tolist())[-1] == np.float32(1e37)


# --- draw numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("wide", "limit"), [(False, 2**34), (True, 2**33)])
def test_draw_numbers_end(wide: bool, limit: int) -> None:
    stream = Stream((1, 2), 3, 0, 4)
    assert stream.integers(np.array([limit - 1]), 7, wide).max() < 7
    with pytest.raises(CapacityError, match="draw numbers below"):
        stream.integers(np.array([0, limit]), 7, wide)
    core = pytest.importorskip("spsample._core")
    assert core.draw_count(2**32 + wide) == limit


def test_kernels_without_draw_numbers_raise_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    core = pytest.importorskip("spsample._core")

    def no_numbers_left(*_: Any) -> None:
        raise core.DrawLimitReached("no draw numbers left")

    assert issubclass(core.DrawLimitReached, OverflowError)
    monkeypatch.setattr(core, "draw_shared", no_numbers_left)
    with pytest.raises(CapacityError, match="draw numbers below"):
        get_backend("cpu").draw_shared(np.ones(1, np.uint64), np.zeros(1, np.int64), Draw((1, 2), 0, 1))
