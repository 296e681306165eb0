"""The measurement of features by the share of rows on a GPU, on the emulated device, and a driver's counter."""

from __future__ import annotations

import subprocess
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler
from needs import COMPILER, require
from rich.console import Console
from typer.testing import CliRunner

import spsample as sp
from gpu import hot_share, summary
from gpu.bus_counter import BusCounter
from gpu.machine import gpu_facts
from gpu.turns import HostEvent
from traces import cell

__all__ = ["emulated"]

DIM = 5
SHARES = (0.05, 0.5, 1.0)
DRIVER = """
#include <cstring>
struct Value { unsigned field, scope; long long timestamp, latency; unsigned type, status; unsigned long long count; };
static unsigned long long received = WRAPS - 150;
static int reads = 0;
extern "C" int nvmlInit_v2() { return 0; }
extern "C" int nvmlDeviceGetHandleByPciBusId_v2(const char* place, void** device) {
    *device = &received;
    return std::strcmp(place, "0000:17:00.0") ? 6 : 0;
}
extern "C" int nvmlDeviceGetFieldValues(void* device, int count, Value* values) {
    if (device != &received || count != 1 || values->field != 198 || values->scope) return 2;
    values->status = ++reads > READS ? 3 : 0;
    values->type = TYPE;
    values->count = received;
    if (TYPE == 1) values->count |= 0xA5A5A5A500000000;  // the upper half of the union holds what it held before
    received = TYPE == 1 ? (received + 100) % (1ULL << 32) : received + 100;
    return 0;
}
"""


class Emulated:
    """The emulated device as `hot_share` needs it."""

    events = HostEvent

    def __init__(self, device):
        self.to_host, self.to_device, self.settle = device.to_host, device.to_device, device.settle

    def page_locked(self, shape):
        return np.empty(shape, np.float32)


@pytest.fixture
def trace():
    return hot_share.Trace.of(cell(sp.load_dataset("rmat:9,6").graph, "GraphSAGE"), 2, DIM)


