"""Tables with a row for each vertex: text or Parquet, read by pyarrow batch by batch."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spsample.convert.compressed import inner_suffix, open_bytes
from spsample.convert.tables import PARQUET, open_parquet, parquet_parts
from spsample.errors import DataError, require_module

__all__ = ["CsvTable", "ParquetTable", "VertexRows", "VertexTable", "feature_rows", "matrices", "open_table"]

_BLOCK = 1 << 22
_LONGEST_ROW = 1 << 26
_MARK = b"\xef\xbb\xbf"  # of UTF-8, as spreadsheets write it
_DELIMITERS = (",", ";", "\t")
_QUOTED = re.compile(rb'"[^"]*"')
_BAD_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): invalid value '(.*)'", re.S
)
_ROW = re.compile(r"Row #(\d+)")


class VertexRows(NamedTuple):
    """An array of rows of vertices that is made piece by piece: each piece is (places of its rows, rows)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[tuple[Any, NDArray[Any]]]]


class VertexTable(Protocol):
    """Named columns, of which some are numbers."""

    path: Path
    names: tuple[str, ...]
    numeric: frozenset[str]
    column_bytes: int
    """Memory that a column takes while it is read, beside its batch."""

    def batches(self, columns: Mapping[str, str]) -> Iterator[Any]:
        """Yield record batches with these columns, read as "text", "integer" or "number"."""
        ...


def open_table(path: Path) -> VertexTable:
    """Open a Parquet file, or a text with a line of names and columns between commas, semicolons or tabs.

    Raises
    ------
    DataError
        If it cannot be read so, or two columns have one name.
    MissingDependencyError
        Without pyarrow.
    """
    require_module("pyarrow.parquet", needed_for=f"reading {path.name}", extra="convert")
    is_parquet = os.path.isdir(path) or inner_suffix(path) in PARQUET
    table: VertexTable = ParquetTable(path) if is_parquet else CsvTable.with_header(path)
    repeated = [name for name in table.names if table.names.count(name) > 1]
    if repeated:
        given = f"{table.names.count(repeated[0])} columns named {repeated[0]!r}"
        raise DataError(argument=str(path), given=given, expected="columns of different names")
    return table


