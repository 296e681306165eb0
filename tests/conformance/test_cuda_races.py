"""ThreadSanitizer over the emulated device finds what is not ordered, and a barrier taken out; and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest
import races

from spsample.backends.cuda.sources import kernel_folder

pytestmark = pytest.mark.needs("c++", "python under thread sanitizer")

BEGIN = """
import json
import sys
from pathlib import Path

folder, given = Path(sys.argv[1]), sys.argv[2]
sys.path[:0] = sys.argv[3:]

from spsample.backends.cuda import sources

sources.kernel_folder = lambda: folder

import numpy as np
import spsample as sp
from emulated_backend import EmulatedBackend
from emulated_device import EmulatedDevice
from spsample.backends import registry
from spsample.backends.cuda.device import Kernel
"""

SAMPLE = (
    BEGIN
    + """
registry._CLASSES["cuda"] = ("emulated_backend", "EmulatedBackend")
rng = np.random.default_rng(0)
graph = sp.Graph.from_edge_index(rng.integers(0, 200, (2, 9000)), num_nodes=200)
for sampler in eval(given):
    bulk = sp.bulk_sample(graph, np.arange(200), sampler, batch_size=40, backend="cuda")
    print(len(bulk), "batches without a race")
"""
)

LAUNCH = (
    BEGIN
    + """
device, found = EmulatedDevice(), {}
for name in given.split():
    try:
        for _ in range(2):
            device.launch(Kernel("planted", name), sources.Variant(), 768, [device.zeros(768, np.uint64)])
    except AssertionError as race:
        print(race, file=sys.stderr)
        found[name] = str(race)
print(json.dumps(found))
"""
)


def watched(tmp_path, program, given, change=lambda folder: None):
    """How a watched process ends that runs the program with a copy of the kernels, which is changed."""
    folder = tmp_path / "kernels"
    shutil.copytree(kernel_folder(), folder, ignore=shutil.ignore_patterns("cpu"))
    change(folder / "cuda")
    command = [sys.executable, races.__file__, "-c", program, folder, given, *sys.path]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)


# --- a barrier taken out of a kernel ----------------------------------------------------------------------------------

WIDE_ROWS, ENTRY_LAW = "sp.GraphSAGE([40])", "sp.LADIES([40])"

TAKEN_OUT = {
    "in a warp": (WIDE_ROWS, "row_law.cu", r"()__syncwarp\(\);"),
    "in a block, before a table is read": (ENTRY_LAW, "distinct_draws.h", r"()__syncthreads\(\);"),
    "in a block, before counts are read": (ENTRY_LAW, "block_sums.h", r"(__popc\(mask\);)\s+__syncthreads\(\);"),
}
"""What to sample, the file, and what of it is left out but for its group."""


@pytest.mark.parametrize("where", TAKEN_OUT)
def test_a_barrier_taken_out_is_found(tmp_path, where):
    sampler, name, barrier = TAKEN_OUT[where]

    def without(folder):
        text, count = re.subn(barrier, r"\1", (folder / name).read_text(), count=1)
        assert count == 1, f"{name} has no {barrier}"
        (folder / name).write_text(text)

    ended = watched(tmp_path, SAMPLE, f"[{sampler}]", without)
    print(ended.stderr)
    assert ended.returncode != 0
    assert "threads race" in ended.stderr
    assert re.search(rf"ThreadSanitizer: data race[^#]*#0 .*{re.escape(name)}:\d+", ended.stderr)


def test_nothing_is_found_in_the_kernels_as_they_are(tmp_path):
    ended = watched(tmp_path, SAMPLE, f"[{WIDE_ROWS}, {ENTRY_LAW}]")
    assert (ended.returncode, ended.stdout) == (0, "5 batches without a race\n" * 2), ended.stderr


# --- what orders memory, and what does not ----------------------------------------------------------------------------

KERNELS = """
#include "block_sums.h"
using namespace spsample;

// Blocks add to one place. Their shared memory is not the same.
extern "C" __global__ void race_between_blocks(uint64_t* out) {
    uint64_t total;
    block_before(1, &total);
    if (threadIdx.x == 0) out[0] += total;
}
extern "C" __global__ void atomic_between_blocks(uint64_t* out) {
    uint64_t total;
    block_before(1, &total);
    if (threadIdx.x == 0) atomic_add(out, total);
}

// A lane's neighbour reads what it wrote.
extern "C" __global__ void race_across_a_vote(uint64_t* out) {
    out[thread_index()] = 1;
    __any_sync(kAllLanes, true);
    out[thread_index()] = out[thread_index() ^ 1] == 1 ? 1 : 0;
}
extern "C" __global__ void reads_across_a_warp_barrier(uint64_t* out) {
    __shared__ uint64_t written[kWarp * kMostWarps];
    written[threadIdx.x] = 1;
    __syncwarp();
    out[thread_index()] = written[threadIdx.x ^ 1];
}
extern "C" __global__ void race_across_a_barrier_of_half_a_warp(uint64_t* out) {
    __shared__ uint64_t written[kWarp * kMostWarps];
    written[threadIdx.x] = 1;
    __syncwarp(lane_index() < 16 ? 0xFFFFu : 0xFFFF0000u);
    out[thread_index()] = written[threadIdx.x ^ 16];
}
extern "C" __global__ void race_across_a_warp_barrier_in_a_block(uint64_t* out) {
    __shared__ uint64_t written[kWarp * kMostWarps];
    written[threadIdx.x] = 1;
    __syncwarp();
    out[thread_index()] = written[threadIdx.x ^ 32];
}

// A flag says that a value is there: an atomic orders itself only.
extern "C" __global__ void race_behind_a_flag(uint64_t* out) {
    if (threadIdx.x == 0) {
        out[1] = 7;
        atomic_add(out, uint64_t(1));
    } else if (load_relaxed(out) != 0) {
        out[2 + thread_index() % 700] = out[1];
    }
}
extern "C" __global__ void volatile_on_both_sides(uint64_t* out) {
    if (load_relaxed(out) == 0) store_relaxed(out, uint64_t(1));
}
extern "C" __global__ void race_of_volatile_and_plain(uint64_t* out) {
    if (load_relaxed(out) == 0 && threadIdx.x == 5) out[0] = 1;
}
"""


def test_what_orders_memory(tmp_path):
    """Each kernel is launched twice: launches follow each other."""
    names = re.findall(r"__global__ void (\w+)\(", KERNELS)
    ended = watched(tmp_path, LAUNCH, " ".join(names), lambda folder: (folder / "planted.cu").write_text(KERNELS))
    print(ended.stderr)
    found = json.loads(ended.stdout)
    assert sorted(found) == sorted(name for name in names if name.startswith("race"))
    assert all("threads race" in error for error in found.values())
    assert re.search(r"Thread T\d+ 'block (\d) .*\n.*'block (?!\1)\d", found["race_between_blocks"])
