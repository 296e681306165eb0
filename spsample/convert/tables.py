"""Tables in text or Parquet, read by pyarrow batch by batch: edge lists, and a row for each vertex."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spsample.convert import compressed
from spsample.convert.columns import VertexNames, column_names, core, edge_columns, is_text
from spsample.convert.edges import EdgeChunk, EdgeList, given_chunk
from spsample.convert.options import ConvertOptions
from spsample.errors import DataError, InputError, require_module
from spsample.store.folder import file_error

PARQUET = (".parquet", ".pq")
_BYTES = 1 << 21
_NUMBERS = re.compile(r"u?int\d|half|float|double|bool|decimal")
"""Arrow's names of types."""


def _parts(path: Path) -> list[Path]:
    """The files of a table: the path itself, or the Parquet files of a folder, in the order of their names.

    Files whose names begin with ``.`` or ``_`` are not data, as Spark and Hive have it. A folder of parts in the
    folder is refused: its name may stand for a column.
    """
    if not path.is_dir():
        compressed.require_file(path)
        return [path]
    parts = sorted(entry for entry in path.rglob("*") if entry.suffix.lower() in PARQUET and entry.name[0] not in "._")
    if not parts or any(entry.parent != path for entry in parts):
        given = "parts in folders of their own" if parts else "a folder without Parquet files"
        raise file_error(path, given, "a folder of .parquet files, the parts of one table")
    return parts


@contextmanager
def _whole(path: Path) -> Iterator[Any]:
    """Open a file so that a piece of each column is in memory at a time; name it in errors of reading it."""
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            yield file
    except DataError:
        raise
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise file_error(path, f"an unreadable file ({error})", "a whole Parquet file") from error


def check_different(path: Path, names: Sequence[str]) -> None:
    """Refuse columns of one name.

    Raises
    ------
    InputError
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        given = f"{names.count(twice)} columns named {twice!r} in {path}"
        hint = "The first line of a text must name the columns."
        raise InputError(argument="columns", given=given, expected="columns of different names", hint=hint)


def numeric_columns(names: Sequence[str], types: Sequence[Any]) -> frozenset[str]:
    """Return which columns are of numbers, by their types."""
    of_numbers = (name for name, kind in zip(names, types, strict=True) if _NUMBERS.match(str(kind)))
    return frozenset(of_numbers)


class ParquetTable:
    """A Parquet file, or a folder of parts with the same columns, of which one is open at a time.

    Raises
    ------
    DataError, InputError
        If a file is damaged, a part lacks a column of another, or two columns have one name.
    MissingDependencyError
        Without pyarrow.
    """

    column_bytes = 6 << 20
    """Memory that a column takes while it is read, beside its batch: a dictionary, a stored page, and its values."""

    def __init__(self, path: Path) -> None:
        require_module("pyarrow.parquet", needed_for="reading Parquet files", extra="convert")
        self.path, self._parts = path, _parts(path)
        self.not_quite: dict[str, str] = {}
        self.names: tuple[str, ...] = ()
        for part in self._parts:
            with _whole(part) as file:
                names, types = tuple(map(str, file.schema_arrow.names)), file.schema_arrow.types
            check_different(part, names)
            if part is self._parts[0]:
                self.names, self.numeric = names, numeric_columns(names, types)
            for name in sorted({*names} ^ {*self.names}):
                given = f"a part without the column {name}"
                without = part if name in self.names else self._parts[0]
                raise file_error(without, given, "the same columns in all parts")

    def batches(self, columns: Mapping[str, str], most: int = _BYTES) -> Iterator[Any]:
        """Yield record batches of at most `most` rows with these columns, in the types that they have.

        Raises
        ------
        DataError
            If a file is damaged, or a column of numbers holds something else in another part.
        """
        rows = max(1, min(most, _BYTES // (8 * len(columns))))
        for part in self._parts:
            with _whole(part) as file:
                for name, kind in columns.items():
                    held = file.schema_arrow.field(name).type
                    if kind == "number" and not numeric_columns([name], [held]):
                        raise file_error(part, f"column {name} of type {held}", "numbers, as in other parts")
                yield from file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False)


class ParquetEdges(EdgeList):
    """Two columns of a Parquet file, or of a folder of them, and perhaps one of weights."""

    def __init__(self, path: Path, options: ConvertOptions, names: VertexNames | None = None) -> None:
        self.name, self._names, self._table = str(path), names, ParquetTable(path)
        self.weight_dtype = None if options.weights is None else np.dtype(np.float64)
        held = self._table.names
        source, target, weight = edge_columns(self.name, held, len(held), options)
        self.ends = held[source], held[target]
        self._columns = [*self.ends, *([] if weight < 0 else [held[weight]])]
        self.unread = tuple(name for name in held if name not in self._columns)

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks, in batches of rows."""
        for batch in self._table.batches(dict.fromkeys(self._columns, "text"), count):
            task = partial(self._chunk, batch)
            yield task if self._names is None else partial(given_chunk, task())  # names go by the order

    def _chunk(self, batch: Any) -> EdgeChunk:
        columns = [batch.column(name) for name in self._columns]
        for name, column in zip(self._columns, columns, strict=True):
            if column.null_count:
                raise file_error(self.name, f"a null in column {name}", "a value in each row")
        ends = [self._ids(name, column) for name, column in zip(self._columns[:2], columns, strict=False)]
        weights = None if self.weight_dtype is None else columns[2].to_numpy(zero_copy_only=False)
        if weights is not None and weights.dtype.kind not in "iuf":
            raise file_error(self.name, f"weights of type {columns[2].type}", "numbers")
        weights = None if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
        return EdgeChunk(ends[0], ends[1], len(ends[0]), weights=weights)

    def _ids(self, name: str, column: Any) -> Any:
        if self._names is not None:
            words = column_names(self.name, name, column)
            if not all(words):
                raise file_error(self.name, f"an empty name in column {name}", "a name in each row")
            return np.array([self._names.number(word) for word in words], dtype=np.int64)
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "iu" or values.dtype == np.uint64:
            hint = "--string-ids takes names." if is_text(column.type) else "Write them as integers."
            raise file_error(self.name, f"column {name} of type {column.type}", "integers of at most 63 bits", hint)
        return np.ascontiguousarray(values, dtype=np.int64)


