"""TOML files of settings: the defaults of a command, in the table of its name.

::

    [train]
    dataset = "digits"
    fanouts = [15, 10]
    lr = 0.005

Keys are the names of the command's arguments, and of its options without the leading dashes; ``_`` and ``-`` are alike.
What is given on the command line wins. Tables of other commands are left alone, so that one file can hold settings for
several.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
import typer

from spsample.errors import DataError, InputError
from spsample.store.files import whole_file
from spsample.store.folder import system_errors

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["ConfigOption", "read_config", "set_defaults", "write_config"]


def read_config(path: str | Path, command: str) -> dict[str, Any]:
    """Return a command's table of a TOML file, empty where it has none.

    Raises
    ------
    DataError
        If there is no such file, or it is not TOML.
    InputError
        If ``command`` is not a table in it.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(argument="--config", given=f"{str(path)!r}, which is no file", expected="a TOML file")
    try:
        with system_errors(path, "a TOML file that can be read"):
            tables = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(
            argument=str(path), given=f"a file that is not TOML ({error})", expected="a TOML file"
        ) from None
    table = tables.get(command, {})
    if not isinstance(table, dict):
        raise InputError(argument=str(path), given=f"{command} = {table!r}", expected=f"a table [{command}]")
    return table


def write_config(path: str | Path, command: str, settings: Mapping[str, Any]) -> None:
    """Write a command's table that `read_config` gives back; settings that are None are left out.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "config.toml"
    >>> write_config(path, "train", {"fanouts": [15, 10], "lr": 0.01, "backend": None})
    >>> read_config(path, "train")
    {'fanouts': [15, 10], 'lr': 0.01}
    """
    path = Path(path)
    known = {name: value for name, value in settings.items() if value is not None}
    with system_errors(path, "a file that can be written"), whole_file(path) as file:
        tomli_w.dump({command: known}, file)


def set_defaults(ctx: typer.Context, path: str | Path) -> None:
    """Make a file's settings the defaults of the command that is about to run.

    Raises
    ------
    DataError, InputError
        As `read_config`, and where a key is no option of the command.
    """
    command = ctx.command.name or ""
    names = _names(ctx.command.params, lambda param: param.opts)
    negated = _names(ctx.command.params, lambda param: param.secondary_opts)
    flags = {param.name for param in ctx.command.params if getattr(param, "is_flag", False)}
    defaults: dict[str, Any] = {}
    for key, value in read_config(path, command).items():
        name = key.replace("-", "_")
        if name in negated and isinstance(value, bool):
            defaults[negated[name]] = not value
            continue
        if name not in names:
            raise _unknown(path, command, key, names)
        if isinstance(value, bool) != (names[name] in flags):
            expected = "true or false" if names[name] in flags else "a number or a text"
            raise InputError(argument=str(path), given=f"{key} = {value!r}", expected=expected)
        defaults[names[name]] = _as_words(path, key, value)
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def _load(ctx: typer.Context, value: str | None) -> str | None:
    if value is not None:
        set_defaults(ctx, value)
    return value


ConfigOption: Any = typer.Option(
    "--config",
    metavar="FILE",
    callback=_load,
    is_eager=True,
    help="TOML file with defaults, in the table of the command's name; options given here win.",
)
"""For ``config: Annotated[str | None, ConfigOption] = None`` in any command."""


def _names(params: Iterable[Any], options_of: Callable[[Any], list[str]]) -> dict[str, str]:
    """From the key in a file to the parameter's name."""
    names: dict[str, str] = {}
    for param in params:
        options = options_of(param)
        for option in [one for one in options if one.startswith("--")] or ([param.name] if options else []):
            names[option.removeprefix("--").replace("-", "_")] = param.name
    return {key: name for key, name in names.items() if key not in ("config", "help")}


def _as_words(path: str | Path, key: str, value: Any) -> Any:
    """A value as it would be typed: lists with commas."""
    if isinstance(value, (list, tuple)):
        return ",".join(str(entry) for entry in value)
    if isinstance(value, (bool, int, float, str)):
        return value
    given = f"{key} of type {type(value).__name__}"
    raise InputError(argument=str(path), given=given, expected="a number, a text, true, false or a list")


def _unknown(path: str | Path, command: str, key: str, names: Iterable[str]) -> InputError:
    near = difflib.get_close_matches(key.replace("-", "_"), list(names), n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"See spsample {command} --help."
    return InputError(
        argument=str(path), given=f"the key {key!r} in [{command}]", expected=f"options of {command}", hint=hint
    )
