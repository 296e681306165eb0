"""Options: the description of a setting for commands and documentation, declared once, at the field of a dataclass.

::

    @dataclass(frozen=True)
    class Run:
        epochs: Annotated[int, Option("Passes over the data.", "Optimisation", check=at_least(1))] = 30

The field has the name, the type and the default. The command line, files of settings, checks and tables of the
documentation are made of these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from spsample.common.checks import require_choice, require_int, require_type


@dataclass(frozen=True)
class Option:
    """The description of a field, beside its name, its type and its default.

    Parameters
    ----------
    help
        A sentence or two.
    panel
        The heading below which it is listed.
    flags
        Its spelling on the command line, such as ``"--lr"`` or ``"--partitioned/--replicated"``; by default the field's
        name.
    choices
        Texts that can be given.
    values
        Other values that can be given, in a few words, where the type does not say it.
    unset
        The meaning of None.
    check
        Refuses what cannot be used: takes the field's name and a value that is not None.
    parse
        Makes a value of a text, where the type does not.
    common
        True for the few options that are changed daily.
    decisive
        True where it decides results; others change the speed of a run alone.
    """

    help: str
    panel: str
    _: KW_ONLY
    flags: str = ""
    choices: tuple[str, ...] = ()
    values: str = ""
    unset: str = ""
    check: Callable[[str, Any], object] | None = None
    parse: Callable[[str], Any] | None = None
    common: bool = False
    decisive: bool = True


class Setting(NamedTuple):
    """A field that is an option.

    Attributes
    ----------
    name
        Of the field.
    type
        Its type, without None.
    optional
        True where it can be None.
    default
        Its value where it is not given.
    option
        Its description.
    """

    name: str
    type: Any
    optional: bool
    default: Any
    option: Option

    @property
    def flags(self) -> str:
        """Its spelling on the command line."""
        return self.option.flags or "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        """Its name in files of settings: that of its first flag."""
        return self.flags.split("/")[0].removeprefix("--").replace("-", "_")

    def check(self, value: Any) -> None:
        """Refuse what cannot be used."""
        if value is None and self.optional:
            return
        if self.option.check is not None:
            self.option.check(self.name, value)
        elif self.option.choices:
            require_choice(self.name, value, self.option.choices)
        elif self.type is bool:
            require_type(self.name, value, (bool, np.bool_), "True or False")


@cache
def settings_of(cls: Any) -> tuple[Setting, ...]:
    """Return the options among the fields of a dataclass, and those of the dataclasses that it holds.

    Examples
    --------
    >>> @dataclass
    ... class Run:
    ...     learning_rate: Annotated[float, Option("Learning rate.", "Optimisation", flags="--lr")] = 0.1
    >>> (setting,) = settings_of(Run)
    >>> setting.name, setting.key, setting.flags, setting.default
    ('learning_rate', 'lr', '--lr', 0.1)
    """
    return tuple(setting for holder in _holders(cls) for setting in _own_settings(holder))


def _holders(cls: Any) -> Iterator[Any]:
    """Yield the dataclass, and those of its fields."""
    yield cls
    for hint in get_type_hints(cls).values():
        if is_dataclass(hint):
            yield from _holders(hint)


@cache
def _own_settings(cls: Any) -> tuple[Setting, ...]:
    hints = get_type_hints(cls, include_extras=True)
    settings = []
    for field in fields(cls):
        annotation = hints[field.name]
        if get_origin(annotation) is not Annotated:
            continue
        declared, *extras = get_args(annotation)
        kinds = get_args(declared) if get_origin(declared) is not tuple else (declared,)
        proper = [kind for kind in kinds if kind is not NoneType] or [declared]
        kind = proper[0] if len(proper) == 1 else declared
        (option,) = (extra for extra in extras if isinstance(extra, Option))
        settings.append(Setting(field.name, kind, NoneType in kinds, field.default, option))
    return tuple(settings)


def own_settings(settings: Any) -> tuple[Setting, ...]:
    """Return the options among the fields of an object, without those of the dataclasses that it holds."""
    cls: Any = type(settings)
    return _own_settings(cls)


def values_of(settings: Any) -> dict[str, Any]:
    """Return the values of all options of a dataclass and of those that it holds, by the names of their fields."""
    values = {setting.name: getattr(settings, setting.name) for setting in own_settings(settings)}
    for field in fields(settings):
        if is_dataclass(getattr(settings, field.name)):
            values |= values_of(getattr(settings, field.name))
    return values


def check_settings(settings: Any) -> None:
    """Check the options of a dataclass, one after the other.

    Raises
    ------
    InputError, DTypeError
        For the first field whose value cannot be used.
    """
    for setting in own_settings(settings):
        setting.check(getattr(settings, setting.name))


def at_least(minimum: int, maximum: int | None = None) -> Callable[[str, Any], int]:
    """Return a check for integers of at least ``minimum``, and of at most ``maximum``.

    Examples
    --------
    >>> at_least(1)("epochs", 0)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: epochs: got 0; expected an integer of at least 1
    """
    return partial(require_int, minimum=minimum, maximum=maximum)
