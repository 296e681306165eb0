"""Options of commands, made of the settings that dataclasses declare (`spsample.common.options`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

import typer

from spsample.cli.config import CONFIG, SET, check_given_once
from spsample.common.options import Setting, check_settings, own_settings, settings_of
from spsample.errors import InputError

_Settings = TypeVar("_Settings")
_TYPED = (bool, int, float, Path)
"""Types that the command line parses itself."""


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        for param in ctx.command.params:  # of this call alone: commands are made anew for each
            param.hidden = False  # type: ignore[attr-defined]
        print(ctx.get_help(), end="")
        raise typer.Exit


AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
"""For ``as_json: AsJson = False`` in any command."""

_ALL: Any = typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show all options, and exit.")


def with_options(
    *classes: Any, preset: Iterable[str] = (), common: Iterable[str] = ()
) -> Callable[[Callable[..., None]], Any]:
    """Give a command the options of dataclasses, and ``--config``, ``--set`` and ``--help-all``.

    Parameters
    ----------
    classes
        Dataclasses with options.
    preset
        Settings whose defaults depend on the data set.
    common
        Settings that are changed daily in this command, beside those that are in every one.

    Returns
    -------
    Callable
        A decorator of a command, whose parameter ``typed`` takes the options as they were typed, by the names of their
        fields: None where one was not given.
    """
    settings = listed(*classes)
    added = [_parameter(setting, preset, common) for setting in settings]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        declared = inspect.signature(command, eval_str=True).parameters.values()
        own = [param.replace(kind=inspect.Parameter.KEYWORD_ONLY) for param in declared if param.name != "typed"]

        @wraps(command)
        def run(ctx: typer.Context, **values: Any) -> None:
            check_given_once(ctx)
            typed = {name: values[name] for name in (*(setting.name for setting in settings), "config")}
            command(typed=typed, **{param.name: values[param.name] for param in own})

        run.__signature__ = inspect.Signature([_CONTEXT, *added, *own, *_EVERYWHERE])  # type: ignore[attr-defined]
        return run

    return decorate


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_CONTEXT = _keyword("ctx", typer.Context, inspect.Parameter.empty)
_EVERYWHERE = (
    _keyword("config", Annotated[str | None, CONFIG], None),
    _keyword("set_", Annotated[list[str] | None, SET], None),
    _keyword("help_all", Annotated[bool, _ALL], False),
)


def listed(*classes: Any) -> list[Setting]:
    """Return the options of dataclasses as they are listed: by panel, those that are changed daily first."""
    settings = [setting for cls in classes for setting in settings_of(cls)]
    panels = list(dict.fromkeys(setting.option.panel for setting in settings))
    return sorted(settings, key=lambda setting: (panels.index(setting.option.panel), not setting.option.common))


def _parameter(setting: Setting, preset: Iterable[str], common: Iterable[str]) -> inspect.Parameter:
    option = setting.option
    words = option.help if not option.choices else f"{option.help} One of {', '.join(option.choices)}."
    default = default_text(setting, preset)
    shown = typer.Option(
        *setting.flags.split(),
        help=f"{words} [default: {default}]" if default else words,
        rich_help_panel=option.panel,
        hidden=not option.common and setting.name not in common,
    )
    kind: Any = setting.type if setting.type in _TYPED else str
    return _keyword(setting.name, Annotated[kind | None, shown], None)


def default_text(setting: Setting, preset: Iterable[str] = ()) -> str:
    """Return the default of a setting, in words; empty for a flag that is off."""
    if setting.name in preset:
        return "preset"
    if setting.default is None:
        return setting.option.unset
    if setting.type is bool:
        on, _, off = setting.flags.split()[0].partition("/")
        return (on if setting.default else off).removeprefix("--")
    default = setting.default
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def overridden(settings: _Settings, typed: Mapping[str, Any]) -> _Settings:
    """Return settings, and those that they hold, with the options that were typed in their place.

    Raises
    ------
    InputError
        If a text is not of the form expected, or a value cannot be used.
    """
    own = [setting for setting in own_settings(settings) if typed.get(setting.name) is not None]
    changes = {setting.name: _parsed(setting, typed[setting.name]) for setting in own}
    nested = {field.name: getattr(settings, field.name) for field in fields(settings)}  # type: ignore[arg-type]
    changes |= {name: overridden(value, typed) for name, value in nested.items() if is_dataclass(value)}
    result = replace(settings, **changes)  # type: ignore[type-var]
    check_settings(result)
    return result


def refuse_given(typed: Mapping[str, Any], names: Iterable[str], where: str, expected: str) -> None:
    """Refuse options that have no effect.

    Raises
    ------
    InputError
        For the first one that was typed; ``where`` is the place where it has no effect, in words.

    Examples
    --------
    >>> refuse_given({"alpha": "2us"}, ["alpha"], "without --ranks", "--ranks")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: alpha: got 2us without --ranks; expected --ranks
    """
    for name in names:
        if typed[name] is not None:
            raise InputError(argument=name, given=f"{typed[name]} {where}", expected=expected)


def _parsed(setting: Setting, value: Any) -> Any:
    """The value that a text stands for."""
    if setting.option.parse is not None:
        return setting.option.parse(value)
    if get_origin(setting.type) is not tuple:
        return value
    words = [word.strip() for word in value.split(",")]
    if get_args(setting.type)[0] is not int:
        return tuple(words)
    try:
        return tuple(map(int, words))
    except ValueError:
        expected = "integers with commas, as in 15,10"
        raise InputError(argument=setting.name, given=repr(value), expected=expected) from None


def written(classes: Iterable[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the keys that files of settings have, in the order in which options are listed."""
    return {
        setting.key: list(values[setting.name]) if isinstance(values[setting.name], tuple) else values[setting.name]
        for setting in listed(*classes)
        if setting.name in values
    }
