"""Errors in the words of the command line: the option that was typed, not the name of a parameter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spsample.errors import CapacityError, InputError, raised_by

__all__ = ["as_typed"]

_NAMES = (
    "algorithm",
    "alpha",
    "backend",
    "bandwidth",
    "batch_size",
    "bulk_size",
    "clip_norm",
    "columns",
    "decay_every",
    "decay_factor",
    "deduplicate",
    "dropout",
    "epoch",
    "epochs",
    "eval_every",
    "evaluation",
    "evaluation_memory",
    "fanouts",
    "format",
    "heads",
    "hidden",
    "layer_sizes",
    "layout",
    "links",
    "memory_budget",
    "memory_per_rank",
    "metric",
    "model_size",
    "momentum",
    "num_nodes",
    "num_seeds",
    "optimizer",
    "partition",
    "patience",
    "prefetch",
    "random_seed",
    "ranks",
    "ranks_per_node",
    "repeats",
    "replicate_hubs",
    "replication",
    "resume",
    "sampler",
    "scaling",
    "schedule",
    "seeds",
    "split",
    "string_ids",
    "test_sizes",
    "threads",
    "threads_per_rank",
    "warmup_epochs",
    "weight_decay",
    "weights",
)
_OPTIONS = {name: "--" + name.replace("_", "-") for name in _NAMES}
_OPTIONS |= {"architecture": "--model", "learning_rate": "--lr", "num_parts": "--parts"}
_OPTIONS |= {f"every_{unit}": f"--checkpoint-{unit}" for unit in ("minutes", "batches", "epochs")}


@contextmanager
def as_typed() -> Iterator[None]:
    """Let errors about an argument name the option that it came from.

    Examples
    --------
    >>> with as_typed():
    ...     raise InputError(argument="learning_rate", given="-1.0", expected="a positive number")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: --lr: got -1.0; expected a positive number
    """
    try:
        yield
    except (InputError, CapacityError) as error:
        name, bracket, position = error.argument.partition("[")
        if name not in _OPTIONS:
            raise
        argument = _OPTIONS[name] + bracket + position
        typed = type(error)(argument=argument, given=error.given, expected=error.expected, hint=error.hint)
        rank = getattr(error, "raised_by", None)
        raise typed if rank is None else raised_by(typed, rank) from None
