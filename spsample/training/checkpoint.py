"""Checkpoints: files that are whole or not there, whose damage is detected, and states that fit the run.

A checkpoint is one line of text, ``spsample checkpoint 1 SHA256``, and what ``torch.save`` writes of a state, whose
hash this is. It is read with ``weights_only=True``: a foreign file runs no code.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from spsample.common.checks import require_path
from spsample.errors import DataError, DTypeError, InputError, SpSampleError
from spsample.settings.training import ADDED_SETTINGS
from spsample.sparse import keys
from spsample.store.folder import system_errors, whole_file
from spsample.training.optimisation import require_epochs

_MAGIC = b"spsample checkpoint 1 "
_HINT = "Take an older copy, or start the run again."
_PLAIN = (type(None), bool, int, float, str, bytes)


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


# -------------------------------------------------------------------------------------------------- states of a trainer

_KEYS = frozenset(
    ("law_version", "settings", "progress", "model", "optimizer", "schedule", "rng", "loader", "seconds", "callbacks")
)


@contextmanager
def reading_state() -> Iterator[None]:
    """Around the reading of a trainer's state, of which torch checks parts in words of its own.

    Raises
    ------
    InputError
        Where anything in the state is not what `Trainer.state_dict` puts there.

    Examples
    --------
    >>> with reading_state():
    ...     {}["model"]
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: state: got one that cannot be read (KeyError: 'model'); expected what ...
    """
    try:
        yield
    except SpSampleError:
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        given = f"one that cannot be read ({type(error).__name__}: {error})"
        raise InputError(argument="state", given=given, expected="what Trainer.state_dict gave, unchanged") from error


def check_state(state: Mapping[str, Any], settings: dict[str, Any], made_of: Any = None) -> None:
    """Refuse a state of a run with other settings, or of another version of the law.

    Parameters
    ----------
    state, settings
    made_of
        What a store was made of: older releases took its name for that of the data set.

    Raises
    ------
    InputError
        Naming what differs.
    """
    expected = "what state_dict() of a Trainer returned"
    missing = _KEYS - set(state)
    if missing:
        raise InputError(argument="state", given="no " + ", no ".join(sorted(missing)), expected=expected)
    theirs = {**ADDED_SETTINGS, **state["settings"], "law_version": state["law_version"]}
    mine = {**settings, "law_version": keys.LAW_VERSION}
    if made_of is not None and theirs.get("dataset") == made_of:
        mine["dataset"] = made_of
    differ = [name for name in (*mine, *(theirs.keys() - mine.keys())) if mine.get(name) != theirs.get(name)]
    names = [name for name in differ if name != "epochs"]
    if names:
        differences = ", ".join(f"{name} {theirs.get(name)!r} (here {mine.get(name)!r})" for name in names)
        given = f"a checkpoint with other settings: {differences}"
        raise InputError(argument="resume", given=given, expected="the settings of the run")
    if differ:
        _check_epochs(settings, theirs["epochs"], state["progress"])


def _check_epochs(settings: dict[str, Any], planned: int, progress: dict[str, Any]) -> None:
    """Refuse other epochs than were planned, where the run would differ from one of that length from the start."""
    epochs, trained = settings["epochs"], progress["epoch"]
    if epochs <= trained:
        given = f"{epochs} for a run that has trained {trained}"
        raise InputError(argument="epochs", given=given, expected=f"{planned}, or more than {trained}")
    if "before_last" not in progress:
        given = f"{epochs} for a checkpoint of an older release"
        raise InputError(argument="epochs", given=given, expected=str(planned))
    require_epochs(epochs, planned, settings["schedule"])
