"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
"""The errors by which a file system says that it has no such operation."""


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
        with suppress(OSError):  # as on a disk that became read-only: the first error is the one to tell
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)  # write, fsync and close do not tell it
        raise
    with suppress(PermissionError):  # a folder that may be written to, but not read
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Force what was written to a file to the disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Force the names in a folder to the disk."""
    try:
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in UNSUPPORTED:  # some file systems cannot do so for folders
            raise


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
