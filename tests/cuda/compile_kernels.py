"""Compile every CUDA source in every variant, to be carried to a machine without a network; no GPU needed.

`SPSAMPLE_CACHE_DIR=FOLDER python tests/cuda/compile_kernels.py --arch sm_90`. The machine needs the same sources and the
same version of NVRTC, or it compiles them anew.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from spsample.backends.cuda.sources import cache_folder, cubin, source_names, variants

ARCHITECTURES = ("sm_80", "sm_90")


def compile_kernels(
    arch: Annotated[list[str] | None, typer.Option(help="An architecture; may be repeated. All, by default.")] = None,
    threads: Annotated[int, typer.Option(help="0: one for each processor.")] = 0,
) -> None:
    """Fill the folder SPSAMPLE_CACHE_DIR, or else the user's cache; what is there already is kept."""
    begin = time.perf_counter()
    jobs = [(name, kind, one) for one in arch or ARCHITECTURES for name in source_names() for kind in variants(name)]
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        paths = list(pool.map(lambda job: cubin(*job), jobs))
    size, took = sum(path.stat().st_size for path in paths), time.perf_counter() - begin
    print(f"{len(paths)} compiled kernels, {size / 2**20:.1f} MiB, in {cache_folder()} after {took:.0f} s")


if __name__ == "__main__":
    typer.run(compile_kernels)
