"""Caches that look ahead and fetches by the bulk on all ranks of a job: `LAUNCHER python ahead_over_ranks.py BACKEND`.

Each rank compares its batches with those of one process. The exit status is 0 only if all was right on every rank.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "machine"))

from test_ahead_on_ranks import cached_loader
from test_rank_loader import alone

from spsample.comm import collective, init


def same_batches(comm, c, options):
    expected = alone(epochs=1)[0]
    loader = cached_loader(comm, c, 30, **options)
    for step, _ in enumerate(loader):
        if step == 1:
            break
    loader.set_epoch(0)
    for batch in loader:
        if batch.batch_id < len(expected):
            np.testing.assert_array_equal(batch.src_nodes, expected[batch.batch_id].src_nodes)
            np.testing.assert_array_equal(batch.x, expected[batch.batch_id].x)
    loader.close()


def main(backend):
    comm = init(backend, timeout=30)
    for c, prefetch, fetch in product((1, 2), (0, 1), ("batch", "bulk")):
        with collective(comm.duplicate()):
            same_batches(comm, c, {"prefetch": prefetch, "fetch": fetch})
    if comm.rank == 0:
        print("all the same", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
