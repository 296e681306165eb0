"""Functions that processes call on batches: they have to be those of a module."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

import numpy as np


def sums(batch: Any) -> Any:
    """The id of a batch, sums of its rows, and its arrays; by which process."""
    return batch.batch_id, batch.x.sum(axis=1), batch.src_nodes, batch.layers[0].adj.indices, os.getpid()


def doubled(batch: Any) -> Any:
    return replace(batch, x=2 * batch.x)


def larger(batch: Any) -> Any:
    """Of a size that grows from batch to batch."""
    return np.full(1000 * 4**batch.batch_id % 4_000_003, batch.batch_id)


def slow_at_first(batch: Any) -> Any:
    """The later the batch the sooner it is there."""
    time.sleep(0.02 if batch.batch_id % 2 == 0 else 0)
    return batch.batch_id


def fails_on_batch_3(batch: Any) -> Any:
    if batch.batch_id == 3:
        raise ZeroDivisionError("of the transform")
    return batch.batch_id


class OddError(Exception):
    """It can be pickled, but not loaded."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def fails_oddly(batch: Any) -> Any:
    raise OddError(1, 2)


def gives_what_cannot_travel(batch: Any) -> Any:
    return lambda: batch


def dies_on_batch_2(batch: Any) -> Any:
    if batch.batch_id == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch.batch_id


def exits_on_batch_2(batch: Any) -> Any:
    if batch.batch_id == 2:
        os._exit(7)
    return batch.batch_id


def as_tensors(batch: Any) -> Any:
    import torch

    x = torch.from_numpy(batch.x)
    return {"x": x, "half": x.to(torch.bfloat16), "every other": x[::2], "grad": x[:1].clone().requires_grad_()}


def edges_of(data: Any) -> Any:
    data.num_seen = data.edge_index.shape[1]
    return data


class CannotBeLoaded:
    """It can be pickled, but not loaded."""

    def __call__(self, batch: Any) -> Any:
        return batch

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise OSError("no way to load it")


def slow(batch: Any) -> Any:
    time.sleep(0.2)
    return batch.batch_id
