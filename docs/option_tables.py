"""Writes the tables of options in docs/api/cli.md, from what the command says of itself.

python docs/option_tables.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_origin

from typer.main import get_command

from spsample.cli.main import app
from spsample.cli.options import default_text, listed
from spsample.cli.train import SETTINGS
from spsample.settings import differing

PAGE = Path(__file__).resolve().parent / "api" / "cli.md"
BEGIN, END = "<!-- begin: written by docs/option_tables.py -->", "<!-- end -->"
TYPES = {int: "integer", float: "number", bool: "", str: "text"}


def flags(param: Any) -> str:
    """The option as it is typed, and what takes it back."""
    return ", ".join(f"`{flag}`" for flag in (*param.opts, *param.secondary_opts))


def marked(text: str) -> str:
    """A sentence, its options as code."""
    return re.sub(r"(?<!`)(--[a-z][a-z-]+)", r"`\1`", text)


def value(setting: Any) -> str:
    """What can be given, in words."""
    if setting.option.values:
        return setting.option.values
    if setting.option.choices:
        return ", ".join(f"`{choice}`" for choice in setting.option.choices)
    return "integers, as in `15,10`" if get_origin(setting.type) is tuple else TYPES[setting.type]


def row(param: Any, setting: Any | None) -> str:
    """A line of a table."""
    if setting is None:
        kinds = {"resume": "folder", "out": "folder", "config": "file", "set_": "`NAME=VALUE`"}
        return f"| {flags(param)} | {kinds.get(param.name, '')} | | {marked(param.help)} |"
    default = default_text(setting, differing())
    shown = (
        f"`{default}`" if re.fullmatch(r"[\w.,-]+", default) and default not in ("preset", "off", "none") else default
    )
    return f"| {flags(param)} | {value(setting)} | {shown} | {marked(setting.option.help)} |"


def tables() -> str:
    """The options of `spsample train`, by panel."""
    settings = {setting.name: setting for setting in listed(*SETTINGS)}
    panels: dict[str, list[str]] = {}
    for param in get_command(app).commands["train"].params:
        if param.opts[0].startswith("--"):
            panel = param.rich_help_panel or "Other"
            panels.setdefault(panel, []).append(row(param, settings.get(param.name)))
    panels["Other"] = [*panels.pop("Other"), "| `--help` | | | Show the options that are changed most, and exit. |"]
    head = "| Option | Value | Default | Meaning |\n|---|---|---|---|"
    return "\n\n".join("\n".join([f"**{panel}**\n", head, *rows]) for panel, rows in panels.items())


def page(text: str) -> str:
    """A page with its tables written anew."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
