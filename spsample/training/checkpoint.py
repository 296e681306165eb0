"""Checkpoints: files that are whole or not there, and whose damage is detected.

A checkpoint is one line of text, ``spsample checkpoint 1 SHA256``, and what ``torch.save`` writes of a state, whose
hash this is. It is read with ``weights_only=True``: a foreign file runs no code.
"""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from spsample.common.checks import require_path
from spsample.errors import DataError, DTypeError
from spsample.store.folder import system_errors, whole_file

_MAGIC = b"spsample checkpoint 1 "
_HINT = "Take an older copy, or start the run again."


def write_checkpoint(path: str | Path, state: dict[str, Any]) -> None:
    """Write a state under a temporary name, force it to the disk and rename it: a crash leaves the old file or the new.

    Raises
    ------
    DTypeError
        If there is something in the state that `read_checkpoint` would refuse: what is no plain value and no tensor.
    DataError
        If the system refuses, as where the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "checkpoint.pt"
    >>> write_checkpoint(path, {"weights": torch.arange(2), "epoch": 3})
    >>> read_checkpoint(path)
    {'weights': tensor([0, 1]), 'epoch': 3}
    """
    path = require_path("path", path)
    _require_plain("state", state)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    with system_errors(path, "a file that can be written", "an older checkpoint stays"), whole_file(path) as file:
        file.write(_MAGIC + sha256(payload).hexdigest().encode() + b"\n")
        file.write(payload)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return the state that was written, its tensors on the CPU, wherever they were.

    Raises
    ------
    DataError
        If there is no such file, it is no checkpoint of this library, or it is damaged.
    """
    path = require_path("path", path)
    expected = "a checkpoint that spsample wrote"
    if not path.is_file():
        raise DataError(argument=str(path), given="no such file", expected=expected)
    with system_errors(path, expected):
        content = path.read_bytes()
    header, _, payload = content.partition(b"\n")
    if not header.startswith(_MAGIC):
        raise DataError(argument=str(path), given="a file of another kind", expected=expected)
    if header[len(_MAGIC) :].decode("ascii", "replace") != sha256(payload).hexdigest():
        raise DataError(argument=str(path), given="a damaged or truncated file", expected=expected, hint=_HINT)
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # torch and pickle raise many types
        first_line = str(error).strip().partition("\n")[0][:200]
        given = f"contents that cannot be read ({type(error).__name__}: {first_line})"
        raise DataError(argument=str(path), given=given, expected=expected, hint=_HINT) from error
    if not isinstance(state, dict):
        raise DataError(argument=str(path), given=f"a {type(state).__name__}", expected=expected, hint=_HINT)
    return state


def _require_plain(place: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, entry in value.items():
            _require_plain(f"{place}[{key!r}]", entry)
    elif isinstance(value, (list, tuple)):
        for number, entry in enumerate(value):
            _require_plain(f"{place}[{number}]", entry)
    elif not isinstance(value, torch.Tensor) and type(value) not in _PLAIN:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        expected = "None, a bool, a number or a text of Python's own, a tensor, or lists and dictionaries of these"
        raise DTypeError(argument=place, given=f"an object of type {kind}", expected=expected)


_PLAIN = (type(None), bool, int, float, str, bytes)