@needs_compiler
def test_what_is_counted_is_what_the_kernel_reads(emulated, trace):
    """Bytes by the addresses of the rows of the source itself."""
    found = hot_share.ways(trace, SHARES, Emulated(emulated))
    tiers = [f"tiered, {share}% hot" for share in (5, 50, 100)]
    assert list(found) == [hot_share.CPU, hot_share.COPY, "zero copy", *tiers]
    for share in (0.0, *SHARES):
        source = found[hot_share.side_name(share)].gather.__self__
        places, cold = emulated.to_host(source._tiers.places), source._tiers.tiers[1]
        first = np.uint64(emulated.address(cold))
        rows = sectors = 0
        for ids in trace.batches:
            begin = (places[ids][trace.cold(share)[ids]] - first).astype(np.int64)
            assert ((begin >= 0) & (begin < max(cold.nbytes, 1))).all()
            rows += len(begin)
            sectors += sum(len({byte // 32 for byte in range(at, at + 4 * DIM)}) for at in begin.tolist())
        wanted = sum(map(len, trace.batches))
        assert found[hot_share.side_name(share)].figures == {
            "batches": len(trace.batches),
            "rows": wanted,
            "hot_rows": wanted - rows,
            "bus_bytes": 4 * DIM * rows,
            "sector_bytes": 32 * sectors,
        }
    assert found[hot_share.CPU].figures == found[hot_share.COPY].figures
    assert found[hot_share.CPU].figures["bus_bytes"] == found["zero copy"].figures["bus_bytes"]
    hits = [found[hot_share.side_name(share)].figures["hot_rows"] for share in (0.0, *SHARES)]
    assert hits == sorted(hits)
    assert (hits[0], hits[-1]) == (0, wanted)


@needs_compiler
def test_all_of_it_runs_and_is_reported(emulated, trace, tmp_path):
    before = emulated.launches
    made = hot_share.measured("rmat:9,6", trace, SHARES, Emulated(emulated), rounds=2)
    assert emulated.launches - before > 3 * len(trace.batches) * len(made.shares)
    sides = [one.side for one in made.results]
    assert sides[:3] == [hot_share.CPU, hot_share.COPY, hot_share.ZERO_COPY]
    assert all(one.seconds_per_batch > 0 and one.batches == len(trace.batches) for one in made.results)
    assert [ratio.over for ratio in made.ratios if ratio.side == hot_share.ZERO_COPY] == [
        name for name in sides if name != hot_share.ZERO_COPY
    ]
    hot_share.write(made, tmp_path / "new", [hot_share.NO_COUNTER])
    records = summary.read(tmp_path / "new" / "gpu-hot-share.jsonl")
    assert [record["side"] for record in records if record["kind"] == "result"] == sides
    assert [record["what"] for record in records if record["kind"] == "missing"] == [hot_share.NO_COUNTER]
    assert (tmp_path / "new" / "gpu-hot-share.png").stat().st_size > 0
    console = Console(record=True, width=160)
    console.print(hot_share.table(made.results))
    said = console.export_text()
    assert "tiered, 5% hot" in said
    assert "100.0%" in said


@needs_compiler
def test_rows_that_differ_are_not_measured(emulated, trace):
    memory = Emulated(emulated)
    made = hot_share.ways(trace, (), memory)
    other = hot_share.CpuGather(replace(trace, x=trace.x + 1), memory)
    made[hot_share.ZERO_COPY] = replace(made[hot_share.ZERO_COPY], gather=other.gather)
    with pytest.raises(RuntimeError, match="zero copy: other rows than those gathered on the CPU"):
        hot_share.require_equal_rows(made, [memory.to_device(ids) for ids in trace.batches], memory)


def test_without_a_gpu_nothing_is_measured():
    if gpu_facts(1)["gpu"] is not None:
        pytest.skip("there is a GPU")
    run = pytest.importorskip("gpu.run")
    done = CliRunner().invoke(run.app, ["hot-share", "--graph", "rmat:8,4"])
    assert isinstance(done.exception, ImportError)


# --- the counter of a driver ------------------------------------------------------------------------------------------


def driver(folder: Path, kind: int, reads: int = 10**6) -> str:
    """A library that answers as NVML does: 100 bytes more at each reading, and soon beyond what a value holds."""
    require("c++")
    (folder / "driver.cpp").write_text(DRIVER)
    wraps = {1: "(1ULL << 32)", 3: "0ULL"}.get(kind, "1000ULL")
    options = [f"-DTYPE={kind}", f"-DREADS={reads}", f"-DWRAPS={wraps}"]
    path = folder / f"driver-{kind}-{reads}.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", *options, str(folder / "driver.cpp"), "-o", str(path)], check=True)
    return str(path)


@pytest.mark.parametrize("kind", [1, 3])
def test_bytes_are_counted_beyond_the_width_of_the_counter(tmp_path, kind):
    counter = BusCounter.of("0000:17:00.0", driver(tmp_path, kind))
    ran = []
    assert counter.over([lambda: ran.append(1), lambda: ran.append(2), lambda: ran.append(3)]) == 300
    assert ran == [1, 2, 3]


def test_a_driver_that_does_not_count(tmp_path):
    assert BusCounter.of("0000:17:00.0", str(tmp_path / "none.so")) is None
    assert BusCounter.of("0000:18:00.0", driver(tmp_path, 3)) is None
    assert BusCounter.of("0000:17:00.0", driver(tmp_path, 0)) is None  # a float
    assert BusCounter.of("0000:17:00.0", driver(tmp_path, 3, reads=0)) is None
    assert BusCounter.of("0000:17:00.0", driver(tmp_path, 3, reads=2)).over([lambda: None] * 3) is None


@needs_compiler
def test_counted_bytes_are_among_the_figures(emulated, trace, tmp_path):
    counter = BusCounter.of("0000:17:00.0", driver(tmp_path, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = hot_share.measured("g", trace, (1.0,), Emulated(emulated), rounds=1, counter=counter)
        hot_share.write(made, tmp_path, [])
    assert all(one.figures["counted_bytes"] == 100 for one in made.results)
