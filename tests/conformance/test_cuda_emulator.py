"""The emulated device does what a GPU does, and tells what a GPU leaves undefined."""

from __future__ import annotations

import emulated_device
import numpy as np
import pytest
from emulated_backend import needs_compiler
from emulated_device import EmulatedDevice

from spsample.backends.cuda.device import Kernel
from spsample.backends.cuda.sources import Variant

pytestmark = needs_compiler

SOURCE = """
#include "device.h"
using namespace spsample;

// Sum of each warp's values by shuffles, of each block's by shared memory.
extern "C" __global__ void sums(const int64_t* values, int64_t* of_warps, int64_t* of_blocks) {
    __shared__ int64_t all[256];
    int64_t sum = values[thread_index()];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    all[threadIdx.x] = values[thread_index()];
    __syncthreads();
    if (lane_index() == 0) of_warps[warp_index()] = sum;
    if (threadIdx.x == 0) {
        of_blocks[blockIdx.x] = 0;
        for (int i = 0; i < 256; ++i) of_blocks[blockIdx.x] += all[i];
    }
}

extern "C" __global__ void barrier_for_some(int64_t* out) {
    if (threadIdx.x < 100) __syncthreads();
    out[threadIdx.x] = __any_sync(kAllLanes, true);
}

extern "C" __global__ void ballot_of_some(int64_t* out) {
    if (lane_index() < 7) out[0] = __ballot_sync(kAllLanes, true);
}

extern "C" __global__ void mask_without_caller(int64_t* out) { out[0] = __ballot_sync(0xFF, true); }

extern "C" __global__ void last_one_wins(int64_t* out) { out[0] = threadIdx.x; }

extern "C" __global__ void no_barrier(int64_t* out, int64_t value) {
    __shared__ int64_t written[256];
    written[threadIdx.x] = value;
    out[threadIdx.x] = written[255 - threadIdx.x];
}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    path = tmp_path / "planted.cu"
    path.write_text(SOURCE)
    monkeypatch.setattr(emulated_device, "source_path", lambda _: path)
    emulated_device.load.cache_clear()
    device = EmulatedDevice()

    def launch(name, work, *arguments):
        device.launch(Kernel("planted", name), Variant(), work, arguments)
        return [device.to_host(one) for one in arguments if device.owns(one)]

    launch.device = device
    yield launch
    emulated_device.load.cache_clear()


def test_threads_work_together(run):
    values = np.arange(1024) ** 2
    device = run.device
    _, warps, blocks = run(
        "sums", 1024, device.to_device(values), device.empty(32, np.int64), device.empty(4, np.int64)
    )
    np.testing.assert_array_equal(warps, values.reshape(32, 32).sum(axis=1))
    np.testing.assert_array_equal(blocks, values.reshape(4, 256).sum(axis=1))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("barrier_for_some", "wait at different places for ever: 28 at __ballot_sync 100 at __syncthreads"),
        ("ballot_of_some", "wait at different places for ever: 56 at __ballot_sync"),
        ("mask_without_caller", "__ballot_sync: the mask lacks the calling lane"),
    ],
)
def test_what_is_undefined_is_an_error(run, name, error):
    for _ in range(2):  # what is left of a failed launch does not disturb the next
        with pytest.raises(AssertionError, match=error):
            run(name, 256, run.device.zeros(256, np.int64))
    assert run("last_one_wins", 256, run.device.zeros(1, np.int64))[0][0] < 256


def test_results_that_depend_on_the_order_of_threads_change(run):
    winners = {run("last_one_wins", 256, run.device.zeros(1, np.int64))[0].item() for _ in range(8)}
    assert len(winners) > 1
    for value in range(1, 4):
        read = run("no_barrier", 256, run.device.zeros(256, np.int64), value)[0]
        assert 0 < np.count_nonzero(read == value) < 256
