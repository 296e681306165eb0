"""Registers, code, spills and stack of every kernel by NVRTC and nvcc; no GPU: `python tests/cuda/registers.py`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from ptxas_report import ARCHITECTURES, COMPILERS, KernelReport, compiled, missing
from rich.console import Console
from rich.table import Table

from spsample.backends.cuda.device import BLOCK
from spsample.backends.cuda.sources import source_names

REGISTERS = 1 << 16  # of a multiprocessor, given out by 256 to a warp
SHARED = {"sm_80": 164 << 10, "sm_90": 228 << 10}  # bytes of a multiprocessor
RESERVED = 1 << 10  # bytes of shared memory that each block takes besides
MOST_WARPS = 64
COLUMNS = (
    "source",
    "kernel",
    "variant",
    "registers",
    "warps",
    "shared bytes",
    "code KiB",
    "spilled bytes",
    "stack bytes",
)


def resident_warps(kernel: KernelReport, arch: str, block: int = BLOCK) -> int:
    """Warps of a multiprocessor (of 64) that registers and shared memory allow, in whole blocks."""
    per_warp = -(-max(kernel.registers, 1) * 32 // 256) * 256
    per_block = block // 32
    blocks = min(REGISTERS // per_warp, MOST_WARPS) // per_block
    if kernel.shared and arch in SHARED:
        blocks = min(blocks, SHARED[arch] // (kernel.shared + RESERVED))
    return blocks * per_block


def register_table(compiler: str, arch: str, sources: list[str]) -> Table:
    """A row for each kernel in each variant in which it differs."""
    table = Table(
        *COLUMNS, title=f"{compiler}, {arch}; warps: of {MOST_WARPS} on a multiprocessor, in blocks of {BLOCK}"
    )
    for source in sources:
        before: dict[str, KernelReport] = {}
        for variant, kernels in compiled(compiler, source, arch).items():
            for kernel in sorted(kernels):
                if before.get(kernel.name) == kernel:
                    continue
                before[kernel.name] = kernel
                warps, code = resident_warps(kernel, arch), kernel.code / 1024
                sizes = (kernel.registers, warps, kernel.shared, f"{code:.1f}", kernel.spills, kernel.stack)
                table.add_row(source, kernel.name, " ".join(variant), *map(str, sizes))
    return table


def registers(
    compiler: Annotated[list[str] | None, typer.Option(help="nvrtc or nvcc. Both, by default.")] = None,
    arch: Annotated[list[str] | None, typer.Option(help="Architectures.")] = None,
    source: Annotated[list[str] | None, typer.Option(help="Sources. All, by default.")] = None,
) -> None:
    """A table for each compiler and architecture; a variant is left out where it equals the one before it."""
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    for one in compiler or COMPILERS:
        reason = missing(one)
        if reason is not None:
            console.print(f"{one}: missing ({reason})", markup=False)
            continue
        for architecture in arch or ARCHITECTURES:
            console.print(register_table(one, architecture, source or source_names()))


if __name__ == "__main__":
    typer.run(registers)
