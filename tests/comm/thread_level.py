"""Ask for a communicator for another thread, and print what is said to that."""

from __future__ import annotations

import numpy as np

from spsample.comm import init
from spsample.errors import BackendError

comm = init("mpi")
assert comm.split(0).all_reduce(np.array([1])).item() == comm.size
try:
    comm.duplicate()
except BackendError as error:
    print(error, flush=True)
