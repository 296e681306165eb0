"""Features in memory, and in the memory maps of a store."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from scipy import sparse

from spsample.common.contents import contents_of, is_mapped
from spsample.errors import InputError
from spsample.features.formats import as_stored_rows
from spsample.features.gathering import RowReader, row_reader
from spsample.features.source import FeatureSource, FileState, file_state, state_of_path
from spsample.store import GraphStore
from spsample.store.layout import array_file
from spsample.store.validation import check_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.distributed import ProcessGrid
    from spsample.features.partitioned import PartitionedFeatures

_PAGE_BYTES = 4096


class FeatureStore(FeatureSource):
    """Feature rows of a two-dimensional array or SciPy CSR matrix in memory, or of a store on disk (`open`).

    Parameters
    ----------
    x
        Shape ``(vertices, features)``, any real dtype: NumPy array, memory map, torch CPU tensor (bfloat16 too) or
        SciPy sparse matrix. Kept as given (a sparse matrix as CSR); rows become float32 when they are gathered.

    Raises
    ------
    InputError
        If ``x`` does not have two dimensions.
    DTypeError
        If its dtype is not real.

    Examples
    --------
    >>> store = FeatureStore(np.array([[1, 2], [3, 4], [5, 6]]))
    >>> store.gather([2, 0])
    array([[5., 6.],
           [1., 2.]], dtype=float32)
    """

    _checks_ids = True

    def __init__(self, x: Any) -> None:
        self._reader = row_reader(*as_stored_rows(x))
        self.num_rows, self.dim = self._reader.num_rows, self._reader.dim
        self.stored_dtype = np.dtype(np.float32) if self._reader.form.is_coded else self._reader.rows.dtype
        self._mapped = self._waited = False
        self._origin: tuple[str, str] | None = None
        self._fingerprint: int | None = None

    @overload
    @classmethod
    def open(cls, path: str | os.PathLike[str], name: str = ..., grid: None = ...) -> FeatureStore: ...
    @overload
    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        name: str = ...,
        *,
        grid: ProcessGrid,
        dtype: str | None = ...,
        partition: Any = ...,
    ) -> PartitionedFeatures: ...
    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        name: str = "x",
        grid: ProcessGrid | None = None,
        dtype: str | None = None,
        partition: Any = None,
    ) -> FeatureStore | PartitionedFeatures:
        """Open features of a graph store by memory maps: nothing is read but headers, whatever their size.

        Parameters
        ----------
        path : path-like
            The folder of the store.
        name : str, optional
            ``"x"``, or one of the arrays that ``meta.json`` lists as ``node_features`` (rows by vertex) or
            ``edge_features`` (rows by edge id). An array of one dimension is one feature.
        grid : ProcessGrid, optional
            With a grid each of its ranks opens one block of rows, and what is returned is `PartitionedFeatures`; the
            call is collective.
        dtype : str, optional
            With a grid: the form of the rows in memory and on their way to other ranks, see `PartitionedFeatures`.
        partition : int array (vertices,), optional
            With a grid: the block of each row, as of `PartitionedGraph.open`.

        Raises
        ------
        InputError
            If the store has no features of that name, or ``dtype`` or ``partition`` is given without a grid.
        DataError
            As `spsample.store.GraphStore.open`.

        Notes
        -----
        Where the last `gather` had to wait for the disk, the next one first touches the pages of its rows in the order
        of the file, and copies the rows then, in the order of the ids; a sampler's ids go through the file once per
        hop. Rows that are in memory are copied at once.

        Examples
        --------
        >>> import tempfile
        >>> from spsample.store import Graph, StoreWriter
        >>> folder = tempfile.TemporaryDirectory()
        >>> with StoreWriter(f"{folder.name}/pair") as writer:
        ...     writer.write("indptr", [0, 1, 2])
        ...     writer.write("indices", [1, 0])
        ...     writer.write("x", np.array([[1, 2], [3, 4]], np.float16))
        >>> FeatureStore.open(f"{folder.name}/pair").gather([1])
        array([[3., 4.]], dtype=float32)
        >>> folder.cleanup()
        """
        if grid is not None:
            from spsample.features.partitioned import PartitionedFeatures

            return PartitionedFeatures.open(path, grid, name, partition=partition, dtype=dtype)
        if dtype is not None:
            raise InputError(argument="dtype", given=f"{dtype!r} without a grid", expected="a grid too, or no dtype")
        if partition is not None:
            raise InputError(argument="partition", given="one without a grid", expected="a grid too, or no partition")
        folder, features = GraphStore.read(path, lambda stored: (str(stored.path), stored.features(name)))
        store = cls(features)
        store._mapped = store._waited = True
        store._origin = (folder, name)
        return store

    def __reduce__(self) -> Any:
        """Pickle features of a store as its path, so that worker processes open it themselves."""
        if self._origin is None:
            return super().__reduce__()
        return FeatureStore.open, self._origin

    @property
    def rows_in_memory(self) -> RowReader | None:
        """The reader of all rows, for a cache that reads its own in the same pass; None where they are maps of a store.

        None, too, where they have to be decoded, and of a class that reads them in its own way.
        """
        is_plain = not self._mapped and not self._reader.form.is_coded
        return self._reader if is_plain and type(self)._read is FeatureStore._read else None

    def fingerprint(self) -> int | None:
        """Return a number that differs for other rows; None where they are maps, which are not read for it.

        Made on first use and kept: the rows must not be changed afterwards.

        Examples
        --------
        >>> FeatureStore(np.eye(2)).fingerprint() == FeatureStore(np.ones((2, 2))).fingerprint()
        False
        """
        if self._fingerprint is None and not is_mapped(self._reader.rows):
            self._fingerprint = contents_of(self._reader.rows)
        return self._fingerprint

    def file_state(self) -> FileState | None:
        """Return the state of the rows' file, which changes when it is written to; None where they are in memory."""
        if self._origin is None:
            return file_state(self._reader.rows)
        folder, name = self._origin
        file = f"{name}_data" if sparse.issparse(self._reader.rows) else name
        return state_of_path(os.path.join(folder, array_file(file)))

    def _read(self, ids: NDArray[Any], out: Any, at: NDArray[np.int64] | None = None) -> None:
        if not self._mapped:
            self._reader.gather(ids, out, at)
            return
        faults = _major_faults()
        if self._waited and not sparse.issparse(self._reader.rows):
            check_ids("ids", ids, self.num_rows)
            x, lying = self._reader.lying(ids)
            step = max(1, _PAGE_BYTES // x.dtype.itemsize)
            x[:, ::step][np.sort(lying)]  # a number of each page of the rows, in the order of the file
        self._reader.gather(ids, out, at)
        self._waited = _major_faults() > faults

    def __repr__(self) -> str:
        kind = "sparse" if sparse.issparse(self._reader.rows) else "dense"
        kind = f"{kind}, memory-mapped" if self._mapped else kind
        dtype = self._reader.form.name if self._reader.form.is_coded else self._reader.rows.dtype
        return f"FeatureStore({self.num_rows:,} x {self.dim:,}, {kind}, {dtype})"


def _major_faults() -> int:
    """Return how often this process has waited for pages from a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
