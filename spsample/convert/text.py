"""Edge lists as text: CSV, TSV and columns in white space, as SNAP's files are; and Matrix Market."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spsample.convert import compressed
from spsample.convert.columns import (
    EdgeColumns,
    VertexNames,
    core,
    edge_columns,
    is_column_number,
    is_index_name,
    named_ends,
    vertex_name,
)
from spsample.convert.edges import EdgeChunk, EdgeList, given_chunk
from spsample.convert.options import ConvertOptions
from spsample.errors import DataError, InputError
from spsample.store.folder import file_error

_BYTES_PER_EDGE = 4
_MARKS = ",;\t "
_MARK_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", " ": "blanks"}
_HEAD = 1 << 16
_MAX_LINES = 1000  # that are looked at
_MAX_FIELDS = 1 << 62
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class TextForm(NamedTuple):
    """The form of lines.

    `fields` are the least and the most that a line has; `skipped` lines come before the first edge; `names` are those
    of the columns, or their numbers.
    """

    delimiter: str
    columns: EdgeColumns
    fields: tuple[int, int] = (0, _MAX_FIELDS)
    skipped: int = 0
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def text_form(path: Path, options: ConvertOptions) -> TextForm:
    """Find out delimiter, header and columns from the first lines of a file.

    Raises
    ------
    DataError, InputError
        If the file cannot be read, has no such columns, or may be read in more than one way.
    """
    number, lines = _first_lines(path)
    if not lines:
        return TextForm(" ", EdgeColumns(0, 1, -1 if options.weights is None else 2))
    if b"\r" in lines[0].rstrip(b"\r"):
        raise _bad_quotes(str(path), number + 1, lines[0])
    delimiter = _delimiter(path, lines, options)
    rows = [_fields(line, delimiter) for line in lines]
    fields = rows[0]
    if fields is None:
        raise _bad_quotes(str(path), number + 1, lines[0])
    header = _has_header(path, [row for row in rows[:2] if row], options)
    if header:
        compressed.require_utf8(path, lines[0], number + 1)
    names = tuple(fields) if header else tuple(str(column) for column in range(len(fields)))
    counts = not header and _counts(rows, options)
    columns = edge_columns(str(path), names if header else None, len(fields), options, counts=counts)
    notes: tuple[str, ...] = ()
    if options.header is None and not header and delimiter == "," and fields == ["0", "1"]:  # as pandas names columns
        notes = ("the first line, 0,1, is read as an edge; --header where it names the columns",)
    return TextForm(delimiter, columns, _field_counts(fields), number + 1 if header else 0, names, notes)


def _first_lines(path: Path) -> tuple[int, list[bytes]]:
    """Return the first lines that are no comments, and the number of the first of them, from 0."""
    number, rest = 0, b""
    with compressed.open_bytes(path) as file:
        head = bytes(file.read(_HEAD)).removeprefix(compressed.ORDER_MARK)
        form = compressed.binary_form(head)
        if form is not None:
            hint = "Give the file the suffix of its form, or say --format."
            given = f"a file that is no text but {form}"
            raise file_error(path, given, "lines of text in UTF-8, one edge each", hint)
        while head:
            *lines, rest = (rest + head).split(b"\n")
            for i, line in enumerate(lines):
                if _holds_data(line):
                    following = (rest + bytes(file.read(_HEAD))).split(b"\n")[:-1]
                    return number + i, [line, *filter(_holds_data, [*lines[i + 1 :], *following])][:_MAX_LINES]
            number += len(lines)
            if len(rest) > compressed.MAX_ROW:
                break
            head = bytes(file.read(_HEAD))
    return number, [rest] if _holds_data(rest) else []


def _holds_data(line: bytes) -> bool:
    words = line.strip()
    return bool(words) and words[:1] not in (b"#", b"%")


def _fields(line: bytes, delimiter: str) -> list[str] | None:
    """The fields of a line, or None where a quote is not closed."""
    fields = core().text_fields(line.rstrip(b"\r\n"), delimiter)
    return None if fields is None else [field.decode("utf-8", "replace") for field in fields]


def _field_counts(fields: Sequence[str]) -> tuple[int, int]:
    """The least and the most fields of a line: empty ones at its end may be left out."""
    return max((i + 1 for i, field in enumerate(fields) if field), default=0), len(fields)


def _fit(rows: Sequence[Sequence[str] | None]) -> bool:
    """Return whether all lines have as many fields as the first."""
    if rows[0] is None:
        return False
    least, most = _field_counts(rows[0])
    return all(row is not None and len(row) >= least and _field_counts(row)[0] <= most for row in rows)


def _delimiter(path: Path, lines: Sequence[bytes], options: ConvertOptions) -> str:
    """The character between columns.

    The one by which the first line is an edge or names its ends; else the one that there is; of several the one by
    which all lines have as many fields, without quotes left in them.
    """
    rows = {mark: [_fields(line, mark) for line in lines] for mark in _MARKS}
    seen = [mark for mark in _MARKS[:-1] if rows[mark][0] is None or len(rows[mark][0] or ()) > 1]
    if "\t" in seen and ".tsv" in path.suffixes:
        return "\t"
    if rows["\t"] == rows[" "]:
        seen = [mark for mark in seen if mark != "\t"]  # white space is either, and both
    first = {mark: rows[mark][0] or [] for mark in (*seen, " ")}
    clear = [mark for mark, row in first.items() if _is_edge(row, options) or _names_ends(row, options)]
    marks = clear or seen
    marks = [mark for mark in marks if _fit(rows[mark])] or marks
    marks = [mark for mark in marks if not any('"' in field for row in rows[mark] for field in row or ())] or marks
    if len(marks) > 1:
        kinds = " and ".join(_MARK_NAMES[mark] for mark in marks)
        given = f"the first line {_shown(lines[0])}, with {kinds} between words"
        hint = "Put fields that hold another one in quotes; a file with tabs alone has the suffix .tsv."
        raise file_error(path, given, "one character between columns", hint)
    return marks[0] if marks else " "


def _asked(options: ConvertOptions) -> list[str]:
    """Columns as the user gives them."""
    return [*(options.columns or ()), *([] if options.weights is None else [options.weights])]


def _ends(options: ConvertOptions, width: int) -> list[int]:
    """The columns of the ends, as far as these are known without a header."""
    free = [str(column) for column in range(width) if str(column) != options.weights]
    return [int(word) for word in options.columns or free[:2] if is_column_number(word) and int(word) < width]


def _is_edge(fields: Sequence[str], options: ConvertOptions) -> bool:
    """Return whether there are integers in the columns of the ends."""
    ends = _ends(options, len(fields))
    return len(ends) == 2 and all(_INTEGER.fullmatch(fields[column]) for column in ends)


def _names_ends(fields: Sequence[str], options: ConvertOptions) -> bool:
    """Return whether a line is certainly a header: it has the columns asked for, or one name of each end."""
    named = [word for word in _asked(options) if not is_column_number(word)]
    if named:
        return all(word in fields for word in named)
    sources, targets = named_ends(fields)
    one_character = options.string_ids and all(len(fields[i]) == 1 for i in (*sources, *targets))  # vertices u and v
    return bool(sources and targets) and not one_character


def _has_header(path: Path, rows: Sequence[Sequence[str]], options: ConvertOptions) -> bool:
    """Return whether the first of some lines names the columns."""
    first, second = rows[0], rows[1] if len(rows) > 1 else []
    if options.header is not None:
        return options.header
    if any(not is_column_number(word) for word in _asked(options)) or _names_ends(first, options):
        return True
    if len(first) > 2 and is_index_name(first[0]) and list(first[1:]) == [str(i) for i in range(len(first) - 1)]:
        return True  # a data frame without names, as pandas writes it with its index
    counted = len(first) > 2 and list(first) == [str(i) for i in range(len(first))]  # or without
    numbers = [bool(_NUMBER.fullmatch(field)) for field in first]
    if not any(numbers) and not options.string_ids:
        return True
    words_over_numbers = any(
        bool(word) and not number and bool(_NUMBER.fullmatch(below))
        for word, number, below in zip(first, numbers, second, strict=False)
    )
    ends = _ends(options, len(first))
    is_edge = all(numbers[column] for column in ends) or (options.string_ids and any(numbers) and all(first))
    if is_edge and not words_over_numbers and not counted:
        return False
    given = f"a first line of {path} that may name the columns or be an edge: {', '.join(map(repr, first))}"
    hint = "Type --header where it names the columns, or --no-header."
    raise InputError(argument="header", given=given, expected="one reading", hint=hint)


def _counts(rows: Sequence[Sequence[str] | None], options: ConvertOptions) -> bool:
    """Return whether the first column is 0, 1, 2, ... or 1, 2, 3, ..., and the third could hold an end of an edge."""
    first = [row[0] for row in rows if row]
    third = [row[2] for row in rows if row and len(row) > 2]
    may_be_ends = options.string_ids or all(_INTEGER.fullmatch(field) for field in third)
    return may_be_ends and len(first) > 1 and any(first == [str(i + k) for i in range(len(first))] for k in (0, 1))


class TextEdges(EdgeList):
    """An edge list with integer ids."""

    _words = "two vertex ids"
    _hint = "Integers of less than 64 bits are expected; --string-ids takes names."

    def __init__(self, path: Path, form: TextForm) -> None:
        self.name = str(path)
        source, target, weight = form.columns
        self.weight_dtype = None if weight < 0 else np.dtype(np.float64)
        self.unread = tuple(name for i, name in enumerate(form.names) if i not in form.columns)
        self.ends = (form.names[source], form.names[target]) if len(form.names) > max(source, target) else None
        self.notes = form.notes
        self._path, self._form = path, form

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield a function per block of lines; `open_bytes` has the errors of reading."""
        for text in _blocks(self._path, count * _BYTES_PER_EDGE, self._form.skipped):
            yield partial(self._parse, text)

    def _parse(self, text: bytes) -> EdgeChunk:
        form = self._form
        parsed = core().edge_parse(text, form.delimiter, tuple(form.columns), form.fields)
        return self._chunk(text, *parsed)

    def _chunk(self, text: bytes, sources: Any, targets: Any, weights: Any, lines: int, bad: int) -> EdgeChunk:
        held = None if self.weight_dtype is None else weights
        chunk = EdgeChunk(sources, targets, len(sources), weights=held, lines=lines)
        chunk.place = partial(_line_of_edge, text)
        if bad >= 0:
            chunk.problem = partial(self._refusal, text.split(b"\n")[bad], bad)
        return chunk

    def _refusal(self, line: bytes, number: int, first_line: int) -> DataError:
        """The error about a line that is no edge."""
        form, number = self._form, first_line + number
        fields = _fields(line, form.delimiter)
        if fields is None:
            return _bad_quotes(self.name, number, line)
        given = f"{_shown(line)} in line {number}"
        if not _holds_data(line):
            hint = "Put the first column in quotes where it is an edge, or remove the line."
            return file_error(self.name, given, "a comment or an edge", hint)
        held = _field_counts(fields)[0]
        if max(form.columns) < len(fields) and not (len(fields) >= form.fields[0] and held <= form.fields[1]):
            expected = f"{form.fields[1]} columns" + (", as in the first line" if form.names else "")
            hint = "A field that holds what separates columns stands in quotes. Lists of neighbours are not read."
            return file_error(self.name, given, expected, hint)
        weight = form.columns.weight
        if 0 <= weight < len(fields) and not _NUMBER.fullmatch(fields[weight]):
            return file_error(self.name, f"{fields[weight]!r} as the weight of {given}", "a number, as 1500.5")
        return file_error(self.name, given, self._words, self._hint)


