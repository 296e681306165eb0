"""A trial that says how many ranks should sample: how long a minibatch takes to sample, and how long to train."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from spsample.comm import collective
from spsample.loading.factored import FactoredLoader, SamplerCount, samplers_for

__all__ = ["measured_samplers"]

WARM_UP, MEASURED = 1, 4
"""Minibatches that a trial trains before it measures, and of which it takes the median."""

_SHORTEST = 1e-6


def measured_samplers(loader: FactoredLoader, model: torch.nn.Module, backward: Callable[[Any], Any]) -> SamplerCount:
    """Measure on all ranks at once, and say how many of them should sample; collective.

    Each rank samples the first bulk of an epoch that is never trained, and goes forward and back with a few of its
    minibatches. No weight changes, and no sample or mask of the run does.

    Parameters
    ----------
    loader : FactoredLoader
    model
        What goes forward and back.
    backward : function
        Does so with a batch.
    """
    comm = loader.comm
    kept = copy.deepcopy(model.state_dict())
    with collective(comm, call="a trial of sampling and training"), torch.random.fork_rng(devices=[]):
        mine = np.array(_seconds(loader, backward))
    model.load_state_dict(kept)
    model.zero_grad(set_to_none=True)
    getattr(loader.features, "reset_counts", _nothing)()
    sampling, training = (comm.all_reduce(mine, phase="set-up") / comm.size).tolist()
    return samplers_for(comm.size, sampling, training)


def _nothing() -> None:
    """There are no counts."""


def _seconds(loader: FactoredLoader, backward: Callable[[Any], Any]) -> tuple[float, float]:
    """Seconds of a minibatch: to sample, and to gather its features and go forward and back."""
    start = time.perf_counter()
    bulk = loader.trial_bulk()
    sampling = (time.perf_counter() - start) / max(len(bulk), 1)
    training: list[Any] = []
    for minibatch in bulk[: WARM_UP + MEASURED]:
        start = time.perf_counter()
        backward(loader.trial_batch(minibatch))
        training.append(time.perf_counter() - start)
    usual = statistics.median(training[WARM_UP:] or training or [_SHORTEST])
    return max(sampling, _SHORTEST), max(usual, _SHORTEST)
