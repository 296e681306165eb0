"""The kernels of conversions: edges counted, grouped, sorted, and read from text."""

from __future__ import annotations

import numpy as np
import pytest

from spsample.store.construction import edge_order

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")


def edges(dtype=np.int64, count=3000, n=500):
    return np.random.default_rng(0).integers(0, n, (2, count)).astype(dtype)


def in_order(order_of, sources, targets, n, wide):
    """What an `edge_order` writes: indptr, indices, and positions, or None where the edges were in order."""
    count = len(sources)
    out = np.empty(n + 1, np.int64), np.empty(count, np.int64 if wide else np.int32), np.empty(count, np.int64)
    is_ordered = order_of(sources, targets, *out)
    return *out[:2], None if is_ordered else out[2]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("drop", [False, True])
def test_limits_and_histogram(dtype, mirror, drop):
    sources, targets = edges(dtype)
    assert core.edge_limits(sources, targets, 1, len(sources)) == (0, 499)
    assert core.edge_limits(sources, targets, 1, 0) == (0, -1)
    bins = np.zeros(64, np.int64)
    core.edge_histogram(sources, targets, 1, len(sources), bins, 3, mirror, drop)
    loop = sources == targets
    ends = targets[~loop] if drop else targets
    wanted = np.bincount(np.concatenate([ends, sources[~loop]] if mirror else [ends]) >> 3, minlength=64)
    np.testing.assert_array_equal(bins, wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("count", "n"), [(0, 1), (0, 5), (3000, 1), (3000, 500), (300_000, 300), (300_000, 2**17)])