_BLOCK = 1 << 22
_DELIMITERS = (",", ";", "\t")
_NUMBER = r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*"
_BAD_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): invalid value '(.*)'", re.S
)
_ROW = re.compile(r"Row #(\d+)")
_FILL_IN = "A missing feature needs a value, such as its column's mean; or leave the column out by --features OTHERS."

VertexTable: TypeAlias = "CsvTable | ParquetTable"


class VertexRows(NamedTuple):
    """An array of rows of vertices that is made piece by piece: each piece is (places of its rows, rows)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[tuple[Any, NDArray[Any]]]]


def open_table(path: Path) -> VertexTable:
    """Open a Parquet file, or a text with a line of names and columns between commas, semicolons or tabs.

    Raises
    ------
    DataError, InputError
        If it cannot be read so, or two columns have one name.
    MissingDependencyError
        Without pyarrow.
    """
    require_module("pyarrow.parquet", needed_for=f"reading {path.name}", extra="convert")
    if os.path.isdir(path) or compressed.inner_suffix(path) in PARQUET:
        return ParquetTable(path)
    with compressed.open_bytes(path) as file:
        form = compressed.binary_form(bytes(file.read(16)))
    if form == "Parquet":
        return ParquetTable(path)
    if form is not None:
        raise file_error(path, f"a file that is {form}", "a table, text or Parquet")
    return CsvTable.with_header(path)


def matrices(table: VertexTable, columns: Sequence[str]) -> Iterator[tuple[NDArray[np.float64], Any]]:
    """Yield rows of some columns of numbers, NaN where there is none, and the batch that they are of.

    Errors are those of `VertexTable.batches`.
    """
    for batch in table.batches(dict.fromkeys(columns, "number")):
        values = np.empty((batch.num_rows, len(columns)))
        for place, name in enumerate(columns):
            values[:, place] = batch.column(name).cast("float64", safe=False).to_numpy(zero_copy_only=False)
        yield values, batch


def feature_rows(table: VertexTable, columns: Sequence[str], rows: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield (their places, rows) of some columns of numbers, all of them finite.

    Raises
    ------
    DataError
        If a value is missing, no number or not finite, or there are more or fewer rows.
    """
    first = 0
    for values, batch in matrices(table, columns):
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        finite = np.isfinite(narrow)
        if not finite.all():
            row, place = divmod(int(np.argmin(finite)), len(columns))
            value = batch.column(columns[place])[row].as_py()
            given = f"{'no value' if value is None else value} in column {columns[place]} of row {first + row + 1}"
            expected, hint = "finite numbers of 32 bits, as features", _FILL_IN if np.isnan(values[row, place]) else ""
            raise file_error(table.path, given, expected, hint)
        first += len(narrow)
        if first > rows:
            break
        yield slice(first - len(narrow), first), narrow
    if first != rows:
        raise file_error(table.path, f"{'at least ' if first > rows else ''}{first} rows", f"{rows}, one per vertex")


