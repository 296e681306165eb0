"""States of a trainer that were taken of something else, or were changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from spsample.errors import InputError, SpSampleError
from spsample.settings.training import ADDED_SETTINGS
from spsample.sparse import keys
from spsample.training.optimisation import require_epochs

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
