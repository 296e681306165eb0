"""The machine as a peer: as many random cache lines, or copied bytes, as a task needs at least."""

from __future__ import annotations

from limits import Memory
from peers.task import Inputs, Options, Task, Work

PACKAGES = ("numpy",)


def random_lines(inputs: Inputs, options: Options) -> Work:
    """`lines` random lines of a buffer of `buffer_bytes`; `lines_per_layer` is only passed on."""
    memory = Memory(options["buffer_bytes"], inputs.threads)
    counted = {name: options[name] for name in ("batches", "lines", "lines_per_layer")}

    def work() -> dict[str, float]:
        memory.read_random_lines(int(counted["lines"]))
        return counted

    return work


def random_rows(inputs: Inputs, options: Options) -> Work:
    """`rows` random rows of `row_bytes` bytes, read whole."""
    memory = Memory(options["buffer_bytes"], inputs.threads)
    counted = {name: options[name] for name in ("batches", "rows")}

    def work() -> dict[str, float]:
        memory.read_random_rows(options["row_bytes"], int(counted["rows"]))
        return counted

    return work


def copy(inputs: Inputs, options: Options) -> Work:
    """`bytes` read and written in all, by copying half as many."""
    memory = Memory(options["buffer_bytes"], inputs.threads)
    moved = int(options["bytes"])

    def work() -> dict[str, float]:
        memory.copy(moved // 2)
        return {"batches": options["batches"], "bytes": moved}

    return work


TASKS: dict[str, Task] = {"random_lines": random_lines, "random_rows": random_rows, "copy": copy}
