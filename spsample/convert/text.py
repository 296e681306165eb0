"""Edge lists as text: CSV, TSV and columns in white space, as SNAP's files are."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spsample.convert.chunks import EdgeChunk, given_chunk
from spsample.convert.compressed import open_bytes
from spsample.convert.names import VertexNames
from spsample.convert.options import ConvertOptions
from spsample.convert.resources import core
from spsample.errors import DataError, InputError

__all__ = ["NamedTextEdges", "TextEdges", "TextForm", "text_form"]

_BYTES_PER_EDGE = 4
_DELIMITERS = (",", ";")
_HEAD = 1 << 16
_MARK = b"\xef\xbb\xbf"  # of UTF-8, as spreadsheets write it
_MOST_HEAD = 1 << 26


class TextForm(NamedTuple):
    """How lines are read; columns are numbers; `skipped` lines come before the first edge; `unread` columns by name."""

    delimiter: str
    source: int
    target: int
    weight: int
    skipped: int
    unread: tuple[str, ...] = ()


def text_form(path: Path, options: ConvertOptions) -> TextForm:
    """Find out delimiter, header and columns from the first lines of a file.

    Raises
    ------
    DataError, InputError
        If the file cannot be read, or has no such columns.
    """
    number, first = _first_line(path)
    marks = ("\t", *_DELIMITERS) if options.string_ids or ".tsv" in path.suffixes else _DELIMITERS
    delimiter = next((mark for mark in marks if mark in first), " ")
    try:
        fields = split_line(first, delimiter)
    except csv.Error as error:
        raise bad_line(str(path), number + 1, first, f"a line of CSV ({error})") from None
    wanted = [*options.columns, *([] if options.weights is None else [options.weights])]
    by_name = any(not word.isdigit() for word in wanted)
    header = by_name if options.header is None else options.header
    if options.header is None and not by_name and not options.string_ids and first:
        header = not _are_integers(fields, wanted[:2])
    columns = [
        _column(path, word, fields if header else None, argument)
        for word, argument in zip(wanted, ("columns", "columns", "weights"), strict=False)
    ]
    weight = columns[2] if len(columns) > 2 else -1
    names = fields if header else [str(column) for column in range(len(fields))]
    unread = tuple(name for column, name in enumerate(names) if column not in columns)
    return TextForm(delimiter, columns[0], columns[1], weight, number + 1 if header else 0, unread)


def _first_line(path: Path) -> tuple[int, str]:
    """Return the first line that is no comment, and its number from 0; without one, as many as there are and ``""``."""
    number, rest = 0, b""
    with open_bytes(path) as file:
        head = _without_mark(bytes(file.read(_HEAD)))
        while head:
            *lines, rest = (rest + head).split(b"\n")
            for line in lines:
                if _holds_data(text := line.decode("utf-8", "replace")):
                    return number, text
                number += 1
            if len(rest) > _MOST_HEAD:
                break
            head = bytes(file.read(_HEAD))
    last = rest.decode("utf-8", "replace")
    return (number, last) if _holds_data(last) else (number, "")


def _without_mark(text: bytes) -> bytes:
    """The beginning of a file, without a byte order mark."""
    return text[len(_MARK) :] if text.startswith(_MARK) else text


def split_line(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line."""
    if delimiter == " ":
        return line.split()
    return [field.strip() for field in next(csv.reader([line], delimiter=delimiter))] if line.strip() else []


def _holds_data(line: str) -> bool:
    return bool(line.strip()) and line.lstrip()[0] not in "#%"