def matrices(table: VertexTable, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    """Yield rows of some columns of numbers, NaN where there is none; errors as `VertexTable.batches`."""
    for batch in table.batches(dict.fromkeys(columns, "number")):
        values = np.empty((batch.num_rows, len(columns)))
        for place, name in enumerate(columns):
            values[:, place] = batch.column(name).cast("float64", safe=False).to_numpy(zero_copy_only=False)
        yield values


def feature_rows(table: VertexTable, columns: Sequence[str], rows: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield (their places, rows) of some columns of numbers, all of them finite.

    Raises
    ------
    DataError
        If a value is missing, no number or not finite, or there are more or fewer rows.
    """
    first = 0
    for values in matrices(table, columns):
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        finite = np.isfinite(narrow)
        if not finite.all():
            row, place = divmod(int(np.argmin(finite)), len(columns))
            given = f"{values[row, place]} or no value in column {columns[place]} of row {first + row + 1}"
            raise DataError(argument=str(table.path), given=given, expected="finite numbers of 32 bits, as features")
        first += len(narrow)
        if first > rows:
            break
        yield slice(first - len(narrow), first), narrow
    if first != rows:
        given = f"{'at least ' if first > rows else ''}{first} rows"
        raise DataError(argument=str(table.path), given=given, expected=f"{rows}, one per vertex")


class CsvTable:
    """A text with columns between delimiters; a field may be quoted by RFC 4180, and have line breaks then."""

    column_bytes = 0

    def __init__(self, path: Path, names: Sequence[str], delimiter: str, *, header: bool) -> None:
        self.path, self.names, self.numeric = path, tuple(names), frozenset(names)
        self._delimiter, self._header = delimiter, header
        self._flags: frozenset[str] = frozenset()

    @classmethod
    def with_header(cls, path: Path) -> CsvTable:
        """Take names, and which columns are numbers, of the first rows."""
        first = next(_blocks(path), b"")
        outside = _QUOTED.sub(b"", first.split(b"\n", 1)[0]).decode("utf-8", "replace")
        marks = ["\t"] if inner_suffix(path) == ".tsv" else [mark for mark in _DELIMITERS if mark in outside]
        if len(marks) > 1 or not outside.strip():
            given = f"the first line {outside.strip()!r}"
            raise DataError(argument=str(path), given=given, expected="names of columns, between commas or tabs")
        table = cls(path, (), marks[0] if marks else ",", header=True)
        with _errors(path, (), -1):
            schema = table._parsed(first, None, None).schema
            table.names = tuple(str(name).strip() for name in schema.names)
        kinds = dict(zip(table.names, schema.types, strict=True))
        table.numeric = _numeric(table.names, schema.types)
        table._flags = frozenset(name for name in table.names if str(kinds[name]) == "bool")
        return table

    def batches(self, columns: Mapping[str, str]) -> Iterator[Any]:
        """Yield record batches with these columns, read as "text" (bytes), "integer" or "number".

        Raises
        ------
        DataError
            If a row has another number of fields, or a value is none of its kind.
        """
        import pyarrow as pa

        kinds = {"text": pa.binary(), "integer": pa.int64(), "number": pa.float64()}
        flags = self._flags if "number" in columns.values() else frozenset()
        types = {name: pa.bool_() if name in flags else kinds[kind] for name, kind in columns.items()}
        rows, skip = 0, self._header
        for block in _blocks(self.path):
            with _errors(self.path, self.names, rows - skip):
                table = self._parsed(block, self.names, types, skip=skip)
            yield from table.to_batches()
            rows, skip = rows + table.num_rows, False

    def _parsed(
        self, block: bytes, names: Sequence[str] | None, types: Mapping[str, Any] | None, *, skip: bool = False
    ) -> Any:
        """The rows of a block; without names and types, as pyarrow finds them."""
        import pyarrow as pa
        from pyarrow import csv

        reading = csv.ReadOptions(
            use_threads=False, block_size=len(block) + 1, column_names=names, skip_rows_after_names=int(skip)
        )
        parsing = csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        converting = (
            csv.ConvertOptions()
            if types is None
            else csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[], strings_can_be_null=False
            )
        )
        return csv.read_csv(pa.BufferReader(block), reading, parsing, converting)


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield whole rows of a file, some MiB at a time."""
    rest = b""
    with open_bytes(path) as file:
        while data := bytes(file.read(_BLOCK)):
            rest += data
            if end := _rows_end(rest):
                yield rest[:end].removeprefix(_MARK)
                rest = rest[end:]
            elif len(rest) > _LONGEST_ROW:
                given = f"a row of more than {_LONGEST_ROW} bytes (a quote that is not closed?)"
                raise DataError(argument=str(path), given=given, expected="rows of a table")
    if rest.count(b'"') % 2:
        raise DataError(argument=str(path), given="a quote that is not closed", expected="rows of a table")
    if rest.strip():
        yield rest.removeprefix(_MARK)


def _rows_end(text: bytes) -> int:
    """Where the last whole row ends: behind a line break that is not within quotes; 0 without one."""
    end = text.rfind(b"\n") + 1
    quotes = text.count(b'"', 0, end)
    while end and quotes % 2:
        before = text.rfind(b"\n", 0, end - 1) + 1
        quotes -= text.count(b'"', before, end)
        end = before
    return end


class ParquetTable:
    """A Parquet file, or a folder of parts."""

    column_bytes = 6 << 20  # a dictionary, a page as it is stored, and its values

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: list[Any] = []
        for part in parquet_parts(path):
            with _errors(part, (), 0):
                self._files.append(open_parquet(part))
        schema = self._files[0].schema_arrow
        self.names: tuple[str, ...] = tuple(str(name) for name in schema.names)
        self.numeric = _numeric(self.names, schema.types)

    def batches(self, columns: Mapping[str, str]) -> Iterator[Any]:
        """Yield record batches with these columns, in the types that they have.

        Raises
        ------
        DataError
            If the file is damaged, or a part lacks a column of the first.
        """
        rows = max(1, _BLOCK // (8 * len(columns)))
        for file in self._files:
            missing = [name for name in columns if name not in file.schema_arrow.names]
            if missing:
                given = f"a part without the column {missing[0]}"
                raise DataError(argument=str(self.path), given=given, expected="the same columns in all parts")
            batches = file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False)
            while True:
                with _errors(self.path, self.names, 0):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch


def _numeric(names: Sequence[str], types: Sequence[Any]) -> frozenset[str]:
    """Which columns are of numbers, by their types."""
    from pyarrow.types import is_boolean, is_decimal, is_floating, is_integer

    tests = (is_integer, is_floating, is_boolean, is_decimal)
    return frozenset(name for name, kind in zip(names, types, strict=True) if any(test(kind) for test in tests))


@contextmanager
def _errors(path: Path, names: Sequence[str], rows: int) -> Iterator[None]:
    """Say where in the file a block of rows went wrong, `rows` others being before it."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, ValueError, OSError) as error:
        bad = _BAD_VALUE.search(str(error))
        if bad is None:
            text = _ROW.sub(lambda match: f"row {int(match[1]) + rows}", str(error))
            raise DataError(argument=str(path), given=f"an unreadable file ({text})", expected="a table") from error
        hint = "Ids that are names need --string-ids." if bad[3] == "int64" else ""
        row = "" if bad[2] is None else f" of row {int(bad[2]) + rows}"
        given = f"{bad[4]!r} in column {names[int(bad[1])]}{row}"
        raise DataError(argument=str(path), given=given, expected="a number in each row", hint=hint) from error
