"""`StageThreads`: the numbers of threads of the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from spsample.common.checks import require_int, short
from spsample.common.threads import MAX_THREADS
from spsample.errors import DTypeError, InputError

_EXPECTED = "numbers of threads of sampling, features and perhaps training, as in '2,1' or '2,1,4'"
_HINT = "'auto' is gone: give numbers, or nothing, and each stage has as many threads as set_num_threads says."


class StageThreads(NamedTuple):
    """Numbers of threads of the stages.

    Attributes
    ----------
    sampling, features : int
        Of the kernels.
    training : int or None
        Of torch; None: as many as it has.
    """

    sampling: int
    features: int
    training: int | None = None


def require_stage_threads(argument: str, value: Any) -> StageThreads:
    """Return the numbers of threads that a text or a sequence names.

    Raises
    ------
    DTypeError, InputError
        If it is neither, or has other entries than 2 or 3, or an entry that is no number from 1 to 4096.

    Examples
    --------
    >>> require_stage_threads("stage_threads", "2,1")
    StageThreads(sampling=2, features=1, training=None)
    >>> require_stage_threads("stage_threads", (2, 1, 4))
    StageThreads(sampling=2, features=1, training=4)
    """
    if isinstance(value, StageThreads):
        value = [number for number in value if number is not None]
    entries = _entries(argument, value)
    if len(entries) not in (2, 3) or any(isinstance(entry, str) for entry in entries):
        hint = _HINT if "auto" in entries else ""
        raise InputError(argument=argument, given=short(value), expected=_EXPECTED, hint=hint)
    limits = {"minimum": 1, "maximum": MAX_THREADS}
    return StageThreads(*(require_int(f"{argument}[{i}]", entry, **limits) for i, entry in enumerate(entries)))


def _entries(argument: str, value: Any) -> Sequence[Any]:
    if isinstance(value, str):
        return [_number_or_word(entry.strip()) for entry in value.split(",")]
    if isinstance(value, (list, tuple)):
        return value
    raise DTypeError(argument=argument, given=short(value), expected=_EXPECTED)


def _number_or_word(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text
