"""What a conversion is told."""

from __future__ import annotations

import os
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spsample.common.checks import require_choice, require_int, require_path, require_type
from spsample.common.threads import MOST_THREADS
from spsample.common.units import require_bytes
from spsample.errors import InputError
from spsample.store.validation import check_num_nodes

__all__ = ["FORMATS", "ConvertOptions"]

FORMATS = ("auto", "text", "npy", "int32", "int64", "parquet", "mtx", "npz", "pyg", "dataset")
NPY_SHAPES = ("auto", "2,E", "E,2")
_RENUMBER = ("no", "sorted")
_MERGES = ("no", "sum", "first", "max")
_FLAGS = ("string_ids", "symmetrise", "drop_self_loops", "add_self_loops", "edge_ids", "overwrite")


@dataclass(frozen=True)
class ConvertOptions:
    """How edges are read, what is done to them, and what it may cost.

    Parameters
    ----------
    format
        Of the source: ``"auto"`` goes by the name; ``"text"`` (CSV, TSV, white space), ``"npy"``, ``"int32"`` and
        ``"int64"`` (raw little-endian pairs), ``"parquet"``, ``"mtx"`` (Matrix Market), ``"npz"``, ``"pyg"``
        (``torch.save``), ``"dataset"`` (a name that `load_dataset` knows).
    columns
        Source and target column of a table: names, or numbers from 0.
    weights
        Column of the weights, by name or number; None: no weights. Matrices with values, and arrays that hold weights,
        keep theirs.
    header
        Whether the first line of a text names its columns; None: where it is no edge.
    npy_shape
        Of the edges in one ``.npy`` file: ``"2,E"`` (sources, then targets) or ``"E,2"`` (a pair for each edge);
        ``"auto"`` goes by the array, and refuses one of shape (2, 2), which may be either.
    string_ids
        Vertices are named by strings (tables only): numbered in order of first appearance, names kept in the store.
    renumber
        ``"sorted"``: ids that occur become 0, 1, ... in ascending order, ``original_ids`` keeps what they were.
    num_nodes
        Number of vertices; None: the largest id plus 1, or what the source says.
    symmetrise
        Add the reverse of every edge that is no loop, with the same edge id and weight, right behind it.
    deduplicate
        Edges between the same two vertices become one, with the edge id of the first: weights are added (``"sum"``),
        or the first or largest taken; ``"no"`` keeps all. After `symmetrise`.
    drop_self_loops, add_self_loops
        Leave loops out; add one of weight 1 to every vertex, as edges behind the last (both: exactly one each).
    edge_ids
        Keep each entry's position in the input. Left out of the store where it is the entry's own place.
    features, labels, splits
        Files: ``.npy`` of n rows, or ``.npz`` of a SciPy sparse matrix, which stays sparse; ``.npy`` of n integers;
        ``.npz`` of ``train_idx``, ... or masks.
    memory_budget
        Most anonymous memory of the process, in bytes or as "2GiB"; None: half of what is available.
    threads
        None: as many as the kernels use.
    random_seed
        Of generated graphs.
    overwrite
        Replace a store at the path.
    symmetrize
        Another spelling of `symmetrise`.

    Raises
    ------
    InputError, DTypeError
        If a value cannot be used.

    Examples
    --------
    >>> ConvertOptions(deduplicate="sum", symmetrise=True).deduplicate
    'sum'
    """

    format: str = "auto"
    columns: tuple[str, ...] = ("0", "1")
    weights: str | None = None
    header: bool | None = None
    npy_shape: str = "auto"
    string_ids: bool = False
    renumber: str = "no"
    num_nodes: int | None = None
    symmetrise: bool = False
    deduplicate: str = "no"
    drop_self_loops: bool = False
    add_self_loops: bool = False
    edge_ids: bool = True
    features: Path | None = None
    labels: Path | None = None
    splits: Path | None = None
    memory_budget: Any = None
    threads: int | None = None
    random_seed: int = 0
    overwrite: bool = False
    symmetrize: InitVar[bool] = False

    def __post_init__(self, symmetrize: bool) -> None:
        if symmetrize:
            object.__setattr__(self, "symmetrise", True)
        require_choice("format", self.format, FORMATS)
        require_choice("npy_shape", self.npy_shape, NPY_SHAPES)
        require_choice("renumber", self.renumber, _RENUMBER)
        require_choice("deduplicate", self.deduplicate, _MERGES)
        require_int("random_seed", self.random_seed, minimum=0)
        if self.num_nodes is not None:
            check_num_nodes("num_nodes", self.num_nodes)
        if self.threads is not None:
            require_int("threads", self.threads, minimum=1, maximum=MOST_THREADS)
        if self.memory_budget is not None:
            require_bytes("memory_budget", self.memory_budget)
        self._check_columns()
        for name in ("features", "labels", "splits"):
            if getattr(self, name) is not None:
                require_path(name, getattr(self, name))
        for name in _FLAGS:
            require_type(name, getattr(self, name), (bool, np.bool_), "True or False")
        if self.header is not None:
            require_type("header", self.header, (bool, np.bool_), "True, False or None")
        if self.string_ids and (self.renumber != "no" or self.num_nodes is not None):
            given = "string ids with renumber or num_nodes"
            raise InputError(argument="string_ids", given=given, expected="one way of numbering the vertices")
        if self.renumber != "no" and self.num_nodes is not None:
            given = f"{self.num_nodes} with renumber"
            raise InputError(argument="num_nodes", given=given, expected="no number where vertices are renumbered")

    def _check_columns(self) -> None:
        expected = "two different columns: SOURCE,TARGET"
        require_type("columns", self.columns, (tuple, list), expected)
        for column in self.columns:
            require_type("columns", column, str, "names or numbers, as text")
        if self.weights is not None:
            require_type("weights", self.weights, (str, os.PathLike), "a name or a number, as text")
        if len(self.columns) != 2 or self.columns[0] == self.columns[1]:
            raise InputError(argument="columns", given=",".join(self.columns), expected=expected)

    @property
    def merge(self) -> int:
        """`deduplicate` as the kernels take it."""
        return {"no": 0, "first": 1, "sum": 2, "max": 3}[self.deduplicate]
