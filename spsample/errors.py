"""The exceptions spsample raises.

Every exception is a `SpSampleError` and also one of Python's own (``ValueError``, ``TypeError``, ...),
so that code which knows nothing of spsample catches it under the usual name::

    SpSampleError
      InputError             ValueError      an argument has a value that cannot be used
        DTypeError           TypeError       an argument has the wrong type, dtype or device
        ConsumedError        ValueError      a sample is looked at that EXTRACT has consumed
      CapacityError          OverflowError   an integer size or headroom would be passed
      DataError              OSError         a file is missing, truncated or not of the form expected
      MissingDependencyError ImportError     an optional package is not installed
      BackendError           RuntimeError    a backend cannot run here, or failed
      CommunicationError     RuntimeError    another rank is lost, or does not answer
      RankError              RuntimeError    another rank failed with an error that is not spsample's

The first four say which argument it was, what was given and what was expected, in words and as attributes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "BackendError",
    "CapacityError",
    "CommunicationError",
    "ConsumedError",
    "DTypeError",
    "DataError",
    "InputError",
    "MissingDependencyError",
    "RankError",
    "SpSampleError",
]


class SpSampleError(Exception):
    """Base class of every exception that spsample raises on purpose."""


def _rebuild(cls: type[SpSampleError], fields: dict[str, Any]) -> SpSampleError:
    """Make an exception again from its keyword arguments (used by pickle and copy)."""
    return cls(**fields)


class _ArgumentError(SpSampleError):
    """Say what is wrong with one argument: "argument: got given; expected expected. hint"."""

    def __init__(self, *, argument: str, given: str, expected: str, hint: str = "") -> None:
        message = f"{argument}: got {given}; expected {expected}"
        super().__init__(f"{message}. {hint}" if hint else message)
        self.argument = argument
        self.given = given
        self.expected = expected
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {
            "argument": self.argument,
            "given": self.given,
            "expected": self.expected,
            "hint": self.hint,
        }
        return _rebuild, (type(self), fields)


class InputError(_ArgumentError, ValueError):
    """An argument has a value that cannot be used; nothing was clipped, reordered or computed.

    Parameters
    ----------
    argument : str
        Name of the argument as the caller wrote it.
    given : str
        What was given; for an array the first bad entry and its position.
    expected : str
        What would have been accepted.
    hint : str, optional
        A sentence saying how to get there.

    Examples
    --------
    >>> raise InputError(argument="seeds", given="-3 at position 17", expected="vertex ids in [0, 2708)")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: seeds: got -3 at position 17; expected vertex ids in [0, 2708)
    """


class DTypeError(InputError, TypeError):
    """An argument has the wrong type, dtype or device; takes the same keywords as `InputError`.

    Examples
    --------
    >>> try:
    ...     raise DTypeError(argument="seeds", given="dtype float64", expected="an integer dtype")
    ... except TypeError as error:
    ...     print(error)
    seeds: got dtype float64; expected an integer dtype
    """


class ConsumedError(InputError):
    """A sample is looked at that EXTRACT has consumed; takes the same keywords as `InputError`.

    Examples
    --------
    >>> print(ConsumedError(argument="sample", given="a consumed sample", expected="one that is whole"))
    sample: got a consumed sample; expected one that is whole
    """


class CapacityError(_ArgumentError, OverflowError):
    """An integer size or headroom would be passed; takes the same keywords as `InputError`.

    Examples
    --------
    >>> error = CapacityError(argument="num_nodes", given="2**50", expected="at most 2**48 vertices")
    >>> str(error)
    'num_nodes: got 2**50; expected at most 2**48 vertices'
    >>> isinstance(error, OverflowError)
    True
    """


class DataError(_ArgumentError, OSError):
    """A file is missing, truncated or not of the form expected; ``argument`` is its path.

    Where there is no file at all, ``argument`` names the argument that held the path.

    Examples
    --------
    >>> str(DataError(argument="cora.npz", given="no array 'indptr'", expected="a graph in CSR form"))
    "cora.npz: got no array 'indptr'; expected a graph in CSR form"
    """


class MissingDependencyError(SpSampleError, ImportError):
    """An optional package is needed and is not installed.

    Parameters
    ----------
    package : str
        Name of the package.
    needed_for : str
        What needs it.
    extra : str, optional
        The extra of spsample that installs it; without one the package itself is named.
    install : str, optional
        What to give to ``pip install`` instead of either.

    Examples
    --------
    >>> print(MissingDependencyError(package="torch", needed_for="mb.to_pyg()", extra="pyg"))
    mb.to_pyg() needs the package torch, which is not installed; install it with: pip install "spsample[pyg]"
    """

    def __init__(self, *, package: str, needed_for: str, extra: str | None = None, install: str | None = None) -> None:
        wanted = install or (f'"spsample[{extra}]"' if extra else package)
        super().__init__(
            f"{needed_for} needs the package {package}, which is not installed; install it with: pip install {wanted}"
        )
        self.package = package
        self.needed_for = needed_for
        self.extra = extra
        self.install = install

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {
            "package": self.package,
            "needed_for": self.needed_for,
            "extra": self.extra,
            "install": self.install,
        }
        return _rebuild, (type(self), fields)


class BackendError(SpSampleError, RuntimeError):
    """A backend is unknown to this installation, cannot run on this machine, or failed while it ran.

    Examples
    --------
    >>> raise BackendError("backend 'cuda' found no GPU")
    Traceback (most recent call last):
    ...
    spsample.errors.BackendError: backend 'cuda' found no GPU
    """


class CommunicationError(SpSampleError, RuntimeError):
    """Another rank is lost, or did not answer in time: what was under way cannot be finished.

    Examples
    --------
    >>> raise CommunicationError("rank 3 did not answer within 600 s")
    Traceback (most recent call last):
    ...
    spsample.errors.CommunicationError: rank 3 did not answer within 600 s
    """


class RankError(SpSampleError, RuntimeError):
    """A rank failed in a call that all ranks make; raised on all of them, with the failing one's error in words.

    Parameters
    ----------
    rank : int
        The rank that failed.
    message : str
        What it said.

    Examples
    --------
    >>> raise RankError(2, "ZeroDivisionError: division by zero")
    Traceback (most recent call last):
    ...
    spsample.errors.RankError: rank 2 failed: ZeroDivisionError: division by zero
    """

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(f"rank {rank} failed: {message}")
        self.rank = rank
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return RankError, (self.rank, self.message)


def raised_by(error: BaseException, rank: int) -> BaseException:
    """The error, with a note that all ranks raise it, and that this one speaks for them (attribute ``raised_by``)."""
    error.raised_by = rank  # type: ignore[attr-defined]
    return error


def on_rank(error: BaseException, rank: int) -> SpSampleError:
    """The error of one rank as all ranks raise it: of the same type where it says what was given, naming the rank.

    Examples
    --------
    >>> on_rank(InputError(argument="seeds", given="7", expected="vertex ids in [0, 5)"), 3)
    InputError('seeds: got 7 (on rank 3); expected vertex ids in [0, 5)')
    >>> on_rank(ZeroDivisionError("division by zero"), 3)
    RankError('rank 3 failed: ZeroDivisionError: division by zero')
    """
    if isinstance(error, _ArgumentError):
        given = f"{error.given} (on rank {rank})"
        return type(error)(argument=error.argument, given=given, expected=error.expected, hint=error.hint)
    if isinstance(error, RankError):
        return error
    return RankError(rank, f"{type(error).__name__}: {error}")


def require_module(
    name: str, *, needed_for: str, extra: str | None = None, install: str | None = None, package: str | None = None
) -> ModuleType:
    """Import a module of an optional package.

    Parameters
    ----------
    name
        The module, with dots where it is inside of another.
    needed_for, extra, install
        As of `MissingDependencyError`.
    package
        Name of the package; None: the first part of ``name``.

    Raises
    ------
    MissingDependencyError
        If it cannot be imported.

    Examples
    --------
    >>> require_module("json.decoder", needed_for="this example").__name__
    'json.decoder'
    >>> require_module("a_package.of_nobody", needed_for="this example")
    Traceback (most recent call last):
    ...
    spsample.errors.MissingDependencyError: this example needs the package a_package, which is not installed; install it
    with: pip install a_package
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = package or name.partition(".")[0]
        raise MissingDependencyError(package=package, needed_for=needed_for, extra=extra, install=install) from error
