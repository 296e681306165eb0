"""Every CUDA source compiles with NVRTC and with nvcc, in every variant, for the architectures it is meant for.

What the assembler reports is checked: no kernel spills registers, none but those of COLD has a stack frame, which is
memory that each thread reads and writes, and none has more code than the caches of instructions and a short compilation
bear.
"""

from __future__ import annotations

import re

import pytest
from ptxas_report import KernelReport, compiled, missing, parsed, ptx
from registers import resident_warps

from spsample.backends.cuda.sources import Variant, source_names

COLD: set[str] = set()
"""Kernels that run once for a batch or less often, and may have a stack frame."""

MOST_REGISTERS = 255

MOST_CODE = 64 << 10
"""Bytes of instructions of a kernel. Large ones take long to compile, and pass the caches of instructions."""

REPORT = """\
ptxas info    : 41 bytes gmem
ptxas info    : Compiling entry function 'take_rows' for 'sm_90'
ptxas info    : Function properties for take_rows
    8 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for helper
    16 bytes stack frame, 2 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem, 16 bytes cmem[0]
ptxas info    : Compiling entry function 'largest' for 'sm_90'
ptxas info    : Function properties for largest
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
code take_rows 4096
code largest 128
"""


def test_a_report_is_read() -> None:
    assert parsed(REPORT) == [
        KernelReport("take_rows", 32, 24, 2, 4, 1024, 4096),
        KernelReport("largest", 12, 0, 0, 0, 0, 128),
    ]
    assert parsed(REPORT)[0].spills == 6


def test_warps_that_registers_and_shared_memory_allow() -> None:
    kernel = KernelReport("k", 32, 0, 0, 0, 0)
    assert resident_warps(kernel, "sm_90") == 64
    assert resident_warps(kernel._replace(registers=52), "sm_90") == 32
    assert resident_warps(kernel._replace(shared=24704), "sm_80") == 48


@pytest.mark.parametrize("source", source_names())
@pytest.mark.parametrize(("compiler", "arch"), [("nvrtc", "sm_80"), ("nvrtc", "sm_90"), ("nvcc", "sm_90")])
def test_sources_compile_without_spills(compiler: str, source: str, arch: str) -> None:
    reason = missing(compiler)
    if reason is not None:
        pytest.skip(reason)
    for variant, kernels in compiled(compiler, source, arch).items():
        assert kernels, f"{source}: no kernels in the report of {compiler}"
        for kernel in kernels:
            where = f"{source}.{kernel.name}, {variant}, {arch}, {compiler}"
            assert kernel.spills == 0, f"{where}: {kernel.spill_stores} + {kernel.spill_loads} bytes spilled"
            assert kernel.stack == 0 or kernel.name in COLD, f"{where}: a stack frame of {kernel.stack} bytes"
            assert kernel.registers <= MOST_REGISTERS, where
            assert 0 < kernel.code <= MOST_CODE, (
                f"{where}: {kernel.code / 1024:.0f} KiB of code, at most {MOST_CODE >> 10}"
            )


def test_rules_that_blocks_share_are_read_and_written_by_atomics() -> None:
    """Volatile accesses are relaxed atomic ones in PTX. Of 16 bits are rules, and plans, which are only written."""
    reason = missing("nvcc")
    if reason is not None:
        pytest.skip(reason)
    accesses = re.findall(
        r"\b(ld|st)(\.volatile)?\.global\.[bsu]16\b", ptx("row_law_weighted_plan", Variant(weights="float32"))
    )
    assert accesses.count(("ld", "")) == 0, accesses
    assert accesses.count(("ld", ".volatile")) == 2, accesses  # a kernel for short rows, one for long rows
    assert accesses.count(("st", ".volatile")) == 2, accesses
