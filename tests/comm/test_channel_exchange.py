"""`Channel.exchange`: arrays of all types and row shapes, as one message or each by itself."""

from __future__ import annotations

import numpy as np
import pytest

from spsample.comm import Channel, Sent, channel, collective, run_threads
from spsample.errors import DTypeError, InputError

TIMEOUT = 20
TYPES = (np.int8, np.uint16, np.int64, np.float32, np.float64, np.bool_)
ROW_SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (0,), (2, 0), (1, 2))


def arrays_of(size: int, seed: int) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Counts (arrays, from, to) and, for each array, the rows of each rank."""
    rng = np.random.default_rng([size, seed])
    many = int(rng.integers(2, 8))
    counts = rng.integers(0, 4, (many, size, size)) * (rng.random((many, size, size)) < 0.7)
    kinds = [(TYPES[rng.integers(len(TYPES))], ROW_SHAPES[rng.integers(len(ROW_SHAPES))]) for _ in range(many)]
    return counts, [
        [rng.integers(0, 2, (int(counts[i, q].sum()), *shape)).astype(dtype) for q in range(size)]
        for i, (dtype, shape) in enumerate(kinds)
    ]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("most", [0, 40, 1 << 20])
def test_rows_of_all_types_and_shapes(monkeypatch, size, most):
    """Of no bytes, too; where `most` is 40, some ranks have more and others have not."""
    monkeypatch.setattr(channel, "MAX_TOGETHER", most)

    def body(comm):
        own = Channel(comm)
        for seed in range(20):
            counts, arrays = arrays_of(size, seed)
            with collective(comm, own):
                sends = [Sent(rows[comm.rank], counts[i, comm.rank]) for i, rows in enumerate(arrays)]
                received = own.exchange(sends, phase="rows")
            for i, got in enumerate(received):
                begins = counts[i, :, : comm.rank].sum(axis=1)
                parts = [arrays[i][q][b : b + counts[i, q, comm.rank]] for q, b in enumerate(begins)]
                want = np.concatenate(parts)
                np.testing.assert_array_equal(got.rows, want)
                assert (got.rows.dtype, got.rows.shape) == (want.dtype, want.shape)
                assert got.counts.tolist() == counts[i, :, comm.rank].tolist()

    run_threads(size, body, TIMEOUT)


def exchanged(comm, sends):
    own = Channel(comm)
    with collective(comm, own):
        return [got.rows.tolist() for got in own.exchange(sends, phase="rows")]


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_counts_of_several_types(monkeypatch, most):
    """NumPy has no integer type for both int64 and uint64."""
    monkeypatch.setattr(channel, "MAX_TOGETHER", most)
    counts = [np.ones(2, dtype) for dtype in (np.int64, np.uint64, np.uint8)]
    sends = [Sent(np.arange(2), one) for one in counts]
    assert run_threads(2, lambda comm: exchanged(comm, sends), TIMEOUT) == [[[r, r]] * 3 for r in range(2)]


def test_counts_for_other_numbers_of_ranks():
    """Refused as such."""
    sends = [Sent(np.arange(2), np.ones(2, np.int64)), Sent(np.arange(3), np.ones(3, np.int64))]
    with pytest.raises(InputError, match=r"send_counts: got \[1, 1, 1\]; expected 2 numbers"):
        run_threads(2, lambda comm: exchanged(comm, sends), TIMEOUT)


@pytest.mark.parametrize("many", [1, 2])
def test_objects_of_one_rank(many):
    """Refused before the others count on them; the next exchange is right."""

    def body(comm):
        good = [Sent(np.arange(2), np.ones(2, np.int64))] * many
        bad = [Sent(sent.rows.astype(object if comm.rank else np.int64), sent.counts) for sent in good]
        with pytest.raises(DTypeError, match=r"send: got dtype object \(on rank 1\)"):
            exchanged(comm, bad)
        return exchanged(comm, good)

    assert run_threads(2, body, TIMEOUT) == [[[r, r]] * many for r in range(2)]


@pytest.mark.parametrize("name", ["exchange", "gather", "broadcast"])
def test_more_arrays_than_a_header_has_words_for(name):
    array, one_each = np.arange(2), np.ones(2, np.int64)
    calls = {
        "exchange": lambda channel: channel.exchange([Sent(array, one_each)] * 8, phase="example"),
        "gather": lambda channel: channel.gather([array] * 8, phase="example"),
        "broadcast": lambda channel: channel.broadcast([array] * 8, 0, phase="example"),
    }
    with pytest.raises(InputError, match=r"(sends|arrays): got 8 arrays; expected at most 7"):
        run_threads(2, lambda comm: calls[name](Channel(comm)), TIMEOUT)
