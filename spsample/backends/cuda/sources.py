"""The CUDA sources: where they are, in which variants they are compiled, and NVRTC, which compiles them at run time."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from spsample.errors import BackendError, require_module

INDEX_TYPES = {"int32": "int32_t", "int64": "int64_t"}
WEIGHT_TYPES = {
    "unit": "UnitWeights",
    "row": "RowNormalizedWeights",
    "float32": "ArrayWeights<float>",
    "float64": "ArrayWeights<double>",
}
VALUE_TYPES = {"float32": "float", "float64": "double", "int64": "uint64_t", "uint64": "uint64_t"}
"""Values of the general product; whole numbers wrap around."""

OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "-default-device")
"""Float results are those of the host: no contraction, subnormal numbers kept, exact division and square root."""


class Variant(NamedTuple):
    """Choices a source is compiled for: the type of vertex ids, the kind of weights, and the values of a product."""

    ids: str = "int32"
    weights: str = "unit"
    values: str = "float32"

    @property
    def macros(self) -> tuple[str, ...]:
        """Compiler options that choose the variant."""
        types = {
            "INDEX": INDEX_TYPES[self.ids],
            "WEIGHTS": WEIGHT_TYPES[self.weights],
            "VALUE": VALUE_TYPES[self.values],
        }
        return tuple(f"-DSPSAMPLE_{name}={type_}" for name, type_ in types.items())


_MENTIONS = {
    "ids": (INDEX_TYPES, re.compile(r"\bIndex\b|\bSPSAMPLE_(ROWS|SELECTOR)(_PARAMETERS)?\b")),
    "weights": (WEIGHT_TYPES, re.compile(r"\bWeights\b|\bSPSAMPLE_(ROW_WEIGHTS|WEIGHTS_PARAMETERS)\b")),
    "values": (VALUE_TYPES, re.compile(r"\bSPSAMPLE_VALUE\b")),
}
"""For each field of `Variant` what it may be, and what a source that depends on it mentions."""

_STORED_WEIGHTS = re.compile(r"\bweights\w*\.row\(")
"""Call in a source that is compiled for stored weights only: `RowWeights::row` is theirs alone."""

_INCLUDE = re.compile(r'^#include "(\w+\.h)"', re.MULTILINE)


def kernel_folder() -> Path:
    """The folder of `cuda/*.cu` and `include/spsample/*.h`: in the installed package, or beside it in a checkout.

    Raises
    ------
    BackendError
        If they are in neither.

    Examples
    --------
    >>> sorted(path.name for path in kernel_folder().iterdir() if path.name in ("cuda", "include"))
    ['cuda', 'include']
    """
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "kernels", package.parent / "kernels"):
        if (folder / "cuda").is_dir():
            return folder
    raise BackendError(
        f"the CUDA sources are missing: neither {package / 'kernels'} nor its neighbour. Reinstall spsample."
    )


def source_path(source: str) -> Path:
    """The file of a source by its name, as "row_law"."""
    return kernel_folder() / "cuda" / f"{source}.cu"


def source_names() -> list[str]:
    """All sources.

    Examples
    --------
    >>> "row_law" in source_names()
    True
    """
    return sorted(path.stem for path in (kernel_folder() / "cuda").glob("*.cu"))


def variants(source: str) -> list[Variant]:
    """The variants of a source that differ, by what it and its own headers mention.

    Examples
    --------
    >>> variants("row_law")
    [Variant(ids='int32', weights='unit', values='float32'), Variant(ids='int64', weights='unit', values='float32')]
    """
    text = _own_text(source_path(source).name)
    choices = {name: list(types) for name, (types, mention) in _MENTIONS.items() if mention.search(text)}
    if _STORED_WEIGHTS.search(text):
        choices["weights"] = ["float32", "float64"]
    return [Variant(**dict(zip(choices, some, strict=True))) for some in itertools.product(*choices.values())]


def _own_text(name: str) -> str:
    """The text of a file of `cuda/` and of what it includes from there; not of device.h, which mentions everything."""
    text = (kernel_folder() / "cuda" / name).read_text(encoding="utf-8")
    headers = [header for header in _INCLUDE.findall(text) if header not in ("device.h", "emulator.h")]
    return "\n".join([text, *map(_own_text, headers)])


def include_options() -> tuple[str, ...]:
    """Compiler options that find the headers."""
    folder = kernel_folder()
    return (f"-I{folder / 'include'}", f"-I{folder / 'cuda'}")


def cubin(source: str, variant: Variant, arch: str) -> Path:
    """The compiled source for an architecture such as "sm_90": a file, made on first use and kept.

    Files are kept in the folder `SPSAMPLE_CACHE_DIR`, or else `spsample` in `XDG_CACHE_HOME` or `~/.cache`, under a
    name that is a hash of all sources, the options and the version of NVRTC.

    Raises
    ------
    MissingDependencyError
        If cuda-bindings or NVRTC is not installed.
    BackendError
        If the source does not compile; the message is the compiler's. Or if the file cannot be written.
    """
    options = (*OPTIONS, *variant.macros, f"--gpu-architecture={arch}")
    name = hashlib.sha256("\n".join((source, *options, _version(), _digest())).encode()).hexdigest()
    path = cache_folder() / f"{source}-{arch}-{name[:32]}.cubin"
    if not path.exists():
        _write(path, compile_source(source, (*options, *include_options())))
    return path


def cubins(sources: Iterable[str], variant: Variant, arch: str) -> dict[str, Path]:
    """As `cubin`, of several sources: a thread compiles each, at the same time."""
    names = sorted(set(sources))
    with ThreadPoolExecutor(max(len(names), 1)) as pool:
        return dict(zip(names, pool.map(lambda name: cubin(name, variant, arch), names), strict=True))


def cache_folder() -> Path:
    """The folder where compiled kernels are kept."""
    given = os.environ.get("SPSAMPLE_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spsample"


def compile_source(source: str, options: tuple[str, ...]) -> bytes:
    """The cubin that NVRTC makes of a source; needs no GPU."""
    return compile_with_log(source, options)[0]


def compile_with_log(source: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    """The cubin and what the compiler says: with the option `--ptxas-options=-v` the registers of each kernel."""
    nvrtc = _nvrtc()
    path = source_path(source)
    program = _checked(nvrtc.nvrtcCreateProgram(path.read_bytes(), path.name.encode(), 0, [], []))
    status = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])[0]
    log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    said = log.decode(errors="replace").strip("\0\n ")
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BackendError(f"{path} does not compile ({' '.join(options)}):\n{said}")
    compiled: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked(nvrtc.nvrtcGetCUBIN(program, compiled))
    nvrtc.nvrtcDestroyProgram(program)
    return compiled, said


def _nvrtc() -> Any:
    return require_module("cuda.bindings.nvrtc", needed_for="backend 'cuda'", extra="gpu", install=None)


def _checked(result: tuple[Any, ...]) -> Any:
    """Return the result of a call of NVRTC beside its status."""
    if int(result[0]) != 0:
        raise BackendError(f"NVRTC failed: {result[0].name}")
    return result[1] if len(result) > 1 else None


@cache
def _version() -> str:
    nvrtc = _nvrtc()
    return repr(nvrtc.nvrtcVersion()[1:])


@cache
def _digest() -> str:
    """Hash of all sources and headers."""
    folder = kernel_folder()
    digest = hashlib.sha256()
    for path in sorted([*(folder / "cuda").iterdir(), *(folder / "include").rglob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Under its name in one step: other processes may compile the same."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as folder:
            partial = Path(folder) / path.name
            partial.write_bytes(content)
            os.replace(partial, path)
    except OSError as error:
        raise BackendError(
            f"compiled kernels cannot be kept in {path.parent}: {error.strerror}. "
            "Set SPSAMPLE_CACHE_DIR to a folder that can be written."
        ) from error
