"""Graphs by their names, as stores that every process and rank opens."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from spsample.convert import convert
from spsample.errors import DataError, InputError

__all__ = ["store_of"]


def store_of(spec: str, cache: Path) -> Path:
    """The store itself, or one that is made in `cache` of a data set, a file or ``rmat:SCALE,EDGE_FACTOR``.

    Raises
    ------
    InputError
        If the store's rows are in another order than its vertices: other libraries cannot read it.
    DataError, InputError
        As of `convert`.
    """
    given = Path(spec)
    if (given / "meta.json").is_file():
        if (given / "row_of_vertex.npy").exists():
            raise InputError(
                argument="graph",
                given=f"{spec}, a store in another order of rows (row_of_vertex.npy)",
                expected="one in the order of its vertices, which other libraries can read",
                hint="Convert the data set again, without reordering.",
            )
        return given
    store = cache / _name_of(spec)
    if not (store / "meta.json").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        try:
            convert(spec, store)
        except InputError as error:
            given, hint = error.given, error.hint
            raise InputError(argument="graph", given=given, expected=error.expected, hint=hint) from None
    if not (store / "indptr.npy").is_file():
        raise DataError(argument="graph", given=f"{store} without indptr.npy", expected="a whole store")
    return store


def _name_of(spec: str) -> str:
    """Of the store in a cache: another one for another file, and for a file that was changed."""
    name = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in spec.strip("./"))
    file = Path(spec).resolve()
    if not file.is_file():
        return name
    facts = f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}"
    return f"{name}-{sha256(facts.encode()).hexdigest()[:12]}"
