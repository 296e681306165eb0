"""Routed features on all ranks of a job: `LAUNCHER python routed_over_ranks.py BACKEND`, on 4 ranks.

The exit status is 0 only if all was right on every rank.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from routed_cases import DTYPES, gathers_right, routed_on, rows_of

from spsample.comm import init
from spsample.errors import InputError


def main(backend):
    comm = init(backend, 60)
    for kind in ("host", "owners", "cached owners"):
        for seed in range(12 if kind == "host" else 6):  # every dtype on every grid, every grid twice
            x = rows_of(50 + seed, 1 + seed % 4, DTYPES[seed % 4] if kind == "host" else np.float32, seed)
            routed = routed_on(comm, x, (1, 2, 4)[seed % 3], kind, seed)
            gathers_right(comm, routed, x, seed)
            with pytest.raises(InputError, match=r"\(on rank 2\)"):
                routed.gather([0, 10**6] if comm.rank == 2 else [0])
            gathers_right(comm, routed, x, seed + 1)
        if comm.rank == 0:
            print(f"{kind}: right", flush=True)
    comm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
