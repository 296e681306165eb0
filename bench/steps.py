"""Training steps of one GraphSAGE, whoever samples and whoever aggregates. Imports torch within functions only."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from typing import Any

from .case import Figures, Work
from .memory_use import begin_peak, peak_bytes, release_unused

RATE = 0.005


class Model:
    """Dropout, convolution, ReLU: each of `calls` applies a convolution of `convs` to (x, layer)."""

    def __init__(self, convs: list[Any], calls: list[Any], dropout: float) -> None:
        self._convs, self._calls, self._dropout = convs, calls, dropout

    def parameters(self) -> list[Any]:
        """Of all convolutions."""
        return [weight for conv in self._convs for weight in conv.parameters()]

    def __call__(self, x: Any, layers: Any) -> Any:
        """Logits of the targets of the last layer."""
        from torch.nn import functional

        last = len(self._convs) - 1
        for number, (conv, call, layer) in enumerate(zip(self._convs, self._calls, layers, strict=True)):
            x = call(conv, functional.dropout(x, self._dropout), layer)
            x = x if number == last else x.relu()
        return x


def epoch(model: Any, batches: Callable[[], Iterable[tuple[tuple[Any, ...], Any]]]) -> Work:
    """A pass with Adam; `batches` gives the model's arguments and the labels of the seeds.

    ``step_mib`` is the peak of the pass beyond what is there before it.
    """
    import torch
    from torch.nn import functional

    optimizer = torch.optim.Adam(model.parameters(), RATE)

    def work() -> Figures:
        release_unused()
        before = begin_peak()
        faults, start, steps, loss = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter(), 0, None
        for arguments, y in batches():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(*arguments), y)
            loss.backward()
            optimizer.step()
            loss, steps = loss.detach(), steps + 1
        loss = float(loss)  # at the end: on a GPU it waits for the step
        seconds, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
        faults = (now.ru_minflt - faults) / max(steps, 1)
        return {
            "seconds": seconds,
            "batches": steps,
            "loss": loss,
            "faults_per_step": faults,
            "peak_mib": peak_bytes() / 2**20,
            "step_mib": (peak_bytes() - before) / 2**20,
        }

    return work
