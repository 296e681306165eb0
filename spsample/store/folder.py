"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from spsample.common.checks import require_path
from spsample.common.units import format_bytes
from spsample.errors import CapacityError, DataError, InputError

UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
"""The errors of a file system that has no such operation."""


def file_error(path: str | os.PathLike[str], given: str, expected: str, hint: str = "") -> DataError:
    """Return the error about a file or a folder: what it is or holds, and what was expected of it."""
    return DataError(argument=os.fspath(path), given=given, expected=expected, hint=hint)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name, or replaces the one that has it, when the block is left.

    It is written under the name ``.NAME.partial``, forced to the disk and renamed: a crash leaves the
    old file or the new. Where it cannot be finished nothing is left of it. Folders and devices are not replaced.

    Raises
    ------
    OSError
        If the system refuses, or something else than a file has the name. It names the file.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with whole_file(folder / "a.txt") as file:
    ...     written = file.write(b"all of it")
    >>> (folder / "a.txt").read_text()
    'all of it'
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "Not a file", str(path))
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with suppress(OSError):  # as on a disk that became read-only: the first error is the one to report
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)  # write, fsync and close do not set it
        raise
    with suppress(PermissionError):  # a folder that may be written to, but not read
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Force what was written to a file to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Force the names in a folder to the disk."""
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in UNSUPPORTED:  # some file systems cannot do so for folders
            raise


LOCK_FILE = ".lock"
_MAX_NAME = 255 - len("..partial-01234567")
_PARTIAL = re.compile(r"\..*\.partial-[0-9a-f]{8}", re.DOTALL)
_SUFFIX = re.compile(r"[0-9a-f]{8}")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def system_errors(path: str | Path, expected: str, left: str = "nothing was left behind") -> Iterator[None]:
    """Turn errors of the system (full disk, no permission) into `DataError`; `left` names what is left on a full disk.

    Examples
    --------
    >>> with system_errors("store", "a folder that can be written to"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    ...
    spsample.errors.DataError: store: got No space left on device; expected a folder that can be written to. Free ...
    """
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename and os.fsdecode(error.filename) != os.fsdecode(path):
            reason = f"{reason} ({os.fsdecode(error.filename)})"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = f"Free space or choose another disk; {left}." if full else ""
        raise DataError(argument=os.fsdecode(path), given=reason, expected=expected, hint=hint) from error


@contextmanager
def only_recorded(path: str | Path) -> Iterator[None]:
    """Around the writing of records of a run: where the system refuses, there is a warning, and the run goes on.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     with only_recorded("loss.png"):
    ...         raise OSError(errno.ENOSPC, "No space left on device")
    >>> str(seen[0].message)
    'loss.png: got No space left on device; expected a file that can be written. Free space ...'
    """
    try:
        with system_errors(path, "a file that can be written", "what was to be recorded there is lost, the run is not"):
            yield
    except DataError as error:
        warnings.warn(str(error), UserWarning, stacklevel=3)


def require_free_path(argument: str, path: Any) -> Path:
    """Return a path at which a folder can be made: nothing is there, or an empty folder.

    Raises
    ------
    InputError, DTypeError
        If something is there, or it is no path.
    DataError
        If the system does not let us look.

    Examples
    --------
    >>> require_free_path("out", "no/such/folder").name
    'folder'
    """
    folder = require_path(argument, path)
    with system_errors(folder, "a folder that can be made and written to"):
        if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
            return folder
    expected = "a path that does not exist, or an empty folder"
    raise InputError(argument=argument, given=f"{folder}, which exists", expected=expected)


def require_room(argument: str, folder: Path, needed: int) -> None:
    """Refuse what the disk of a folder that is to be made has no room for.

    Raises
    ------
    CapacityError
        Telling the bytes that are free and needed.

    Examples
    --------
    >>> require_room("out", Path("no/such/folder"), 2**63)
    Traceback (most recent call last):
    ...
    spsample.errors.CapacityError: out: got no/such/folder, on a disk with ...; expected ...
    """
    there = Path(os.path.realpath(folder)).parent
    while not os.path.exists(there):
        there = there.parent
    free = shutil.disk_usage(there).free
    if needed > free:
        raise CapacityError(
            argument=argument,
            given=f"{folder}, on a disk with {format_bytes(free)} free ({free} bytes)",
            expected=f"{format_bytes(needed)} ({needed} bytes)",
            hint="Free space or choose another disk; nothing was written.",
        )


class PartialFolder:
    """A hidden folder ``.NAME.partial-XXXX`` beside `target`, which becomes `target` by one rename.

    While its maker lives it holds a lock on a file in it. A folder whose lock can be taken was left behind by a run
    that was killed: the next one made for the same `target` removes it.

    Parameters
    ----------
    target : Path
        What the folder is to become; links are followed. It may exist as an empty folder, or be replaced by `publish`.
    """

    def __init__(self, target: Path) -> None:
        self.target = Path(os.path.realpath(target))
        if len(os.fsencode(self.target.name)) > _MAX_NAME:
            given = f"a name of {len(os.fsencode(self.target.name))} bytes"
            raise DataError(argument=str(target), given=given, expected=f"at most {_MAX_NAME} bytes")
        with system_errors(self.target, "a folder that can be made and written to"):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.target)
            while True:  # a folder that another process takes for a leftover meanwhile is given up
                self.path = _hidden_name(self.target)
                self.path.mkdir()
                lock = _lock(self.path, unsupported=True)
                if lock is not None and self.path.is_dir():
                    break
        self._lock = lock

    def publish(self, *, overwrite: bool) -> None:
        """Give the folder the name of `target`; all of it must be on the disk already.

        A folder of that name is exchanged with this one in one step and removed then, where the system can do so; else
        it is moved aside first. Readers that have it open go on reading what they opened.

        Raises
        ------
        DataError
            If `target` exists and `overwrite` is False, or the system refuses.
        """
        with system_errors(self.target, "a path that does not exist, or an empty folder"):
            sync_folder(self.path)
            if overwrite and self.target.is_dir():
                self._replace()
            else:
                os.rename(self.path, self.target)
            sync_folder(self.target.parent)
        (self.target / LOCK_FILE).unlink(missing_ok=True)
        os.close(self._lock)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def _replace(self) -> None:
        if _exchange(self.path, self.target):
            shutil.rmtree(self.path, ignore_errors=True)
            return
        aside = _hidden_name(self.target)
        os.rename(self.target, aside)
        try:
            os.rename(self.path, self.target)
        except OSError:
            os.rename(aside, self.target)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def is_partial(path: Path) -> bool:
    """Return whether a folder is one that is being written, or was left behind, by its name.

    Examples
    --------
    >>> is_partial(Path("graphs/.products.partial-0123abcd")), is_partial(Path("graphs/products"))
    (True, False)
    """
    return _PARTIAL.fullmatch(path.name) is not None


def remove_leftovers(target: Path) -> None:
    """Remove the partial folders of `target` that no living process holds the lock of."""
    prefix = f".{target.name}.partial-"
    for entry in os.scandir(target.parent):
        ours = entry.name.startswith(prefix) and _SUFFIX.fullmatch(entry.name, len(prefix))
        if not ours or not entry.is_dir(follow_symlinks=False):
            continue
        lock = _lock(Path(entry.path))
        if lock is not None:
            shutil.rmtree(entry.path, ignore_errors=True)
            os.close(lock)


def _hidden_name(target: Path) -> Path:
    return target.parent / f".{target.name}.partial-{secrets.token_hex(4)}"


def _lock(folder: Path, *, unsupported: bool = False) -> int | None:
    """Take the lock of a folder without waiting: the descriptor, or None where another process has it.

    Where the file system has no locks, the descriptor if `unsupported` is set, else None.
    """
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        if unsupported and folder.is_dir():
            raise
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except OSError as error:
        if unsupported and error.errno != errno.EWOULDBLOCK:
            return descriptor
    os.close(descriptor)
    return None


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; False where the system cannot."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(second))
