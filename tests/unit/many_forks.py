"""Fork again and again while threads gather and time what they do: every child must do so too, and end.

python tests/unit/many_forks.py --forks 20000

Children gather from a cache, from a cache that looks ahead over a disk, or take a batch of a loader, in turn; threads
of the parent do the same all the time. A child that has not ended in a minute says where it is. Prints a JSON
line; the exit status is 1 where a child did not end, or got other rows.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import spsample as sp
from spsample.features import DiskFeatures

LONGEST = 60
"""Seconds that a child may take."""

N, DIM = 2000, 4


def works(folder: Path) -> list[Callable[[], bool]]:
    """What threads and children do; each says whether the rows were right."""
    x = np.random.default_rng(0).random((N, DIM), np.float32)
    np.save(folder / "x.npy", x)
    graph = sp.Graph.from_edge_index(np.random.default_rng(1).integers(0, N, (2, 5 * N)), num_nodes=N)
    kept = sp.CachedFeatures(sp.FeatureStore(x), x.nbytes // 4, np.arange(N))
    disk = DiskFeatures(folder / "x.npy", "64KiB")
    ahead = sp.CachedFeatures(disk, x.nbytes // 2 + 64 * N, np.arange(N), replacement="lookahead")
    loader = sp.BulkLoader(
        graph, np.arange(N), sp.GraphSAGE([2]), batch_size=8, bulk_size=2, prefetch=0, features=x, shuffle=False
    )
    ids = np.arange(0, N, 97)

    def gather() -> bool:
        return bool(np.array_equal(kept.gather(ids), x[ids]))

    def gather_ahead() -> bool:
        ahead.prefetch_hint([ids])
        return bool(np.array_equal(ahead.gather(ids), x[ids]))

    def load() -> bool:
        batch = next(iter(loader))
        return bool(np.array_equal(batch.x, x[batch.src_nodes]))

    return [gather, gather_ahead, load]


def forked(body: Callable[[], bool]) -> int:
    """The exit status of a child that does it: 0 where it was right, 1 where it did not end."""
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        status = 3
        try:
            status = 0 if body() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--forks", type=int, default=300)
    forks = parser.parse_args().forks
    begin, is_over = time.monotonic(), threading.Event()
    sys.setswitchinterval(1e-5)  # a thread loses its turn anywhere, with a lock in its hands too
    with tempfile.TemporaryDirectory() as folder:
        bodies = works(Path(folder))

        def repeat(body: Callable[[], bool]) -> None:
            while not is_over.is_set():
                body()

        threads = [threading.Thread(target=repeat, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        statuses = [forked(bodies[number % len(bodies)]) for number in range(forks)]
        is_over.set()
        for thread in threads:
            thread.join()
    hung = statuses.count(1)
    wrong = sum(status != 0 for status in statuses) - hung
    print(json.dumps({"forks": forks, "hung": hung, "wrong": wrong, "seconds": round(time.monotonic() - begin)}))
    return int(hung + wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
