"""Matrices and data sets in ``.npz`` files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from spsample.convert.compressed import require_file
from spsample.data.dataset import Dataset
from spsample.data.npz import load_npz
from spsample.data.splits import SPLIT_MASKS
from spsample.errors import DataError, InputError
from spsample.store import Graph
from spsample.store.archives import npz_names, read_npz

__all__ = ["load_matrix", "npz_masks", "open_npz"]


def open_npz(path: Path) -> Dataset:
    """Load a graph from ``scipy.sparse.save_npz``, or a data set in the form of `load_npz`.

    Raises
    ------
    DataError
        If the file is neither.
    """
    require_file(path)
    if "format" not in npz_names(path, "an .npz file"):
        return load_npz(path)
    read_npz(path, "what scipy.sparse.save_npz writes")  # SciPy itself does not check that all of it is read
    try:
        graph = Graph.from_scipy(scipy.sparse.load_npz(path))
    except InputError as error:
        given = f"{error.argument} with {error.given}"
        raise DataError(argument=str(path), given=given, expected=error.expected) from error
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged bytes
        given = f"a matrix that cannot be read ({error})"
        raise DataError(argument=str(path), given=given, expected="what scipy.sparse.save_npz writes") from error
    empty = np.empty(0, np.int64)
    return Dataset(path.stem, graph, None, np.full(graph.num_nodes, -1, np.int64), empty, empty, empty, 0)


def load_matrix(path: Path) -> scipy.sparse.csr_array:
    """Load a sparse matrix of any form from an ``.npz`` file, as CSR.

    Raises
    ------
    DataError
        If it is none that ``scipy.sparse.save_npz`` wrote, or is damaged.
    """
    require_file(path)
    try:
        matrix = scipy.sparse.csr_array(scipy.sparse.load_npz(path))
        matrix.check_format(full_check=True)
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged bytes
        raise DataError(
            argument=str(path),
            given=f"a matrix that cannot be read ({error})",
            expected="what scipy.sparse.save_npz writes",
            hint="Dense features are an .npy file.",
        ) from error
    return matrix


def npz_masks(path: Path) -> dict[str, NDArray[np.bool_]]:
    """Return all splits of a data set that `load_npz` takes, in a form that a store has, too."""
    return read_npz(path, "an .npz file with masks", SPLIT_MASKS)
