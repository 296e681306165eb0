"""Python packages: whether they are installed, and whether those that other libraries can break can be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from spsample.cli.machine.finding import Finding, finished

__all__ = ["PACKAGES", "Package", "packages"]

_SECONDS = 90.0


class Package(NamedTuple):
    """A package: its area, what it is needed for, how to get it, and an expression that tells more once imported.

    Without an expression it is not imported: nothing but its own files can break it, and it may take seconds.
    """

    area: str
    module: str
    distributions: tuple[str, ...]
    use: str
    install: str
    more: str | None = None


_NO_MORE = "''"
_TORCH = "f'CUDA {m.version.cuda}' if m.version.cuda else f'ROCm {m.version.hip}' if m.version.hip else 'CPU build'"
_MPI = "m.Get_library_version().split(chr(0))[0].splitlines()[0]"
_CUPY = "f'CUDA runtime {m.cuda.runtime.runtimeGetVersion()}, NVRTC {m.cuda.nvrtc.getVersion()}'"
_CUPY_WHEELS = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")
_CUPY_INSTALL = 'pip install cupy-cuda13x "cuda-bindings<14" "nvidia-cuda-nvrtc<14"'
_TORCH_SPARSE = "pip install --no-build-isolation torch-scatter torch-sparse, which compiles for 15 to 30 minutes"
_PYG_LIB = "not on PyPI; https://data.pyg.org/whl has wheels for some versions of torch"
_DGL = "https://www.dgl.ai/pages/start.html has wheels for some versions of torch"

PACKAGES = (
    Package("training", "torch", ("torch",), "training and the PyG adapters", "pip install torch", _TORCH),
    Package(
        "training", "torch_geometric", ("torch_geometric", "torch-geometric"), "models", "pip install torch_geometric"
    ),
    Package("training", "torchmetrics", ("torchmetrics",), "figures of merit", "pip install torchmetrics"),
    Package(
        "training", "torch_sparse", ("torch_sparse", "torch-sparse"), "mb.to_torch_sparse()", _TORCH_SPARSE, _NO_MORE
    ),
    Package("training", "pyg_lib", ("pyg_lib", "pyg-lib"), "PyG's own sampler, to compare with", _PYG_LIB, _NO_MORE),
    Package("training", "dgl", ("dgl",), "mb.to_dgl()", _DGL, _NO_MORE),
    Package("training", "tensorboard", ("tensorboard",), "curves in TensorBoard", "pip install tensorboard"),
    Package("MPI", "mpi4py.MPI", ("mpi4py",), "running on several ranks", "pip install mpi4py", _MPI),
    Package("GPU", "cupy", _CUPY_WHEELS, "sampling on a GPU", _CUPY_INSTALL, _CUPY),
    Package("data", "pyarrow", ("pyarrow",), "Parquet and Arrow files", "pip install pyarrow", _NO_MORE),
    Package("data", "sklearn", ("scikit-learn",), "the data set 'digits'", "pip install scikit-learn"),
    Package("data", "ogb", ("ogb",), "the data sets ogbn-*", "pip install ogb"),
    Package("data", "matplotlib", ("matplotlib",), "plots", "pip install matplotlib"),
    Package("data", "pymetis", ("pymetis",), "partitions by METIS", "pip install pymetis", _NO_MORE),
)


def packages(say: Callable[[str], object]) -> list[Finding]:
    """Look for the optional packages; those with an expression are imported in processes of their own, with a limit.

    `say` is told which one is looked at.
    """

    def found(package: Package) -> Finding:
        say(package.module)
        return _finding(package)

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(found, PACKAGES))


def _finding(package: Package) -> Finding:
    installed = _installed(package)
    name = package.module.partition(".")[0]
    if installed is None:
        advice = f"for {package.use}: {package.install}"
        return Finding(package.area, name, "missing", "not installed", advice)
    more, error = _imported(package)
    if error:
        advice = f"uninstall it, then: {package.install}"
        return Finding(package.area, name, "broken", f"{installed}, which cannot be imported: {error}", advice)
    return Finding(package.area, name, "ok", f"{installed}, {more}" if more else installed)


def _installed(package: Package) -> str | None:
    for name in package.distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _imported(package: Package) -> tuple[str, str]:
    """Import a package elsewhere, if it is to be imported: what more it says, and what went wrong."""
    if package.more is None:
        return "", ""
    code = (
        f"import importlib, json\nm = importlib.import_module({package.module!r})\n"
        f"try:\n    more = str({package.more})\nexcept Exception as error:\n    more = str(error)\n"
        "print('\\n' + json.dumps(more), flush=True)\nimport os; os._exit(0)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    try:
        done = finished(command, _SECONDS, {**os.environ, "OMP_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        return "", f"no answer within {_SECONDS:.0f} seconds"
    except OSError as error:
        return "", str(error)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return "", lines[-1] if lines else f"its import ended with status {done.returncode}"
    try:
        return str(json.loads(done.stdout.strip().splitlines()[-1])), ""
    except (ValueError, IndexError):
        return "", ""
