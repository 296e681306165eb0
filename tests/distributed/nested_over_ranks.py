"""Feature sources nested at random, on all ranks of a job: `LAUNCHER python nested_over_ranks.py BACKEND EXAMPLES`.

Where there is a compiler, each rank puts an emulated device in front of every nest, too.
The exit status is 0 only if all was right on every rank; a rank that finds a difference ends the job.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cuda_emulator"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "machine"))

from hypothesis import HealthCheck, given, settings
from needs import why_not
from nested_sources import OnHost, agrees, build, nests, on_device, plain_of, takes_all_ranks

from spsample.backends import get_backend, registry
from spsample.comm import init


def drawn(examples):
    """The same nests on every rank. Nothing is run while they are drawn: ranks would try again what failed on one."""
    found = []

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(nest=nests().filter(takes_all_ranks))
    def take(nest):
        found.append(nest)

    take()
    return found


def behind_a_device(source, seed, comm):
    """Hot rows on a device of this process, emulated."""
    registry._CLASSES["cuda"] = ("emulated_backend", "EmulatedBackend")
    return OnHost(on_device(source, seed, comm), get_backend("cuda").device)


def main(backend, examples):
    comm = init(backend, 60)
    found = drawn(int(examples))
    for nest in found:
        with tempfile.TemporaryDirectory() as folder:
            source = build(nest, Path(folder), comm, (1, 2, 4)[nest.seed % 3])
            agrees(source, plain_of(nest), nest.seed, comm, steps=8)
            if not why_not("c++"):
                agrees(behind_a_device(source, nest.seed, comm), plain_of(nest), nest.seed, comm, steps=4)
    if comm.rank == 0:
        print(f"{len(found)} nests: right on {comm.size} ranks", flush=True)
    comm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
