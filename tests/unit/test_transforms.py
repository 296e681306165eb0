"""A function called on each batch: in order, and in the thread that makes batches."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import spsample as sp
from spsample.data import planted
from spsample.errors import DTypeError

DATA = planted(600, degree=6, random_seed=1)
SEEDS = np.arange(0, 600, 2)
X = np.tile(DATA.x, (1, 8))


def make(**changes: Any) -> sp.BulkLoader:
    options: dict[str, Any] = {"batch_size": 16, "bulk_size": 3, "features": X, "labels": DATA.y, **changes}
    return sp.BulkLoader(DATA.graph, SEEDS, options.pop("sampler", sp.GraphSAGE([3, 2])), **options)


def doubled(batch: Any) -> Any:
    return replace(batch, x=2 * batch.x)


@pytest.mark.parametrize("options", [{"prefetch": 0}, {}, {"stage_threads": "2,1"}, {"prefetch_budget": 1}])
def test_what_a_transform_returns_is_delivered(options: Any) -> None:
    loader = make(transform=doubled, **options)
    for _ in range(2):
        loader.set_epoch(0)
        for batch, plain in zip(loader, make(prefetch=0), strict=True):
            np.testing.assert_array_equal(batch.x, 2 * plain.x)
            assert batch.batch_id == plain.batch_id
            batch.x[:] = 0  # it is the loop's own


def test_it_is_called_in_the_thread_that_gathers_features() -> None:
    loader = make(transform=lambda batch: threading.current_thread().name, stage_threads="1,1")
    assert set(loader) == {"spsample features"}


def test_views_transform_what_they_deliver() -> None:
    pytest.importorskip("torch_geometric")

    def counted(data: Any) -> Any:
        data.num_seen = data.edge_index.shape[1]
        return data

    loader = make(sampler=sp.GraphSAGE([3, 2], layout="subgraph"), transform=counted)
    for data in loader.pyg():
        assert data.num_seen == data.edge_index.shape[1]


@pytest.mark.parametrize("prefetch", [0, 1])
def test_an_error_of_a_transform_is_raised_in_the_loop(prefetch: int) -> None:
    def fails_on_batch_3(batch: Any) -> Any:
        return batch.batch_id if batch.batch_id != 3 else 1 // 0

    batches = iter(make(transform=fails_on_batch_3, prefetch=prefetch))
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        next(batches)


def test_a_state_counts_what_was_delivered() -> None:
    loader = make(transform=lambda batch: batch.batch_id)
    batches = iter(loader)
    seen = [next(batches) for _ in range(5)]
    other = make(prefetch=0, transform=lambda batch: batch.batch_id)
    other.load_state_dict(loader.state_dict())
    assert seen + list(other) == list(range(19))
    batches.close()


def test_other_arguments_are_refused() -> None:
    with pytest.raises(DTypeError, match="transform"):
        make(transform=3)