def _shown(line: bytes) -> str:
    words = line.decode("utf-8", "replace").strip()
    return repr(words if len(words) <= 80 else words[:77] + "...")


def _bad_quotes(name: str, number: int, line: bytes) -> DataError:
    if b"\r" in line.rstrip(b"\r"):
        given = f"a carriage return within line {number}: {_shown(line)}"
        return file_error(name, given, "lines that end in a line feed")
    given = f"{_shown(line)} in line {number}, with a quote that is not closed, or words behind a closing one"
    hint = "Quote the whole field, and double the quotes in it. Line breaks within quotes are not read."
    return file_error(name, given, "quoted fields that end in their line", hint)


def _line_of_edge(text: bytes, edge: int, first_line: int) -> str:
    numbers = (i for i, line in enumerate(text.split(b"\n")) if _holds_data(line))
    at = next((number for i, number in enumerate(numbers) if i == edge), 0)
    return f"line {first_line + at}"


def _blocks(path: Path, size: int, skipped: int) -> Iterator[bytes]:
    """Yield the lines of a file in blocks of about `size` bytes; the first ones that are skipped are empty."""
    too_long, expected = "a line of more than {} bytes", "lines of text, one edge each"
    for text in compressed.blocks(path, size, lambda text: text.rfind(b"\n") + 1, too_long, expected):
        if skipped:
            pieces = text.split(b"\n", skipped)
            skipped -= len(pieces) - 1
            yield b"\n" * (len(pieces) - 1) + (b"" if skipped else pieces[-1])
        else:
            yield text


