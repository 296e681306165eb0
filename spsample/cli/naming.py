"""Errors in the words of the command line: the option that was typed, not the name of a parameter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spsample.errors import CapacityError, InputError

__all__ = ["as_typed"]


def as_typed(error: BaseException, params: Iterable[Any]) -> BaseException:
    """Return an error about an argument as one about the option of a command that it came from.

    Parameters
    ----------
    error
        Any error.
    params
        Those of the command.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> rate = SimpleNamespace(name="learning_rate", opts=["--lr"])
    >>> error = InputError(argument="learning_rate", given="-1.0", expected="a positive number")
    >>> print(as_typed(error, [rate]))
    --lr: got -1.0; expected a positive number
    """
    if not isinstance(error, (InputError, CapacityError)):
        return error
    flags = {param.name: param.opts[0] for param in params}
    flags |= {flag.removeprefix("--").replace("-", "_"): flag for flag in flags.values()}
    name, bracket, position = error.argument.partition("[")
    flag = flags.get(name, "")
    if not flag.startswith("--"):
        return error
    argument = flag + bracket + position
    return type(error)(argument=argument, given=error.given, expected=error.expected, hint=error.hint)