def _are_integers(fields: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether the id columns of a line look like numbers; a line too short is an edge, which is refused later."""
    words = [fields[int(column)] for column in columns if int(column) < len(fields)]
    return all(word[:1].isdigit() or word[:1] in "+-." for word in words)


def _column(path: Path, word: str, names: list[str] | None, argument: str) -> int:
    if names is not None and word in names:
        return names.index(word)
    if word.isdigit():
        return int(word)
    found = "no header line" if names is None else "the columns " + ", ".join(names)
    raise InputError(argument=argument, given=f"{word!r} for {path} with {found}", expected="a column of the file")


class TextEdges:
    """An edge list with integer ids; see `EdgeList`."""

    rereadable = False

    def __init__(self, path: Path, form: TextForm) -> None:
        self.name = str(path)
        self.num_nodes: int | None = None
        self.weight_dtype = None if form.weight < 0 else np.dtype(np.float64)
        self.unread = form.unread
        self._path, self._form = path, form

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield a function per block of lines; `open_bytes` has the errors of reading."""
        for text in blocks(self._path, count * _BYTES_PER_EDGE, self._form.skipped):
            yield partial(self._parse, text)

    def _parse(self, text: bytes) -> EdgeChunk:
        form = self._form
        sources, targets, weights, lines, bad = core().edge_parse(
            text, form.delimiter, form.source, form.target, form.weight
        )
        held = None if self.weight_dtype is None else weights
        chunk = EdgeChunk(sources, targets, len(sources), weights=held, lines=lines)
        chunk.place = partial(_line_of_edge, text)
        if bad >= 0:
            chunk.problem = partial(self._refusal, text.split(b"\n")[bad], bad)
        return chunk

    def _refusal(self, line: bytes, number: int, first_line: int) -> DataError:
        words = "two vertex ids" if self.weight_dtype is None else "two vertex ids and a weight"
        return bad_line(self.name, first_line + number, line.decode("utf-8", "replace"), words)


def bad_line(name: str, number: int, line: str, words: str) -> DataError:
    """Return the error about a line that is no edge."""
    shown = line.strip() if len(line) <= 80 else line.strip()[:77] + "..."
    hint = "Integers of less than 64 bits are expected; --string-ids takes names." if "id" in words else ""
    return DataError(argument=name, given=f"{shown!r} in line {number}", expected=words, hint=hint)


def _line_of_edge(text: bytes, edge: int, first_line: int) -> str:
    numbers = (i for i, line in enumerate(text.split(b"\n")) if _holds_data(line.decode("utf-8", "replace")))
    at = next((number for i, number in enumerate(numbers) if i == edge), 0)
    return f"line {first_line + at}"


def blocks(path: Path, size: int, skipped: int) -> Iterator[bytes]:
    """Yield the lines of a file in blocks of about `size` bytes; the first ones that are skipped are empty."""
    rest = b""
    with open_bytes(path) as file:
        first = _without_mark(bytes(file.read(max(size, len(_MARK)))))
        for data in chain([first], iter(lambda: bytes(file.read(max(size, 1))), b"")):
            if skipped:
                data, skipped = _emptied(data, skipped)
            end = data.rfind(b"\n") + 1
            if end == 0:
                rest += data
                _check_line(path, rest)
                continue
            yield rest + data[:end]
            rest = data[end:]
    if rest:
        yield rest


def _emptied(data: bytes, lines: int) -> tuple[bytes, int]:
    """Return bytes with their first lines empty, and how many such lines are still to come."""
    pieces = data.split(b"\n", lines)
    ended = len(pieces) - 1
    return b"\n" * ended + (pieces[-1] if ended == lines else b""), lines - ended


def _check_line(path: Path, line: bytes) -> None:
    if len(line) > 1 << 26:
        given = f"a line of more than {len(line)} bytes"
        raise DataError(argument=str(path), given=given, expected="lines of text, one edge each")


class NamedTextEdges(TextEdges):
    """An edge list whose vertices are strings, numbered in order of first appearance."""

    def __init__(self, path: Path, form: TextForm, names: VertexNames) -> None:
        super().__init__(path, form)
        self._names = names

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks, which are made one after the other: numbers go by the order of the file."""
        line = 1
        for text in blocks(self._path, min(count * _BYTES_PER_EDGE, 1 << 22), self._form.skipped):
            chunk = self._read(text, line)
            line += text.count(b"\n")
            yield partial(given_chunk, chunk)

    def _read(self, text: bytes, line: int) -> EdgeChunk:
        form, ids, weights, where = self._form, [], [], []
        for number, words in enumerate(text.decode("utf-8", "surrogateescape").split("\n"), line):
            if number <= form.skipped or not _holds_data(words):
                continue
            try:
                fields = split_line(words.rstrip("\r"), form.delimiter)
                ends = fields[form.source], fields[form.target]
                if not all(ends):
                    raise ValueError("a name that is empty")
                weights.append(float(fields[form.weight]) if form.weight >= 0 else 0.0)
            except (IndexError, ValueError, csv.Error):
                expected = "two names" if form.weight < 0 else "two names and a weight"
                raise bad_line(self.name, number, words, expected) from None
            ids.append((self._names.number(ends[0]), self._names.number(ends[1])))
            where.append(number)
        pairs = np.array(ids, dtype=np.int64).reshape(-1, 2).T.copy()
        held: Any = None if self.weight_dtype is None else np.array(weights, dtype=np.float64)
        return EdgeChunk(pairs[0], pairs[1], len(ids), weights=held, place=lambda i, _: f"line {where[i]}")
