"""Rows of features: what they are taken from; and their forms in memory and between ranks, 1 to 4 bytes a number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.common.arrays import as_array, is_bfloat16
from spsample.common.checks import require_choice
from spsample.errors import DTypeError, InputError
from spsample.store.row_order import ReorderedRows


def as_rows(x: Any) -> Any:
    """Features as an array of two dimensions or a SciPy CSR matrix; nothing is copied that need not be.

    Rows of a store that were moved (`spsample.store.row_order.ReorderedRows`) stay what they are.

    Raises
    ------
    InputError
        If ``x`` does not have two dimensions.
    DTypeError
        If its dtype is not real, or it is a sparse tensor.
    """
    if isinstance(x, ReorderedRows):
        return x
    refuse_sparse_tensors("x", x)
    rows: Any = x.tocsr() if sparse.issparse(x) else as_array("x", x.float() if is_bfloat16(x) else x)
    if rows.ndim != 2:
        raise InputError(argument="x", given=f"shape {rows.shape}", expected="two dimensions: (vertices, features)")
    if rows.dtype.kind not in "fiub":
        raise DTypeError(argument="x", given=f"dtype {rows.dtype}", expected="a real dtype")
    return rows


def refuse_sparse_tensors(argument: str, x: Any) -> None:
    """Refuse torch's sparse tensors, saying what is taken of such features."""
    layout = str(getattr(x, "layout", ""))
    if layout.startswith("torch.sparse"):
        hint = "Pass x.to_dense(), or scipy.sparse.csr_array((values, col_indices, crow_indices), shape)."
        expected = "a dense tensor, or a SciPy sparse matrix"
        raise DTypeError(argument=argument, given=f"a sparse tensor of layout {layout}", expected=expected, hint=hint)


def as_stored_rows(x: Any) -> tuple[Any, RowFormat]:
    """`as_rows` and the form of its numbers: those of bfloat16 stay as they are, two bytes each."""
    refuse_sparse_tensors("x", x)
    if not is_bfloat16(x) or x.requires_grad:
        rows = as_rows(x)
        return rows, AsStored(rows.dtype)
    import torch

    return as_rows(x.view(torch.int16)).view(np.uint16), BFloat16()


def dense_rows(x: Any, places: NDArray[Any]) -> NDArray[Any]:
    """Dense rows of x at places that are in range, in x's dtype.

    ``take`` leaves Python's global lock to others, and is faster than ``x[places]``.

    Examples
    --------
    >>> dense_rows(np.array([[1, 2], [3, 4]]), np.array([1, 1])).tolist()
    [[3, 4], [3, 4]]
    """
    if sparse.issparse(x):
        rows: NDArray[Any] = x[places].toarray()
        return rows
    taken: NDArray[Any] = x.take(places, axis=0, mode="clip")
    return taken


class RowFormat(ABC):
    """The form in which rows of features are kept and sent; they come out as float32.

    Attributes
    ----------
    name : str
    dtype : numpy.dtype
        Of the numbers kept and sent.
    is_coded : bool
        Whether these numbers have to be decoded: they do not stand for themselves.
    core_name : str
        The compiled core's name of the form.
    scale : float32 array or None
        What a number of each column is multiplied by.
    """

    name: str
    dtype: np.dtype[Any]
    is_coded = False
    core_name = "number"
    scale: NDArray[np.float32] | None = None

    @abstractmethod
    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows as they are kept and sent."""

    def decode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Rows that were kept, as float32."""
        return np.ascontiguousarray(rows, dtype=np.float32)


class AsStored(RowFormat):
    """As they are: exact where float32 holds the numbers."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.name = f"{dtype}, as stored"
        self.dtype = dtype if dtype.itemsize <= 4 else np.dtype(np.float32)

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Numbers of eight bytes as float32, others as they are."""
        return np.ascontiguousarray(rows, dtype=self.dtype)


class Float(RowFormat):
    """float32, or float16 with an error of at most 2^-11 of a number (2^-25 of those below 2^-14).

    Examples
    --------
    >>> half = Float("float16")
    >>> half.decode(half.encode(np.array([[0.1, 2.0]], np.float32)))
    array([[0.09997559, 2.        ]], dtype=float32)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dtype = np.dtype(name)

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rounded to the nearest; what is too large for the type is refused."""
        with np.errstate(over="ignore"):
            narrow = np.ascontiguousarray(rows, dtype=self.dtype)
        _require_finite(self.name, rows, narrow)
        return narrow


class BFloat16(RowFormat):
    """The upper 16 bits of float32, rounded to the nearest: an error of at most 2^-8 of a number.

    Examples
    --------
    >>> brain = BFloat16()
    >>> brain.decode(brain.encode(np.array([[0.1, -2.0]], np.float32)))
    array([[ 0.10009766, -2.        ]], dtype=float32)
    """

    name = core_name = "bfloat16"
    dtype = np.dtype(np.uint16)
    is_coded = True

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Ties to even; what is not a number stays so."""
        wide = np.ascontiguousarray(rows, dtype=np.float32)
        bits = wide.view(np.uint32)
        narrow = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)
        narrow[np.isnan(wide)] = 0x7FC0
        _require_finite(self.name, wide, self.decode(narrow))
        return narrow

    def decode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """The bits shifted up."""
        return (rows.astype(np.uint32) << 16).view(np.float32)


class Int8(RowFormat):
    """Integers from -127 to 127 times a scale per column: an error of at most largest / 254 of the column's largest.

    The scale is the column's, not the row's: columns of features are measured in units of their own, a row's are not,
    and no scale has to be sent.

    Parameters
    ----------
    largest
        Largest absolute value of each column, over all rows.

    Examples
    --------
    >>> small = Int8(np.array([1.27, 254.0]))
    >>> small.decode(small.encode(np.array([[0.5, 3.0]])))
    array([[0.5, 4. ]], dtype=float32)
    """

    name = core_name = "int8"
    scale: NDArray[np.float32]
    dtype = np.dtype(np.int8)
    is_coded = True

    def __init__(self, largest: NDArray[Any]) -> None:
        if not np.isfinite(largest).all():
            column = int(np.flatnonzero(~np.isfinite(largest))[0])
            given = f"a value in column {column} that is not finite"
            raise InputError(argument="x", given=given, expected="finite values for dtype='int8'")
        self.scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rounded to the nearest."""
        return np.clip(np.rint(rows / self.scale), -127, 127).astype(np.int8)

    def decode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Times the scales."""
        return rows * self.scale


DTYPES = ("float32", "float16", "bfloat16", "int8")
"""Names of the forms that features may be converted to."""


def format_for(dtype: str, largest: NDArray[Any] | None) -> RowFormat:
    """The format of that name; ``largest`` as of `Int8`, which alone needs it.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    require_choice("dtype", dtype, DTYPES)
    if dtype == "bfloat16":
        return BFloat16()
    return Float(dtype) if largest is None else Int8(largest)


def _require_finite(name: str, rows: NDArray[Any], narrow: NDArray[Any]) -> None:
    """Refuse what became infinite."""
    bad = np.isinf(narrow) & np.isfinite(rows)
    if bad.any():
        value = np.asarray(rows)[bad][0]
        raise InputError(argument="x", given=f"the value {value}", expected=f"values within the range of {name}")
