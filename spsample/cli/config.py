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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import tomli_w
import typer

from spsample.errors import DataError, InputError
from spsample.store.folder import file_error, system_errors, whole_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_MEASURE = "leave it out: a plan's times are those of communication. spsample bench scaling measures ranks"
_GRAPH = "leave it out: plan with a store, or with a generated graph such as rmat:18,15"
_TRAIN = "leave it out: train with --pipeline cooperative and without it"
REMOVED = {
    "cache-report": {"figure": "leave it out: --json and --output have all figures"},
    "plan": {
        "computation": _MEASURE,
        "no_computation": _MEASURE,
        "cores_per_rank": _MEASURE,
        "hidden": _TRAIN,
        "partition": _TRAIN,
        **dict.fromkeys(("like", "num_nodes", "average_degree", "num_seeds", "feature_bytes"), _GRAPH),
    },
    "sample": {"format": "leave it out: bulks are .npz files"},
}
"""Options that commands do not have any more, by command, and what to do instead."""


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
        raise file_error(path, f"a file that is not TOML ({error})", "a TOML file") from None
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


def set_defaults(ctx: typer.Context, path: str | None) -> str | None:
    """Make a file's settings the defaults of the command that is about to run; those of ``--set`` win.

    Without a path nothing is changed. The path is returned, as typer wants it of what it calls.

    Raises
    ------
    DataError, InputError
        As `read_config`, and where a key is no option of the command.
    """
    if path is not None:
        table = read_config(path, ctx.command.name or "")
        ctx.default_map = {**_by_parameter(ctx, path, table), **(ctx.default_map or {})}
    return path


def check_given_once(ctx: typer.Context) -> None:
    """Refuse an option that is given by its own name and by ``--set``.

    Raises
    ------
    InputError
    """
    options = {param.name: param.opts[0] for param in ctx.command.params if param.name in ctx.meta.get(_SET, ())}
    for name, option in options.items():
        if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE":
            raise InputError(argument="--set", given=f"{option} twice", expected="it by its option or by --set")


def _by_parameter(ctx: typer.Context, source: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of settings, by the names of the command's parameters; lists as they would be typed."""
    keys = _keys(ctx.command.params)
    settings: dict[str, Any] = {}
    for key, value in table.items():
        param, negates = keys.get(_key(key)) or _refuse_unknown(source, ctx.command, key, keys)
        is_flag = getattr(param, "is_flag", False)
        if isinstance(value, bool) != is_flag:
            expected = "true or false" if is_flag else "a number or a text"
            raise InputError(argument=source, given=f"{key} = {value!r}", expected=expected)
        if not isinstance(value, (bool, int, float, str, list, tuple)):
            given = f"{key} of type {type(value).__name__}"
            raise InputError(argument=source, given=given, expected="a number, a text, true, false or a list")
        words = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        settings[param.name] = value != negates if is_flag else words
    return settings


def _set(ctx: typer.Context, texts: list[str] | None) -> None:
    """Take "name=value" for an option."""
    keys = _keys(ctx.command.params)
    table: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(argument="--set", given=repr(text), expected="NAME=VALUE, as in lr=0.01")
        is_flag = getattr(keys.get(_key(name), (None,))[0], "is_flag", False)
        table[name] = _TRUTHS.get(value.lower(), value) if is_flag else value
    settings = _by_parameter(ctx, "--set", table)
    ctx.meta[_SET] = list(settings)
    ctx.default_map = {**(ctx.default_map or {}), **settings}


_SET = "spsample.set"
"""The key of the names that ``--set`` gave, in the context of a command."""

_FILE = "TOML file with defaults, in the table of the command's name; options given here win."
CONFIG: Any = typer.Option("--config", metavar="FILE", callback=set_defaults, is_eager=True, help=_FILE)
"""For ``config: Annotated[str | None, CONFIG] = None`` in any command."""

_ANY = "Any option of --help-all, by its name; can be repeated."
SET: Any = typer.Option("--set", metavar="NAME=VALUE", callback=_set, is_eager=True, help=_ANY)
"""For ``set_: Annotated[list[str] | None, SET] = None`` in any command."""

_NO_SETTINGS = ("config", "help", "help_all", "set")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _keys(params: Iterable[Any]) -> dict[str, tuple[Any, bool]]:
    """The keys that a table can have: the parameter that each sets, and whether it negates that flag."""
    keys: dict[str, tuple[Any, bool]] = {}
    for param in params:
        names = [option for option in param.opts if option.startswith("--")] or [param.name]
        keys |= {_key(name): (param, False) for name in names}
        keys |= {_key(option): (param, True) for option in param.secondary_opts}
    return {name: key for name, key in keys.items() if name not in _NO_SETTINGS}


def _key(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _refuse_unknown(source: str, command: Any, key: str, keys: Mapping[str, Any]) -> NoReturn:
    """Name the key that was meant: near in spelling, to it or to the name of its field."""
    advice = REMOVED.get(command.name, {}).get(_key(key))
    if advice is not None:
        raise InputError(argument=source, given=f"{key}, a removed option", expected=advice)
    words = {param.name: _key(param.opts[0]) for param, _ in keys.values()} | {word: word for word in keys}
    begun = [word for word in words if any(part.startswith(_key(key)) for part in word.split("_"))]
    near = sorted(begun, key=len) or difflib.get_close_matches(_key(key), words, n=1, cutoff=0.7)
    hint = f"Did you mean {words[near[0]]!r}?" if near else f"See spsample {command.name} --help-all."
    given = repr(key) if source == "--set" else f"the key {key!r} in [{command.name}]"
    raise InputError(argument=source, given=given, expected=f"options of {command.name}", hint=hint)
