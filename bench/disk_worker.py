"""One side of `disk-features` in a process of its own: `python disk_worker.py '{"side": ..., ...}'` prints JSON.

The batches of a traced run are gathered from a file that is not in memory. Where the system has memory cgroups and lets
this process make one, all sides run in one that holds the budget beside what the process had before it began.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from cold_worker import bytes_read, drop_pages, major_faults
from memory_group import MemoryGroup, NoGroupError, memory_group
from resident import resident

_SLACK = 8 << 20
"""Of a cgroup: page tables, memory of the system, the heap of Python."""

Batches = list[NDArray[np.int32]]


class Lookahead:
    """`DiskFeatures` that are told of each bulk of batches one bulk ahead, as the loader does."""

    def __init__(self, path: str, budget: int, batches: Batches, bulk: int, **options: Any) -> None:
        self._features = sp.DiskFeatures(path, budget, **options)
        self._batches, self._bulk = batches, bulk
        self._features.announce(batches[:bulk])

    def gather(self, i: int, ids: NDArray[np.int32], out: NDArray[np.float32]) -> None:
        """Batch i."""
        if i % self._bulk == 0:
            self._features.announce(self._batches[i + self._bulk : i + 2 * self._bulk])
        self._features.gather(ids, out=out)

    def facts(self) -> dict[str, Any]:
        """What the features say of themselves."""
        counts, plan = self._features.counts, self._features.plan
        return {
            **counts._asdict(),
            "hit_share": counts.hit_share,
            "planned_bytes": plan.nbytes,
            "text": repr(self._features),
        }


class Map:
    """`np.memmap`, as PyG's users do; pages stay in the system's cache."""

    def __init__(self, path: str, access: str) -> None:
        import mmap

        self._rows = np.load(path, mmap_mode="r")
        if access == "random":
            self._rows._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]

    def gather(self, i: int, ids: NDArray[np.int32], out: NDArray[np.float32]) -> None:
        """Batch i."""
        np.take(self._rows, ids, axis=0, out=out, mode="clip")

    def facts(self) -> dict[str, Any]:
        """Nothing is counted."""
        return {}


def side_of(task: dict[str, Any], batches: Batches) -> Any:
    """What gathers."""
    kind, _, detail = task["side"].partition(":")
    path, budget, bulk = task["path"], task["budget"], task["bulk_size"]
    if kind == "memmap":
        return Map(path, detail)
    options = {"page_rows": int(detail)} if detail.isdecimal() else {"direct": detail != "cache"}
    return Lookahead(path, budget, batches if kind == "lookahead" else [], bulk, **options)


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Gather all batches, and tell what it took."""
    with np.load(task["trace"]) as trace:
        batches: Batches = np.split(trace["ids"], trace["ends"][:-1])
    rows = np.load(task["path"], mmap_mode="r")
    largest, dim, expected = max(map(len, batches)), rows.shape[1], {}
    for i in range(0, len(batches), max(1, len(batches) // task["checked"])):
        expected[i] = crc32(rows[batches[i]])
    del rows
    memory = np.ones((largest, dim), np.float32)
    with sp.DiskFeatures(task["path"], 0) as features:  # code and threads are there from now on
        features.gather(batches[0], out=memory[: len(batches[0])])
    drop_pages(Path(task["path"]).parent)
    with _group(task) as group, _measured_memory() as taken:
        side = side_of(task, batches)
        before, faults, seconds = bytes_read(), major_faults(), []
        for i, ids in enumerate(batches):
            out = memory[: len(ids)]
            start = time.perf_counter()
            side.gather(i, ids, out)
            seconds.append(time.perf_counter() - start)
            if i in expected and crc32(out) != expected[i]:
                raise RuntimeError(f"batch {i}: other rows")
        read = bytes_read() - before
    return {
        "bytes_read": read,
        "seconds": sum(seconds),
        "batches": len(batches),
        "major_faults": major_faults() - faults,
        "resident_bytes": taken["bytes"],
        "in_a_group": group is not None,
        **side.facts(),
    }


@contextmanager
def _measured_memory() -> Iterator[dict[str, int]]:
    """How much more memory this process has at its peak, within, than before: files left out, looked at every 5 ms."""
    before, taken, done = resident("RssAnon"), {"bytes": 0}, Event()

    def look() -> None:
        while not done.wait(0.005):
            taken["bytes"] = max(taken["bytes"], resident("RssAnon") - before)

    thread = Thread(target=look)
    thread.start()
    try:
        yield taken
    finally:
        done.set()
        thread.join()


@contextmanager
def _group(task: dict[str, Any]) -> Iterator[MemoryGroup | None]:
    """A cgroup that holds the budget; None where it cannot be made, or is not wanted.

    What this process had before, the memory for results too, counts for the group that it comes from.
    """
    with ExitStack() as stack:
        group = None
        try:
            group = stack.enter_context(memory_group()) if task["group"] else None
        except NoGroupError as error:
            print(error, file=sys.stderr)
        if group is not None:
            group.limit(task["budget"] + _SLACK)
        yield group


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print(json.dumps(main(json.loads(sys.argv[1]))))
