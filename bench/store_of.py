"""Graphs by their names, as stores that every process and rank opens."""

from __future__ import annotations

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
        moved = [name for name in ("row_of_vertex",) if (given / f"{name}.npy").exists()]
        if moved:
            raise InputError(
                argument="graph",
                given=f"{spec}, a store in another order of rows ({moved[0]}.npy)",
                expected="one in the order of its vertices, which other libraries can read",
                hint="Convert the data set again, without reordering.",
            )
        return given
    name = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in spec.strip("./"))
    store = cache / name
    if not (store / "meta.json").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        convert(spec, store)
    if not (store / "indptr.npy").is_file():
        raise DataError(argument="graph", given=f"{store} without indptr.npy", expected="a whole store")
    return store
