"""One measurement of `cold-store` in a process of its own: `python cold_worker.py '{"store": ..., ...}'` prints JSON.

Where `state` is "cold" the pages of the store's files are dropped from the page cache before it is opened
(posix_fadvise, POSIX_FADV_DONTNEED, after their contents are on the disk), and mincore says how many are left.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import spsample as sp

PAGE = os.sysconf("SC_PAGE_SIZE")


def main(store: str, seeds: str, bulk_size: int, state: str, access: str, fanouts: list[int]) -> dict[str, Any]:
    """Sample one bulk of `bulk_size` batches and tell what it took."""
    batches = np.load(seeds)[:bulk_size]
    sampler = sp.GraphSAGE(fanouts)
    tiny = sp.Graph([0, 1, 2], [1, 0])
    sp.bulk_sample(tiny, [0, 1], sampler, batch_size=1)  # code and threads are there from now on
    if state == "cold":
        drop_pages(Path(store))
    graph = sp.Graph.open(store, access=access)
    if state == "memory":
        graph = sp.Graph(graph.indptr.copy(), graph.indices.copy(), validate=False)
    elif state == "mapped":
        for array in (graph.indptr, graph.indices):
            array.max()
    resident = 1.0 if state == "memory" else resident_share(graph.indices)
    before, faults, start = bytes_read(), major_faults(), time.perf_counter()
    sp.bulk_sample(graph, batches.ravel(), sampler, batch_size=batches.shape[1])
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "bytes_read": bytes_read() - before,
        "major_faults": major_faults() - faults,
        "resident_before": resident,
        "batch_size": int(batches.shape[1]),
        "file_bytes": graph.nbytes,
    }


def drop_pages(store: Path) -> None:
    """Drop the pages of all files of a store from the page cache."""
    for path in store.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def resident_share(array: NDArray[Any]) -> float:
    """The share of an array's pages that are in memory, by mincore."""
    first = array.ctypes.data // PAGE * PAGE
    pages = -(-(array.ctypes.data + array.nbytes - first) // PAGE)
    states = np.zeros(pages, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_void_p(first), ctypes.c_size_t(pages * PAGE), states.ctypes.data_as(ctypes.c_char_p))
    if libc.mincore(*arguments) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    return float((states & 1).mean())


def bytes_read() -> int:
    """Bytes that this process had read from disks so far."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def major_faults() -> int:
    """Page faults that waited for a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
