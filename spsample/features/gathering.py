"""Rows of features, found and read from where they lie to where they are wanted: by the compiled core, or by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.common.threads import compiled_core
from spsample.errors import BackendError, DTypeError, InputError
from spsample.features.formats import AsStored, RowFormat, dense_rows
from spsample.store.row_order import ReorderedRows
from spsample.store.validation import as_id_vector, check_ids

_VERTICES = 32
"""Vertices of a word."""


class HitsAndMisses(NamedTuple):
    """Ids split in two.

    Attributes
    ----------
    hits : int64 array
        Positions of the ids that have a slot, ascending.
    slots : int array
        The slot of each of them.
    misses : int64 array
        Positions of the other ids, ascending.
    """

    hits: NDArray[np.int64]
    slots: NDArray[Any]
    misses: NDArray[np.int64]


class SlotMap:
    """From vertices to the slots of their rows, which lie in the order of the vertices.

    Where some vertices have a row, a word stands for 32 vertices. Its lower half says which of them have a row, a bit
    each; its upper half, how many vertices before them have one. A vertex's slot is the upper half and the ones below
    its bit: one load, from an array that a cache of the processor holds where a table of slots would not fit. Where all
    vertices have a row, or none, no words are kept.

    Parameters
    ----------
    vertices : int64 array
        The vertices that have a row, ascending and distinct; fewer than 2^32.
    num_rows : int
        Number of all vertices.

    Attributes
    ----------
    words : uint64 array or None
        One for 32 vertices.
    num_rows, num_kept : int
        Numbers of all vertices, and of those that have a row.

    Examples
    --------
    >>> slots = SlotMap(np.array([3, 40, 41]), 100)
    >>> split = slots.find(np.array([41, 7, 3]))
    >>> split.hits.tolist(), split.slots.tolist(), split.misses.tolist()
    ([0, 2], [2, 0], [1])
    >>> slots.vertices().tolist(), slots.nbytes
    ([3, 40, 41], 32)
    >>> SlotMap(np.arange(3), 3).find(np.array([2, 2])).slots.tolist()
    [2, 2]
    """

    def __init__(self, vertices: NDArray[np.int64], num_rows: int) -> None:
        self.num_rows, self.num_kept = num_rows, len(vertices)
        self.words = slot_words(vertices, num_rows) if 0 < len(vertices) < num_rows else None

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return 0 if self.words is None else int(self.words.nbytes)

    def find(self, ids: NDArray[Any]) -> HitsAndMisses:
        """Split ids, which are in range; in any order, repeats allowed."""
        if self.words is None:
            all_of_them, none = np.arange(len(ids)), np.empty(0, np.int64)
            return HitsAndMisses(all_of_them, ids, none) if self.num_kept else HitsAndMisses(none, none, all_of_them)
        core = compiled_core()
        if core is None:
            return find_slots(self.words, ids)
        return HitsAndMisses(*core.find_places(self.words, self.num_rows, ids))

    def gather(
        self, reader: RowReader, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Read the rows that ids have to rows `at` of `out`; give the positions of the ids that have none."""
        if self.words is not None:
            return reader.gather_kept(self, ids, out, at)
        if self.num_kept:
            reader.gather(ids, out, at)
        return np.arange(0 if self.num_kept else len(ids))

    def gather_all(
        self, reader: RowReader, rest: RowReader, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> int:
        """Read the rows of all ids, of those that have none from `rest`, which has all; give how many have one."""
        if self.words is not None:
            return reader.gather_cached(rest, self, ids, out, at)
        (reader if self.num_kept else rest).gather(ids, out, at)
        return len(ids) if self.num_kept else 0

    def vertices(self) -> NDArray[np.int64]:
        """The vertices that have a slot, ascending: slot i is that of vertex i of them."""
        if self.words is None:
            return np.arange(self.num_kept)
        kept = (self.words & np.uint64(2**_VERTICES - 1)).astype("<u4")
        return np.flatnonzero(np.unpackbits(kept.view(np.uint8), bitorder="little"))


def slot_words(vertices: NDArray[np.int64], num_rows: int) -> NDArray[np.uint64]:
    """The words of a `SlotMap` of these vertices, ascending and distinct.

    Examples
    --------
    >>> slot_words(np.array([0, 33]), 64).tolist()
    [1, 4294967298]
    """
    words = np.zeros(-(-num_rows // _VERTICES), np.uint64)
    first = np.flatnonzero(np.diff(vertices // _VERTICES, prepend=-1))  # the first vertex of each word that has any
    if len(vertices):
        bits = np.uint64(1) << (vertices % _VERTICES).astype(np.uint64)
        words[vertices[first] // _VERTICES] = np.bitwise_or.reduceat(bits, first)
    before = np.searchsorted(vertices, np.arange(len(words)) * _VERTICES)
    return words | before.astype(np.uint64) << np.uint64(_VERTICES)


def find_slots(words: NDArray[np.uint64], ids: NDArray[Any]) -> HitsAndMisses:
    """Split ids as the compiled core does, by NumPy.

    Examples
    --------
    >>> find_slots(np.array([0b101, 2 << 32], np.uint64), np.array([2, 1])).slots.tolist()
    [1]
    """
    word, bit = words[ids // _VERTICES], (ids % _VERTICES).astype(np.uint64)
    is_hit = (word >> bit) & np.uint64(1) != 0
    hits = np.flatnonzero(is_hit)
    word, below = word[hits], (np.uint64(1) << bit[hits]) - np.uint64(1)
    bits_below = np.unpackbits((word & below).view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1, dtype=np.int64)
    return HitsAndMisses(hits, (word >> np.uint64(_VERTICES)).astype(np.int64) + bits_below, np.flatnonzero(~is_hit))


def slot_map_bytes(num_rows: int) -> int:
    """Bytes of a `SlotMap` of that many vertices, of which some have a row.

    Examples
    --------
    >>> slot_map_bytes(1_000_000)
    250000
    """
    return 8 * -(-num_rows // _VERTICES)


class RowReader:
    """Rows of a dense array or a CSR matrix, by number; read by NumPy and SciPy.

    Attributes
    ----------
    rows : array (rows, numbers) or SciPy CSR matrix
    form : RowFormat
        What the numbers stand for.
    num_rows, dim : int
        Number of rows, and of the numbers of each.
    """

    def __init__(self, rows: Any, form: RowFormat) -> None:
        self.rows: Any = rows
        self.form = form
        self.num_rows, self.dim = int(rows.shape[0]), int(rows.shape[1])

    def gather(self, ids: NDArray[Any], out: Any = None, at: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Rows `ids`, repeats allowed.

        Parameters
        ----------
        ids : int32 or int64 array
            C order.
        out : array (places, dim), optional
            Where rows go, in C order: float32, or of the dtype of `rows`, whose numbers are then not converted. None: a
            new array of float32.
        at : int64 array (len(ids),), optional
            The row of `out` for each id, all distinct. None: `out` has one row for each id, in order.

        Returns
        -------
        ndarray
            `out`, or the new array.

        Raises
        ------
        IndexError, InputError
            If an id is out of range. All else is not checked: see `FeatureSource.gather`.
        """
        check_ids("ids", ids, self.num_rows)
        rows = dense_rows(self.rows, ids)
        if out is None:
            return self.form.decode(rows)
        out[slice(None) if at is None else at] = rows if _as_stored(out, rows) else self.form.decode(rows)
        return out  # type: ignore[no-any-return]

    def gather_kept(
        self, slots: SlotMap, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Rows of those vertices `ids` that have one here, to `out`, at its rows `at`.

        Returns
        -------
        int64 array
            Positions of the other ids, ascending; their rows of `out` are left as they are.

        Raises
        ------
        IndexError, InputError
            If an id is out of range.
        """
        check_ids("ids", ids, slots.num_rows)
        split = slots.find(ids)
        self.gather(split.slots, out, split.hits if at is None else at[split.hits])
        return split.misses

    def gather_cached(
        self, rest: RowReader, slots: SlotMap, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> int:
        """Rows of vertices `ids`: of those that have one here as `gather_kept`, of the others from `rest`.

        Parameters
        ----------
        rest : RowReader
            The rows of all vertices, of the same dtype and form.
        slots, ids, out, at
            As of `gather_kept`.

        Returns
        -------
        int
            How many were read here.
        """
        misses = self.gather_kept(slots, ids, out, at)
        rest.gather(ids[misses], out, misses if at is None else at[misses])
        return len(ids) - len(misses)

    def as_kept(self, ids: NDArray[Any]) -> NDArray[Any]:
        """Rows `ids`, which are in range, dense and in the form in which they are kept, as they are sent to ranks."""
        rows = dense_rows(self.rows, ids)
        return rows if rows.dtype == self.form.dtype else self.form.encode(rows)

    def lying(self, ids: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        """The array that rows `ids`, which are in range, are read from, and their numbers in it."""
        return self.rows, ids


class _DenseReader(RowReader):
    """Rows of an array in C order, read by the compiled core with all threads of the caller.

    It asks memory for the rows that come next, converts them on the way, and writes a large result past the caches.
    Bytes moved: those of an id, the row read once, and written once.
    """

    def gather(self, ids: NDArray[Any], out: Any = None, at: NDArray[np.int64] | None = None) -> NDArray[Any]:
        made = self._gathered(ids, *self._form_in(out), None if out is None else out.reshape(-1), at)
        return made if out is None else out

    def as_kept(self, ids: NDArray[Any]) -> NDArray[Any]:
        return self._gathered(ids, "stored") if self.rows.dtype == self.form.dtype else super().as_kept(ids)

    def gather_kept(
        self, slots: SlotMap, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        rows, words, read = np.asarray(self.rows), (slots.words, slots.num_rows), compiled_core().gather_kept_features
        misses: NDArray[np.int64] = read(
            rows.reshape(-1), rows.shape, *words, ids, *self._form_in(out), out.reshape(-1), at
        )
        return misses

    def gather_cached(
        self, rest: RowReader, slots: SlotMap, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> int:
        if not isinstance(rest, _DenseReader):
            return super().gather_cached(rest, slots, ids, out, at)
        kept, every, words = np.asarray(self.rows), np.asarray(rest.rows).reshape(-1), (slots.words, slots.num_rows)
        read = compiled_core().gather_cached_features
        hits: int = read(kept.reshape(-1), kept.shape, every, *words, ids, *self._form_in(out), out.reshape(-1), at)
        return hits

    def _form_in(self, out: Any) -> tuple[str, NDArray[np.float32] | None]:
        """The core's name of the form in which numbers go to `out`, and the scale that it needs."""
        if out is not None and _as_stored(out, self.rows):
            return "stored", None
        return self.form.core_name, self.form.scale

    def _gathered(self, ids: NDArray[Any], *form_and_target: Any) -> NDArray[Any]:
        """Rows in a form, with its scale, the array and the places that they go to, as the core takes them."""
        rows = np.asarray(self.rows)
        result: NDArray[Any] = compiled_core().gather_features(rows.reshape(-1), rows.shape, ids, *form_and_target)
        return result


class _ReorderedReader(RowReader):
    """Rows that were moved: read where they lie by another reader."""

    def __init__(self, rows: ReorderedRows, form: RowFormat) -> None:
        super().__init__(rows, form)
        self._stored = row_reader(rows.stored, form)

    def as_kept(self, ids: NDArray[Any]) -> NDArray[Any]:
        return self._stored.as_kept(self.rows.rows.take(ids))

    def lying(self, ids: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        return self.rows.stored, self.rows.rows.take(ids)

    def gather(self, ids: NDArray[Any], out: Any = None, at: NDArray[np.int64] | None = None) -> NDArray[Any]:
        check_ids("ids", ids, self.num_rows)
        return self._stored.gather(self.rows.rows.take(ids), out, at)


class _SparseReader(RowReader):
    """Rows of a CSR matrix, read by the compiled core into dense ones."""

    def __init__(self, rows: Any, form: RowFormat) -> None:
        super().__init__(rows, form)
        self._indptr = np.asarray(rows.indptr, dtype=np.int64)

    def gather(self, ids: NDArray[Any], out: Any = None, at: NDArray[np.int64] | None = None) -> NDArray[Any]:
        if out is not None and out.dtype != np.float32:
            return super().gather(ids, out, at)
        flat = None if out is None else out.reshape(-1)
        x = self.rows
        made = compiled_core().gather_sparse_features(self._indptr, x.indices, x.data, self.dim, ids, flat, at)
        return made if out is None else out  # type: ignore[no-any-return]


def row_reader(rows: Any, form: RowFormat | None = None) -> RowReader:
    """The fastest reader of these rows: the compiled core, or NumPy where there is none or an array's order forbids it.

    Parameters
    ----------
    rows : array (rows, numbers) or SciPy CSR matrix
        As of `spsample.features.gathering.as_rows`; not copied, but for a matrix with several entries of one place.
    form : RowFormat, optional
        What the numbers stand for. By default for themselves.

    Examples
    --------
    >>> reader = row_reader(np.array([[1, 2], [3, 4], [5, 6]], np.float16))
    >>> reader.gather(np.array([2, 0]))
    array([[5., 6.],
           [1., 2.]], dtype=float32)
    >>> reader.gather(np.array([1]), out=np.zeros((3, 2), np.float32), at=np.array([2]))
    array([[0., 0.],
           [0., 0.],
           [3., 4.]], dtype=float32)
    """
    form = AsStored(rows.dtype) if form is None else form
    if isinstance(rows, ReorderedRows):
        return _ReorderedReader(rows, form)
    has_core = compiled_core() is not None
    is_known = rows.dtype.isnative and rows.dtype.itemsize <= _MAX_NUMBER_BYTES
    if sparse.issparse(rows):
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        is_plain = isinstance(form, AsStored) and rows.dtype != np.float16
        return _SparseReader(rows, form) if has_core and is_plain and is_known else RowReader(rows, form)
    if has_core and is_known and rows.flags.c_contiguous and rows.flags.aligned:
        return _DenseReader(rows, form)
    return RowReader(rows, form)


_MAX_NUMBER_BYTES = 8


def _as_stored(out: NDArray[Any], rows: NDArray[Any]) -> bool:
    """True where numbers go to `out` as they are, of a type that is not float32."""
    return out.dtype == rows.dtype and out.dtype != np.float32


def require_core(user: str) -> Any:
    """Return the compiled core.

    Raises
    ------
    BackendError
        If it is missing.
    """
    core = compiled_core()
    if core is None:
        raise BackendError(f"{user} needs the compiled core, which is missing: build spsample with a C++ compiler.")
    return core


def new_rows(count: int, dim: int) -> NDArray[np.float32]:
    """A new array (count, dim) of float32, not filled, of the core's memory, which keeps what is given back.

    Examples
    --------
    >>> new_rows(2, 3).shape
    (2, 3)
    """
    core = compiled_core()
    if core is None:
        return np.empty((count, dim), np.float32)
    result: NDArray[np.float32] = core.new_rows(count, dim)
    return result


def require_destination(
    out: Any, at: Any, count: int, dim: int, dtypes: tuple[np.dtype[Any], ...]
) -> NDArray[np.int64] | None:
    """Check where `count` rows go, and return the places `at` as int64.

    Raises
    ------
    InputError, DTypeError
        If `out` is no array in C order of rows of `dim` numbers that can be written, of one of the dtypes; or has not
        `count` rows, without `at`; or `at` has not one place in `out` for each.

    Examples
    --------
    >>> require_destination(np.zeros((2, 3)), None, 2, 4, (np.dtype(float),))
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: out: got shape (2, 3); expected rows of 4 numbers
    """
    is_array = isinstance(out, np.ndarray)
    if out is not None and not (is_array and out.dtype in dtypes):
        given = f"dtype {out.dtype}" if is_array else type(out).__name__
        names = " or ".join(dict.fromkeys(map(str, dtypes)))
        raise DTypeError(argument="out", given=given, expected=f"a NumPy array of {names}")
    places = require_places(out, at, count, dim, lambda: np.ascontiguousarray(as_id_vector("at", at), dtype=np.int64))
    if is_array and not (out.flags.c_contiguous and out.flags.writeable):
        given = "an array in another order" if out.flags.writeable else "a read-only array"
        raise InputError(argument="out", given=given, expected="an array in C order that can be written")
    if places is not None:
        check_ids("at", places, len(out))
    return places  # type: ignore[no-any-return]


def require_places(out: Any, at: Any, count: int, dim: int, places_of: Callable[[], Any]) -> Any:
    """Check that `count` rows of `dim` numbers fit in `out`, and return the places at which they go there, if any.

    Parameters
    ----------
    out, at, count, dim
        As of `require_destination`; `out` is an array of a dtype that will do, or None.
    places_of : function
        Returns `at` as an array.
    """
    if out is None:
        if at is not None:
            raise InputError(argument="at", given="places without out", expected="out, whose rows they are")
        return None
    if out.ndim != 2 or out.shape[1] != dim:
        raise InputError(argument="out", given=f"shape {out.shape}", expected=f"rows of {dim} numbers")
    if at is None:
        if len(out) != count:
            raise InputError(argument="out", given=f"{len(out)} rows", expected=f"one for each id: {count}")
        return None
    places = places_of()
    if len(places) != count:
        raise InputError(argument="at", given=f"{len(places)} places", expected=f"one for each id: {count}")
    return places
