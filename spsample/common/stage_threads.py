"""`StageThreads`: how many threads each stage of a pipeline uses, as it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from spsample.common.checks import require_int, short
from spsample.common.threads import MOST_THREADS
from spsample.errors import DTypeError, InputError

__all__ = ["StageThreads", "require_stage_threads"]

AUTO = "auto"
_EXPECTED = (
    "'auto', or numbers of threads of sampling, features and perhaps training, as in '2,1' or 'auto,1,2', "
    "where the first two can be auto"
)


class StageThreads(NamedTuple):
    """How many threads each stage uses.

    Attributes
    ----------
    sampling, features : int or None
        Of the kernels; None: chosen from a trial.
    training : int or None
        Of torch; None: as many as it has.
    """

    sampling: int | None = None
    features: int | None = None
    training: int | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether any of them is chosen from a trial."""
        return self.sampling is None or self.features is None


def require_stage_threads(argument: str, value: Any) -> StageThreads:
    """Return the numbers of threads that a text or a sequence names.

    Raises
    ------
    DTypeError, InputError
        If it is neither, or has other entries than 2 or 3, or an entry that is no number from 1 to 4096.

    Examples
    --------
    >>> require_stage_threads("stage_threads", "auto")
    StageThreads(sampling=None, features=None, training=None)
    >>> require_stage_threads("stage_threads", "auto,1,2")
    StageThreads(sampling=None, features=1, training=2)
    >>> require_stage_threads("stage_threads", (2, 1)).is_chosen
    False
    """
    if isinstance(value, StageThreads):
        value = [AUTO if one is None else one for one in (value[:2] if value.training is None else value)]
    if isinstance(value, str) and value.strip() == AUTO:
        return StageThreads()
    entries = _entries(argument, value)
    if len(entries) not in (2, 3) or (len(entries) == 3 and entries[2] == AUTO):
        raise InputError(argument=argument, given=short(value), expected=_EXPECTED, hint=_hint(entries))
    return StageThreads(*(_threads(f"{argument}[{i}]", one) for i, one in enumerate(entries)))


def _hint(entries: Sequence[Any]) -> str:
    if len(entries) == 3:
        return "Losses can depend on torch's number of threads, so that none is chosen for it."
    return ""


def _entries(argument: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        return [_number_or_word(one.strip()) for one in value.split(",")]
    if isinstance(value, (list, tuple)):
        return list(value)
    raise DTypeError(argument=argument, given=short(value), expected=_EXPECTED)


def _number_or_word(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _threads(argument: str, value: Any) -> int | None:
    if isinstance(value, str):
        if value != AUTO:
            raise InputError(argument=argument, given=short(value), expected=_EXPECTED)
        return None
    return require_int(argument, value, minimum=1, maximum=MOST_THREADS)
