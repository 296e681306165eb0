"""What every backend must do with the rows of a partitioned A; `backend_contract.py` inherits it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from equality import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spsample.backends import StackedSelector

any_executor = settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


def pointers(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@st.composite
def partitions(draw):
    """(bounds, position or None): parts of any sizes, empty ones too, of a row order that is A's or another."""
    n = draw(st.sampled_from([1, 2, 30, 5000]))
    cuts = draw(st.lists(st.integers(0, n), max_size=draw(st.sampled_from([0, 3, 40]))))
    bounds = np.array([0, *sorted(cuts), n])
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return bounds, rng.permutation(n) if draw(st.booleans()) else None


@st.composite
def selectors(draw, n, index):
    """Batches of vertices below n: short and long ones, ascending or not, and such as hold a vertex again."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    batches = [
        rng.integers(0, n, size) for size in draw(st.lists(st.sampled_from([0, 1, 5, 16, 300, 700]), max_size=5))
    ]
    if draw(st.booleans()):
        batches = [np.sort(batch) for batch in batches]
    vertices = np.concatenate([*batches, []]).astype(index)
    return StackedSelector(pointers([len(b) for b in batches]), vertices, np.arange(len(batches)))


def routed_in_python(Q, bounds, position):
    """(counts, vertices, places) by a sort of tuples."""
    parts = list(pairwise(bounds.tolist()))
    rows = []
    for i, (lo, hi) in enumerate(pairwise(Q.batch_ptr.tolist())):
        for r in range(lo, hi):
            v = int(Q.vertices[r])
            at = v if position is None else int(position[v])
            owner = next(p for p, (first, end) in enumerate(parts) if first <= at < end)
            rows.append((owner, i, r, v))
    rows.sort()
    counts = [[sum((p, i) == row[:2] for row in rows) for i in range(len(Q.batch_ids))] for p in range(len(parts))]
    places = {row[2]: place for place, row in enumerate(rows)}
    return counts, [row[3] for row in rows], [places[r] for r in range(len(rows))]


index_types = pytest.mark.parametrize("index", [np.int32, np.int64])


class RoutingContract:
    """Part of `BackendContract`."""

    @index_types
    @given(data=st.data())
    @any_executor
    def test_route_rows(self, backend, index, data):
        bounds, position = data.draw(partitions())
        Q = data.draw(selectors(int(bounds[-1]), index))
        routed = backend.route_rows(Q, bounds, None if position is None else position.astype(index))
        assert [array.dtype for array in routed] == [np.int64, index, index]
        counts, vertices, places = routed_in_python(Q, bounds, position)
        assert routed.counts.shape == (len(bounds) - 1, len(Q.batch_ids))
        assert routed.counts.tolist() == counts
        assert routed.vertices.tolist() == vertices
        assert routed.places.tolist() == places

    @pytest.mark.parametrize("permuted", [False, True])
    def test_route_many_rows(self, backend, permuted):
        """Enough for several threads, in more batches and parts than are worked on at once."""
        rng = np.random.default_rng(0)
        n, k = 100_000, 40
        bounds = np.unique(np.append(rng.integers(0, n, 300), [0, n]))
        position = rng.permutation(n).astype(np.int32) if permuted else np.arange(n, dtype=np.int32)
        sizes = rng.integers(0, 8000, k)
        vertices = np.concatenate([np.sort(rng.integers(0, n, size)) for size in sizes]).astype(np.int32)
        Q = StackedSelector(pointers(sizes), vertices, np.arange(k))
        routed = backend.route_rows(Q, bounds, position if permuted else None)
        part = np.searchsorted(bounds, position[vertices], side="right") - 1
        order = np.argsort(part, kind="stable")
        np.testing.assert_array_equal(routed.vertices, vertices[order])
        np.testing.assert_array_equal(routed.places[order], np.arange(len(order)))
        keys = part * k + np.repeat(np.arange(k), sizes)
        np.testing.assert_array_equal(routed.counts.ravel(), np.bincount(keys, minlength=routed.counts.size))

    @index_types
    def test_route_rows_refuses(self, backend, index):
        Q = StackedSelector(np.array([0, 1, 3]), np.array([4, 0, 5], index), np.arange(2))
        position = np.arange(6, dtype=index)[::-1]
        for vertex in (-1, 6, 2**31 - 1):
            other = Q._replace(vertices=np.array([4, vertex, 5], index))
            for given_position in (None, position):
                with pytest.raises(ValueError, match="vertices"):
                    backend.route_rows(other, np.array([0, 2, 6]), given_position)
        for bounds in ([], [6], [1, 6], [0, 4, 3, 6], [0] * 2**16 + [3, 6]):
            with pytest.raises(ValueError, match="bounds"):
                backend.route_rows(Q, np.array(bounds, np.int64))
        for wrong in (position[:5], np.array([0, 1, 2, 3, 6, 5], index), np.array([0, 1, 2, 3, -1, 5], index)):
            with pytest.raises(ValueError, match="position"):
                backend.route_rows(Q, np.array([0, 2, 6]), wrong)

    @pytest.mark.parametrize("length_type", [np.uint8, np.uint16, np.int32, np.int64])
    @index_types
    @given(data=st.data())
    @any_executor
    def test_gather_rows(self, backend, index, length_type, data):
        """Rows longer and shorter than what is copied at once; columns, weights and edge ids."""
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        sizes = data.draw(st.lists(st.sampled_from([0, 1, 4, 50]), max_size=5))
        m = sum(sizes)
        lengths = rng.choice([0, 1, 5, 15, 16, 17, 64, 65, 200], m).astype(length_type)
        places = rng.permutation(m).astype(index)
        total = int(lengths.sum(dtype=np.int64))
        entries = [
            rng.integers(0, 2**31 - 1, total).astype(np.int32),
            rng.random(total),
            rng.random(total).astype(np.float32),
            np.arange(total),
        ][: data.draw(st.integers(1, 4))]
        gathered = backend.gather_rows(pointers(sizes), places, lengths, entries)
        begin = pointers(lengths.tolist())
        rows = [[list(range(begin[p], begin[p + 1])) for p in places[lo:hi]] for lo, hi in pairwise(pointers(sizes))]
        flat = np.array([e for batch in rows for row in batch for e in row], np.int64)
        assert gathered.entry_ptr.tolist() == pointers([sum(map(len, batch)) for batch in rows]).tolist()
        indptr = [x for batch in rows for x in pointers([len(row) for row in batch]).tolist()]
        assert gathered.indptr.tolist() == indptr
        assert gathered.entry_ptr.dtype == gathered.indptr.dtype == np.int64
        assert len(gathered.entries) == len(entries)
        for array, given_array in zip(gathered.entries, entries, strict=True):
            assert array.dtype == given_array.dtype
            np.testing.assert_array_equal(array, given_array[flat])

    def test_gather_rows_undoes_route_rows(self, backend):
        """Enough for several threads: one entry per row, its vertex, and rows of several lengths."""
        rng = np.random.default_rng(1)
        n, sizes = 50_000, [20_000, 0, 3, 30_000]
        vertices = rng.integers(0, n, sum(sizes)).astype(np.int32)
        Q = StackedSelector(pointers(sizes), vertices, np.arange(4))
        routed = backend.route_rows(Q, np.array([0, 10, 9000, n]), rng.permutation(n).astype(np.int32))
        once = backend.gather_rows(Q.batch_ptr, routed.places, np.ones(len(vertices), np.uint8), [routed.vertices])
        np.testing.assert_array_equal(once.entries[0], vertices)
        lengths = routed.vertices % 7
        gathered = backend.gather_rows(Q.batch_ptr, routed.places, lengths, [np.repeat(routed.vertices, lengths)])
        np.testing.assert_array_equal(gathered.entries[0], np.repeat(vertices, vertices % 7))
        ends = np.concatenate([pointers(vertices[lo:hi] % 7) for lo, hi in pairwise(Q.batch_ptr)])
        np.testing.assert_array_equal(gathered.indptr, ends)

    def test_gather_rows_refuses(self, backend):
        ptr, places = np.array([0, 1, 3]), np.array([2, 0, 1])
        lengths, columns = np.array([2, 0, 1]), np.arange(3)
        for wrong in ([2, 0, 3], [-1, 0, 1]):
            with pytest.raises(ValueError, match="places"):
                backend.gather_rows(ptr, np.array(wrong), lengths, [columns])
        for wrong in ([2, 0, 2], [-1, 3, 1], [4, -2, 1], [1, 2]):
            with pytest.raises(ValueError, match=r"lengths|entries"):
                backend.gather_rows(ptr, places, np.array(wrong), [columns])
        for entries in ([], [columns[:2]], [columns, columns[:2]]):
            with pytest.raises(ValueError, match=r"lengths|entries"):
                backend.gather_rows(ptr, places, lengths, entries)