@pytest.mark.parametrize("ascending", ["", "by source", "by both"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("wide", [False, True])
def test_order_of_edges(dtype, count, n, ascending, threads, wide):
    sources, targets = (np.random.default_rng(1).random((2, count)) ** 3 * n).astype(dtype)
    if ascending:
        order = np.lexsort((sources, targets)) if ascending == "by both" else np.argsort(sources, kind="stable")
        sources, targets = sources[order], targets[order]
    before = core.get_num_threads()
    try:
        core.set_num_threads(threads)
        found = in_order(core.edge_order, sources, targets, n, wide)
    finally:
        core.set_num_threads(before)
    for one, wanted in zip(found, in_order(edge_order, sources, targets, n, wide), strict=True):
        assert (one is None) == (wanted is None)
        if one is not None:
            assert one.dtype == wanted.dtype
            np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("vertex", [-1, 5])
def test_order_of_edges_beyond_the_graph_is_refused(vertex):
    ids = np.array([0, vertex])
    for ends in ((ids, ids * 0), (ids * 0, ids)):
        with pytest.raises(ValueError, match="not in the graph"):
            in_order(core.edge_order, *ends, 5, False)


@pytest.mark.parametrize("head_bytes", [6, 7, 8, 9, 12])
@pytest.mark.parametrize("weights", [None, np.float32, np.float64])
@pytest.mark.parametrize("interleaved", [False, True])
def test_partition_and_sort(head_bytes, weights, interleaved):
    sources, targets = edges()
    count, bucket_of = len(sources), np.repeat(np.arange(4, dtype=np.uint32), 16)
    first = np.arange(4, dtype=np.int64) * 128
    flat = np.stack([sources, targets], 1).reshape(-1)
    columns = (flat, flat[1:], 2) if interleaved else (sources, targets, 1)
    held = None if weights is None else np.arange(count).astype(weights)
    how = (bucket_of, first, 3, 9, 12, head_bytes, False, False)
    records, offsets = core.edge_partition(*columns, count, held, *how)
    width = 0 if weights is None else np.dtype(weights).itemsize
    size = head_bytes + width
    assert (len(records), offsets[-1]) == (count * size, count)
    for bucket in range(4):
        part = records[offsets[bucket] * size : offsets[bucket + 1] * size]
        begin = bucket * 128
        inside = np.flatnonzero((targets >= begin) & (targets < begin + 128))
        order = inside[np.lexsort([inside, sources[inside], targets[inside]])]
        made = core.EdgeBucket(part, head_bytes, width, 12, np.array([0, len(order)]), np.array([1000]), 0, 16)
        indices, ids, ends = np.empty(len(order), np.int32), np.empty(len(order), np.int64), np.empty(128, np.int64)
        data = None if weights is None else np.empty(len(order), weights)
        assert made.distinct() == len(np.unique(targets[inside] * 500 + sources[inside]))
        assert made.write(indices, ids, data, ends, 0, 7, 9, 0) == made.count() == len(order)
        np.testing.assert_array_equal(indices, sources[order])
        np.testing.assert_array_equal(ids, order + 1000)
        np.testing.assert_array_equal(ends, 7 + np.cumsum(np.bincount(targets[inside] - begin, minlength=128)))
        if data is not None:
            np.testing.assert_array_equal(data, held[order])


def test_wide_words():
    """Keys and ordinals of more than 64 bits together."""
    sources, targets = edges(count=2000, n=1 << 32)
    bucket_of, first = np.zeros(1, np.uint32), np.zeros(1, np.int64)
    records, _ = core.edge_partition(sources, targets, 1, 2000, None, bucket_of, first, 32, 32, 0, 8, False, False)
    made = core.EdgeBucket(records, 8, 0, 0, np.array([0, 2000]), np.array([0]), 0, 64)
    indices, order = np.empty(2000, np.int64), np.lexsort([sources, targets])
    made.write(indices, None, None, np.empty(0, np.int64), 0, 0, 32, 0)
    np.testing.assert_array_equal(indices, sources[order])


def test_records_by_key():
    sources, targets = edges()
    bucket_of, first = np.zeros(64, np.uint32), np.zeros(1, np.int64)
    records, _ = core.edge_partition(sources, targets, 1, 3000, None, bucket_of, first, 3, 9, 12, 8, False, False)
    key, bins = targets * 512 + sources, np.zeros(256, np.int64)
    core.record_histogram(records, 8, 8, 12, 0, 10, bins)
    np.testing.assert_array_equal(bins, np.bincount(key >> 10, minlength=256))
    table = (np.arange(256) >= 100).astype(np.uint32)
    parts, offsets = core.record_partition(records, 8, 8, 12, 0, 10, table, 2)
    order = np.argsort(key >> 10 >= 100, kind="stable")
    np.testing.assert_array_equal(parts.view(np.uint64), records.view(np.uint64)[order])
    assert offsets[1] == ((key >> 10) < 100).sum()


def test_bad_arguments():
    sources, targets = edges(count=10)
    table, first, bins = np.zeros(1, np.uint32), np.zeros(1, np.int64), np.zeros(1, np.int64)
    for wrong in (-sources - 1, sources + (1 << 20)):
        with pytest.raises(ValueError, match="beyond the bins"):
            core.edge_histogram(sources, wrong, 1, 10, bins, 9, False, False)
        with pytest.raises(ValueError, match="out of range"):
            core.edge_partition(sources, wrong, 1, 10, None, table, first, 9, 9, 4, 8, False, False)
    with pytest.raises(ValueError, match="fewer ids"):
        core.edge_limits(sources, targets, 2, 10)
    with pytest.raises(ValueError, match="bucket_of"):
        core.edge_partition(sources, targets, 1, 10, None, table + np.uint32(1), first, 9, 9, 4, 8, False, False)
    with pytest.raises(ValueError, match="position_bits"):
        core.edge_partition(sources, targets, 1, 10, None, table, first, 9, 9, 3, 8, False, False)
    records, _ = core.edge_partition(sources, targets, 1, 10, None, table, first, 9, 9, 4, 8, False, False)
    ends = np.array([0, 10])
    with pytest.raises(ValueError, match="beyond the bucket"):
        core.EdgeBucket(records, 8, 0, 4, ends, first, 0, 1)
    made = core.EdgeBucket(records, 8, 0, 4, ends, first, 0, 18)
    with pytest.raises(ValueError, match="too short"):
        made.write(np.empty(9, np.int64), None, None, np.empty(0, np.int64), 0, 0, 9, 0)
    with pytest.raises(ValueError, match="data"):
        made.write(np.empty(10, np.int64), None, np.empty(10), np.empty(0, np.int64), 0, 0, 9, 0)


@pytest.mark.parametrize(
    ("text", "delimiter", "columns", "wanted", "lines", "bad"),
    [
        (b"", " ", (0, 1, -1), [], 0, -1),
        (b"1 2\n\n# 7 8\n  3\t4\r\n5 6", " ", (0, 1, -1), [(1, 2), (3, 4), (5, 6)], 5, -1),
        (b"1,2\n3,x\n5,6\n", ",", (0, 1, -1), [(1, 2)], 1, 1),
        (b'"1", "2"\n+3,4\n', ",", (1, 0, -1), [(2, 1), (4, 3)], 2, -1),
        (b"1 2 3\n4 5\n", " ", (0, 1, 2), [(1, 2)], 1, 1),
        (b"1,2\n3,4,\n5,6,7\n8,9,0,1\n", ",", (0, 1, -1), [(1, 2), (3, 4), (5, 6)], 3, 3),  # two fields or three
        (b'"1",2,"x ""y"", z"\n"3,4\n', ",", (0, 1, -1), [(1, 2)], 1, 1),
        (b'"1"2,3\n', ",", (0, 1, -1), [], 0, 0),
        (b"1,2\r3,4\n", ",", (0, 1, -1), [], 0, 0),
        (b"9223372036854775808 1\n", " ", (0, 1, -1), [], 0, 0),
    ],
)
def test_text(text, delimiter, columns, wanted, lines, bad):
    sources, targets, weights, read, at = core.edge_parse(text, delimiter, columns, (2, 3))
    assert list(zip(sources.tolist(), targets.tolist(), strict=True)) == wanted
    assert (read, at) == (lines, bad)
    assert len(weights) == (len(wanted) if columns[2] >= 0 else 0)


@pytest.mark.parametrize(
    ("text", "delimiter", "wanted", "bad"),
    [
        (b'a,"b, ""c"""\n# no edge\nd,e\n', ",", [(b"a", b'b, ""c""'), (b"d", b"e")], -1),
        (b'"a b"\tc\n\t d\n', "\t", [(b"a b", b"c")], 1),
        (b"a b\n#tag b\n", " ", [(b"a", b"b")], 1),
        (b"a\tb\n%\tb\n", "\t", [(b"a", b"b")], 1),
        (b"a b\n# b\n## b\n", " ", [(b"a", b"b")], -1),
    ],
)
def test_names(text, delimiter, wanted, bad):
    sources, targets, _, _, at = core.edge_names(text, delimiter, (0, 1, -1), (2, 2))
    ends = np.stack([sources.reshape(-1, 2), targets.reshape(-1, 2)], axis=1).tolist()
    assert [tuple(text[begin:end] for begin, end in pair) for pair in ends] == wanted
    assert at == bad


@pytest.mark.parametrize(
    ("line", "delimiter", "wanted"),
    [
        (b'a, "b ""x"", c" ,d,', ",", [b"a", b'b "x", c', b"d", b""]),
        (b'  "a b"  c', " ", [b"a b", b"c"]),
        (b'a"b,c', ",", [b'a"b', b"c"]),
        (b'"a', ",", None),
        (b'"a"b', ",", None),
    ],
)
def test_fields(line, delimiter, wanted):
    assert core.text_fields(line, delimiter) == wanted