class CsvTable:
    """A text with columns between delimiters; a field may be quoted by RFC 4180, and have line breaks then.

    `not_quite` has the first value that is no number, and its row, of each column whose values are mostly numbers.
    """

    column_bytes = 0

    def __init__(self, path: Path, names: Sequence[str], delimiter: str, *, header: bool) -> None:
        self.path, self.names, self.numeric = path, tuple(names), frozenset(names)
        self.not_quite: dict[str, str] = {}
        self._delimiter, self._header = delimiter, header
        self._flags: frozenset[str] = frozenset()

    @classmethod
    def with_header(cls, path: Path) -> CsvTable:
        """Take names, and which columns are numbers, of the first rows."""
        first = next(compressed.utf8_blocks(path, _blocks(path)), b"")
        end = first.find(b"\n")
        while end >= 0 and first.count(b'"', 0, end) % 2:
            end = first.find(b"\n", end + 1)
        row = first if end < 0 else first[:end]
        table = cls(path, (), _delimiter(path, b" ".join(row.rstrip(b"\r\n").splitlines())), header=True)
        with _errors(path, (), -1):
            rows = table._parsed(first, None, None)
            table.names = tuple(str(name).strip() for name in rows.schema.names)
        check_different(path, table.names)
        types = dict(zip(table.names, rows.schema.types, strict=True))
        table.numeric = numeric_columns(table.names, rows.schema.types)
        table._flags = frozenset(name for name, kind in types.items() if str(kind) == "bool")
        columns = [name for name, kind in types.items() if str(kind) == "string"]
        values = {name: _no_number(rows.column(table.names.index(name))) for name in columns}
        table.not_quite = {name: value for name, value in values.items() if value is not None}
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
        for block in compressed.utf8_blocks(self.path, _blocks(self.path)):
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

        mark = compressed.ORDER_MARK
        block = mark + block if block.startswith(mark) else block  # pyarrow leaves one out
        size, skipped = len(block) + 1, int(skip)
        reading = csv.ReadOptions(use_threads=False, block_size=size, column_names=names, skip_rows_after_names=skipped)
        parsing = csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        converting = csv.ConvertOptions()
        if types is not None:
            as_text = {"null_values": [], "strings_can_be_null": False}
            converting = csv.ConvertOptions(column_types=types, include_columns=list(types), **as_text)
        return csv.read_csv(pa.BufferReader(block), reading, parsing, converting)


def _delimiter(path: Path, row: bytes) -> str:
    """The character between the names of columns."""
    marks = ("\t",) if compressed.inner_suffix(path) == ".tsv" else _DELIMITERS
    split = {mark: fields for mark in marks if (fields := core().text_fields(row, mark)) is not None}
    several = [mark for mark, fields in split.items() if len(fields) > 1]
    clear = [mark for mark in several if not any(b'"' in field for field in split[mark])] or several or [*split][:1]
    names = split[clear[0]] if len(clear) == 1 else []
    is_sentence = len(names) == 1 and len(row.split()) > 1 and row.lstrip()[:1] != b'"'
    numbers = all(re.fullmatch(_NUMBER.encode(), name) for name in names)
    if any(names) and not is_sentence and not numbers:
        return clear[0]
    given = f"the first line {row.decode('utf-8', 'replace').strip()!r}"
    hint = "Put a line with the names of the columns before the rows." if numbers and names else ""
    raise file_error(path, given, "names of columns, between commas, semicolons or tabs", hint)


def _no_number(column: Any) -> str | None:
    """The first value that is no number in a column of which most are, and its row."""
    from pyarrow import compute

    is_number = compute.match_substring_regex(column, f"^({_NUMBER})$").to_numpy()
    is_other = ~is_number & compute.greater(compute.binary_length(column), 0).to_numpy()
    if not np.count_nonzero(is_number) > np.count_nonzero(is_other) > 0:
        return None
    row = int(np.argmax(is_other))
    return f"{column[row].as_py()!r} in row {row + 1}"


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield whole rows of a file, some MiB at a time."""
    too_long = "a row of more than {} bytes (a quote that is not closed?)"
    for rows in compressed.blocks(path, _BLOCK, _rows_end, too_long, "rows of a table"):
        if rows.count(b'"') % 2:
            raise file_error(path, "a quote that is not closed", "rows of a table")
        if rows.endswith(b"\n") or not rows.isspace():
            yield rows


def _rows_end(text: bytes) -> int:
    """Return the end of the last whole row: behind a line break that is not within quotes; 0 without one."""
    end = text.rfind(b"\n") + 1
    quotes = text.count(b'"', 0, end)
    while end and quotes % 2:
        before = text.rfind(b"\n", 0, end - 1) + 1
        quotes -= text.count(b'"', before, end)
        end = before
    return end


@contextmanager
def _errors(path: Path, names: Sequence[str], rows: int) -> Iterator[None]:
    """Add the place in the file to errors about a block of rows, `rows` others being before it."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, ValueError, OSError) as error:
        bad = _BAD_VALUE.search(str(error))
        if bad is None:
            text = _ROW.sub(lambda match: f"row {int(match[1]) + rows}", str(error))
            raise file_error(path, f"an unreadable file ({text})", "a table") from error
        hint = "" if bad[4] else _FILL_IN
        hint = "Ids that are names need --string-ids." if bad[3] == "int64" else hint
        row = "" if bad[2] is None else f" of row {int(bad[2]) + rows}"
        given = f"{bad[4]!r} in column {names[int(bad[1])]}{row}"
        raise file_error(path, given, "a number in each row", hint) from error
