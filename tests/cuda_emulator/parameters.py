"""Which parameters of a kernel it only reads, by its source."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from spsample.backends.cuda.sources import kernel_folder

_DEFINE = re.compile(r"^#define (\w+PARAMETERS)\b((?:.*\\\n)*.*)", re.MULTILINE)
_KERNEL = r"__global__[^;{{]*?\b{name}\(([^{{]*)\)\s*\{{"
_MACRO = re.compile(r"\b\w+PARAMETERS\b")


@cache
def only_read(source: Path, kernel: str) -> tuple[bool, ...]:
    """For each parameter of a kernel of a file, whether it is a pointer to constants or a number.

    Examples
    --------
    >>> only_read(kernel_folder() / "cuda" / "stacking.cu", "edge_index")
    (True, True, True, True, False)
    """
    text = source.read_text(encoding="utf-8")
    headers = sorted((kernel_folder() / "cuda").glob("*.h"))
    known = "\n".join([text, *(header.read_text(encoding="utf-8") for header in headers)])
    macros = {name: body.replace("\\\n", " ") for name, body in _DEFINE.findall(known)}
    found = re.search(_KERNEL.format(name=kernel), text)
    assert found, f"{source}: no kernel {kernel}"
    given = found[1]
    while _MACRO.search(given):
        given = _MACRO.sub(lambda macro: macros[macro[0]], given)
    return tuple("*" not in part or "const" in part for part in given.split(",") if part.strip())
