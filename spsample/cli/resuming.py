"""Hints of a run that ends early: the place of its checkpoint, and the command that goes on with it."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spsample.errors import CommunicationError, RankError, SpSampleError

STOPPED = 128 + signal.SIGINT
"""Exit status after Ctrl-C."""

LAUNCHED = "SPSAMPLE_LAUNCHED"
"""Set for the ranks of `spsample launch`, which prints the hint itself."""


def resume_command(command: Sequence[str]) -> tuple[Path, list[str]] | None:
    """The folder of a training command, and the words that resume it; None where it has none.

    Examples
    --------
    >>> resume_command(["train", "digits", "--out", "runs/a"])
    (PosixPath('runs/a'), ['train', '--resume', 'runs/a'])
    """
    if not command or command[0] != "train":
        return None
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in ("--out", "--resume"):
            folder = value if equals else "".join(command[at + 1 : at + 2])
            return Path(folder), ["train", "--resume", folder]
    return None


def resume_hint(folder: Path, words: Sequence[str], *, ranks: int, launcher: str = "") -> str:
    """Return a sentence: where the run in a folder stopped, and the command that goes on.

    Parameters
    ----------
    folder
        The folder of a run, or of several.
    words
        The command, after ``spsample``.
    ranks
        Their number.
    launcher
        The launcher of the ranks, if the words do not name it.
    """
    from spsample.training.runs import RunFolder

    try:
        reached = RunFolder(folder).reached(ranks)  # of the latest checkpoint in the folder, or in one below
    except (SpSampleError, OSError):  # the error comes again when the run is resumed
        reached = None
    stopped = "stopped before its first checkpoint" if reached is None else f"stopped after {reached}"
    again = f"`{shlex.join(['spsample', *words])}`" + (f" under {launcher}, as before" if launcher else "")
    return f"{stopped}; {'go on' if reached else 'begin again'} with {again}"


@contextmanager
def resume_hint_on_exit(folder: str | None, *, ranks: int, launcher: str, prints: bool) -> Iterator[None]:
    """Around a training: where it is ended, by Ctrl-C, SIGTERM or another rank, the command that goes on is named.

    Parameters
    ----------
    folder
        The folder of the run; None where nothing is kept.
    ranks, launcher
        See `resume_hint`.
    prints
        True on the rank that prints it.
    """
    prints = prints and LAUNCHED not in os.environ

    def print_hint() -> None:
        if not prints:
            return
        hint = "stopped; nothing of the run was kept: --out FOLDER keeps checkpoints to go on from"
        if folder is not None:
            hint = resume_hint(Path(folder), ["train", "--resume", folder], ranks=ranks, launcher=launcher)
        os.write(2, f"spsample: {hint}\n".encode())  # a signal may have come in the middle of a print

    with _before_sigterm(print_hint):
        try:
            yield
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, CommunicationError, RankError)):
                print_hint()
            raise


@contextmanager
def _before_sigterm(print_hint: Callable[[], None]) -> Iterator[None]:
    """Around a block: print a hint when SIGTERM comes, before it has its effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        signal.signal(number, before)
        print_hint()
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
