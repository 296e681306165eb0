"""Figures, as files that are whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spsample.errors import InputError
from spsample.store.folder import system_errors, whole_file

__all__ = ["save_figure"]


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib, in the format that its name ends with.

    Raises
    ------
    InputError
        If there is no such format.
    DataError
        If the system refuses.
    """
    form = path.suffix[1:].lower()
    if form not in figure.canvas.get_supported_filetypes():
        raise InputError(argument="path", given=str(path), expected="a name that ends in .png, .pdf or .svg")
    with system_errors(path, "a file that can be written"), whole_file(path) as file:
        figure.savefig(file, format=form, dpi=150)
