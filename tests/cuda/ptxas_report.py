"""What NVRTC and nvcc make of the CUDA sources: registers, spills, stack and code of every kernel. Needs no GPU.

Reports are kept by the content of what was compiled, so that a second run compiles what changed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

from spsample.backends.cuda.sources import (
    OPTIONS,
    Variant,
    compile_with_log,
    include_options,
    kernel_folder,
    source_path,
    variants,
)

ARCHITECTURES = ("sm_80", "sm_90")
COMPILERS = ("nvrtc", "nvcc")

NVCC_OPTIONS = ("-std=c++17", "-O3", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""The options of NVRTC, as nvcc has them."""


class KernelReport(NamedTuple):
    """One kernel as the assembler left it.

    Bytes are those of a thread, `shared` those of a block, `code` those of its instructions.
    """

    name: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    code: int = 0

    @property
    def spills(self) -> int:
        """Bytes that a thread writes and reads because registers are short."""
        return self.spill_stores + self.spill_loads


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_CODE = re.compile(r"^code (\w+) (\d+)$", re.MULTILINE)
_SHARED = re.compile(r"(\d+) bytes smem")


def code_bytes(cubin: bytes) -> dict[str, int]:
    """Bytes of instructions of each kernel of a cubin: of the sections `.text.KERNEL` of this ELF file."""
    begin, count, names = (struct.unpack_from(kind, cubin, at)[0] for kind, at in (("<Q", 40), ("<H", 60), ("<H", 62)))
    sections = [struct.unpack_from("<IIQQQQ", cubin, begin + 64 * i) for i in range(count)]
    found = {}
    for name, *_, size in sections:
        at = sections[names][4] + name
        label = cubin[at : cubin.index(b"\0", at)].decode()
        if label.startswith(".text."):
            found[label.removeprefix(".text.")] = int(size)
    return found


def parsed(log: str) -> list[KernelReport]:
    """The kernels of a log: what `ptxas -v` printed, then a line "code KERNEL BYTES" for each.

    Functions that a kernel calls count as its own.
    """
    reports: list[KernelReport] = []
    code = {name: int(size) for name, size in _CODE.findall(log)}
    name, memory = "", (0, 0, 0)
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name, memory = entry[1], (0, 0, 0)
        elif found := _MEMORY.search(line):
            memory = tuple(a + int(b) for a, b in zip(memory, found.groups(), strict=True))
        elif used := _USED.search(line):
            shared = _SHARED.search(line)
            reports.append(
                KernelReport(name, int(used[1]), *memory, int(shared[1]) if shared else 0, code.get(name, 0))
            )
            name, memory = "", (0, 0, 0)
    return reports


@cache
def find_nvcc() -> str | None:
    """nvcc of PATH, or of the package nvidia-cuda-nvcc; None where there is neither."""
    on_path = shutil.which("nvcc")
    if on_path:
        return on_path
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else None
    found = (path for folder in folders or () for path in sorted(Path(folder).glob("*/bin/nvcc")))
    return str(next(found, "")) or None


@cache
def missing(compiler: str) -> str | None:
    """Why a compiler cannot be used here; None where it can."""
    if compiler == "nvcc":
        if find_nvcc() is None:
            return "no nvcc on PATH, nor the package nvidia-cuda-nvcc (make cuda-check installs it)"
        return _nvcc_refusal()
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        return f"no NVRTC: {type(error).__name__}: {error} (make cuda-check installs it)"
    return None


def _nvcc_refusal() -> str | None:
    """What nvcc says where it cannot compile a kernel that does nothing, as without a C++ compiler that it knows."""
    with tempfile.TemporaryDirectory(prefix="spsample-nvcc-") as folder:
        source = Path(folder, "nothing.cu")
        source.write_text("__global__ void nothing() {}\n")
        command = [str(find_nvcc()), "-cubin", f"-arch={ARCHITECTURES[0]}", str(source), "-o", f"{folder}/out"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return f"nvcc does not run: {error}"
        return f"nvcc does not compile: {(done.stderr + done.stdout).strip()[-200:]}" if done.returncode else None


def compiled(compiler: str, source: str, arch: str, workers: int = 0) -> dict[Variant, list[KernelReport]]:
    """The kernels of a source in each of its variants, compiled by so many threads (0: as many as processors).

    Raises
    ------
    BackendError, AssertionError
        If a variant does not compile; the message is the compiler's.
    """
    kinds = variants(source)
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        logs = pool.map(lambda variant: _kept_log(compiler, source, variant, arch), kinds)
        return {variant: parsed(log) for variant, log in zip(kinds, logs, strict=True)}


def _kept_log(compiler: str, source: str, variant: Variant, arch: str) -> str:
    key = repr(("code", compiler, _version(compiler), OPTIONS, NVCC_OPTIONS, variant.macros, arch, _digest(source)))
    folder = Path(tempfile.gettempdir()) / f"spsample-ptxas-{os.getuid()}"
    path = folder / f"{source}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.log"
    if not path.exists():
        log = _with_code(*_COMPILE[compiler](source, variant, arch))
        folder.mkdir(exist_ok=True)
        # A name of its own for each thread: two may compile variants of equal macros at once.
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as partial:
            partial.write(log)
        Path(partial.name).replace(path)
    return path.read_text(encoding="utf-8")


def _with_code(cubin: bytes, log: str) -> str:
    return "\n".join([log.rstrip(), *(f"code {name} {size}" for name, size in code_bytes(cubin).items()), ""])


def _by_nvrtc(source: str, variant: Variant, arch: str) -> tuple[bytes, str]:
    options = (*OPTIONS, *variant.macros, f"--gpu-architecture={arch}", "--ptxas-options=-v", *include_options())
    return compile_with_log(source, options)


def _by_nvcc(source: str, variant: Variant, arch: str) -> tuple[bytes, str]:
    return _nvcc(source, variant, ["-cubin", f"-arch={arch}", "-Xptxas", "-v"])


def ptx(source: str, variant: Variant) -> str:
    """What nvcc makes of a source before the assembler has it."""
    return _nvcc(source, variant, ["-ptx", f"-arch={ARCHITECTURES[0].replace('sm', 'compute')}"])[0].decode()


def _nvcc(source: str, variant: Variant, options: list[str]) -> tuple[bytes, str]:
    """The file that nvcc makes of a source, and what it says."""
    nvcc = find_nvcc()
    assert nvcc is not None
    with tempfile.TemporaryDirectory(prefix="spsample-nvcc-") as folder:
        output = Path(folder) / "out"
        command = [nvcc, *NVCC_OPTIONS, *options, *variant.macros, *include_options()]
        command += [str(source_path(source)), "-o", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return output.read_bytes(), done.stdout + done.stderr


_COMPILE = {"nvrtc": _by_nvrtc, "nvcc": _by_nvcc}


@cache
def _version(compiler: str) -> str:
    if compiler == "nvcc":
        done = subprocess.run([str(find_nvcc()), "--version"], capture_output=True, text=True, check=True)
        return done.stdout
    from cuda.bindings import nvrtc

    return repr((nvrtc.nvrtcVersion()[1:], importlib.metadata.version("cuda-bindings")))


def _digest(source: str) -> str:
    """Of the source and of all headers."""
    folder = kernel_folder()
    files = [source_path(source), *sorted((folder / "cuda").glob("*.h")), *sorted((folder / "include").rglob("*.h"))]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