class NamedTextEdges(TextEdges):
    """An edge list whose vertices are strings, numbered in order of first appearance."""

    _words, _hint = "two names", ""

    def __init__(self, path: Path, form: TextForm, names: VertexNames) -> None:
        super().__init__(path, form)
        self._names = names

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks, which are made one after the other: numbers go by the order of the file."""
        pieces = _blocks(self._path, min(count * _BYTES_PER_EDGE, 1 << 22), self._form.skipped)
        for text in compressed.utf8_blocks(self._path, pieces):
            yield partial(given_chunk, self._parse(text))

    def _parse(self, text: bytes) -> EdgeChunk:
        form = self._form
        sources, targets, *others = core().edge_names(text, form.delimiter, tuple(form.columns), form.fields)
        places = np.stack([sources.reshape(-1, 2), targets.reshape(-1, 2)], axis=1).reshape(-1, 2)
        numbers = (self._names.number(_name(text, begin, end)) for begin, end in places.tolist())
        ids = np.fromiter(numbers, np.int64, len(places)).reshape(-1, 2).T.copy()
        return self._chunk(text, ids[0], ids[1], *others)


def _name(text: bytes, begin: int, end: int) -> str:
    """A field of a text; in quotes, two of them stand for one."""
    name = text[begin:end]
    if text[begin - 1 : begin] == b'"':
        name = name.replace(b'""', b'"')
    return vertex_name(name)


_MAX_COMMENTS = 1 << 20
_EXPECTED = "a square Matrix Market file: %%MatrixMarket matrix coordinate pattern|integer|real general|symmetric"


class MatrixMarketEdges(EdgeList):
    """The entries of a Matrix Market file in coordinate form: (i, j) is an edge from j to i (row = target), ids from 1.

    Symmetric ones hold one triangle, whose reverses follow entry by entry.

    The position of an edge in the input is its place among these: entries and, where symmetric, their reverses.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        with compressed.open_bytes(path) as file:
            lines = bytes(file.read(_MAX_COMMENTS)).decode("utf-8", "replace").split("\n")
        words = lines[0].lower().split()
        if words[:3] != ["%%matrixmarket", "matrix", "coordinate"] or len(words) != 5:
            raise file_error(path, repr(lines[0][:80]), _EXPECTED)
        if words[3] not in ("pattern", "integer", "real") or words[4] not in ("general", "symmetric"):
            raise file_error(path, f"a matrix that is {words[3]} and {words[4]}", _EXPECTED)
        number = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("%")), 0)
        sizes = lines[number].split()
        if len(sizes) != 3 or not all(size.isdigit() for size in sizes) or sizes[0] != sizes[1]:
            raise file_error(path, f"{lines[number][:80]!r} in line {number + 1}", _EXPECTED)
        self._size, self._entries = int(sizes[0]), int(sizes[2])
        self._is_symmetric = words[4] == "symmetric"
        width, weight = (2, -1) if words[3] == "pattern" else (3, 2)
        self._text = TextEdges(path, TextForm(" ", EdgeColumns(1, 0, weight), (width, width), number + 1))
        self.num_nodes, self.weight_dtype = self._size, self._text.weight_dtype
        self._read: list[int] = []  # entries of each chunk

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield a function per block of lines."""
        self._read.clear()
        for task in self._text.tasks(max(1, count // 2) if self._is_symmetric else count):
            yield partial(self._both_ways, task)

    def _both_ways(self, task: Callable[[], EdgeChunk]) -> EdgeChunk:
        chunk = task()
        place = chunk.place
        self._end_at_outside(chunk)
        self._read.append(chunk.count)
        chunk.sources, chunk.targets = chunk.sources - 1, chunk.targets - 1
        if not self._is_symmetric:
            return chunk
        is_there = np.stack([np.ones(chunk.count, np.bool_), chunk.sources != chunk.targets], axis=1)
        entry = np.repeat(np.arange(chunk.count), 2)[is_there.ravel()]
        ends = np.stack([chunk.sources, chunk.targets], axis=1)
        chunk.sources, chunk.targets = ends[is_there], ends[:, ::-1][is_there]
        chunk.weights = None if chunk.weights is None else chunk.weights[entry]
        chunk.count = len(entry)
        chunk.place = None if place is None else lambda i, line: place(int(entry[i]), line)
        return chunk

    def _end_at_outside(self, chunk: EdgeChunk) -> None:
        """End a chunk before its first entry outside of the matrix."""
        n = self._size
        outside = (chunk.sources < 1) | (chunk.sources > n) | (chunk.targets < 1) | (chunk.targets > n)
        if not outside.any() or chunk.place is None:
            return
        at = int(np.argmax(outside))
        row, column, place = int(chunk.targets[at]), int(chunk.sources[at]), chunk.place
        expected = f"rows and columns from 1 to {n}: Matrix Market counts from 1"
        given = f"row {row} and column {column} in"
        chunk.problem = lambda line: file_error(self.name, f"{given} {place(at, line)}", expected)
        chunk.sources, chunk.targets, chunk.count = chunk.sources[:at], chunk.targets[:at], at
        chunk.weights = None if chunk.weights is None else chunk.weights[:at]

    def check(self) -> None:
        """Refuse a file that ended early or went on, once it has been read.

        Raises
        ------
        DataError
            If there were not as many entries as the header says.
        """
        if sum(self._read) != self._entries:
            raise file_error(self.name, f"{sum(self._read)} entries", f"{self._entries}, as the header says")
