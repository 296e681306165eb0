"""Errors of states that were taken of something else, or were changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spsample.errors import InputError, SpSampleError

__all__ = ["reading_state"]


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
