"""The GPU of a run, for the first line of its results, and graphs made on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu.rmat import device_pairs, rmat_csr
from graphs import graph_folder, save
from machine_facts import machine_facts


def gpu_facts(threads: int) -> dict[str, Any]:
    """As `machine_facts`, and the GPU, its memory, driver and libraries; "gpu" is None where there is none."""
    return {**machine_facts(threads), "gpu": _gpu()}


def _gpu() -> dict[str, Any] | None:
    if not has_gpu():
        return None
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "name": properties["name"].decode(),
        "memory": int(properties["totalGlobalMem"]),
        "multiprocessors": int(properties["multiProcessorCount"]),
        "second_level_cache": int(properties["l2CacheSize"]),
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
    }


def has_gpu() -> bool:
    """Whether CuPy is installed and finds a GPU."""
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.cuda.is_available())


def folder_of(spec: str, cache: Path) -> Path:
    """As `graph_folder`: the same graph, made on the GPU where it is an R-MAT and there is one."""
    name, _, sizes = spec.partition(":")
    folder = cache / spec.replace(":", "_").replace(",", "_").replace("/", "_")
    if name != "rmat" or folder.is_dir() or not has_gpu():
        return graph_folder(spec, cache)
    import cupy

    made = rmat_csr(*map(int, sizes.split(",")), device_pairs())
    arrays = {name: cupy.asnumpy(array) for name, array in made._asdict().items()}
    cupy.get_default_memory_pool().free_all_blocks()
    save(folder, **arrays)
    return folder
