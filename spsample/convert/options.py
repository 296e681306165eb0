"""Options of a conversion."""

import os
from dataclasses import InitVar, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from spsample.common.checks import require_choice, require_path, require_type
from spsample.common.options import Option, at_least, check_settings
from spsample.common.threads import MAX_THREADS
from spsample.common.units import require_bytes
from spsample.errors import InputError
from spsample.store.validation import check_num_nodes

FORMATS = ("auto", "text", "npy", "parquet", "mtx", "npz", "pyg", "dataset")
NPY_SHAPES = ("auto", "2,E", "E,2")
_RENUMBER = ("no", "sorted")
_ORDERS = ("first-appearance", "ascending")
_MERGES = ("no", "sum", "first", "max")
_BY_VERTEX = ("features", "labels", "splits")
_reading, _edges = partial(Option, panel="Reading"), partial(Option, panel="Edges")
_store, _cost = partial(Option, panel="Store"), partial(Option, panel="Cost")


@dataclass(frozen=True)
class ConvertOptions:
    """Options of a conversion: of reading, of edges, of the store, and of its cost.

    ``renumber`` is ``"no"``, or ``"sorted"``: ids that occur become 0, 1, ... in ascending order, and ``original_ids``
    keeps what they were. ``symmetrize`` is another spelling of ``symmetrise``.

    Raises
    ------
    InputError, DTypeError
        If a value cannot be used.

    Examples
    --------
    >>> ConvertOptions(deduplicate="sum", symmetrise=True).deduplicate
    'sum'
    """

    format: Annotated[
        str,
        _reading(
            "Form of the source; auto goes by the name. text is CSV, TSV or white space, mtx is Matrix Market, pyg is "
            "of torch.save, dataset a name that train takes.",
            choices=FORMATS,
            common=True,
        ),
    ] = "auto"
    columns: Annotated[
        tuple[str, ...] | None,
        _reading(
            "Source and target column of a table: names, or numbers from 0.",
            unset="src and dst, or source, target, from, to, u, v; else the two that there are",
            common=True,
        ),
    ] = None
    weights: Annotated[
        str | None,
        _reading(
            "Weights: a column of a table by name or number, an .npy file beside arrays, an attribute of PyG's data. "
            "Matrices with values, and arrays that hold weights, keep theirs.",
            unset="none",
            common=True,
        ),
    ] = None
    header: Annotated[
        bool | None,
        _reading(
            "Whether the first line of a text names its columns.",
            flags="--header/--no-header",
            unset="where it is no edge; asked for where it may be one",
        ),
    ] = None
    npy_shape: Annotated[
        str,
        _reading(
            "Shape of the edges in one .npy file: sources, then targets; or a pair for each edge. auto goes by the "
            "array, and refuses one of shape (2, 2), which may be either.",
            choices=NPY_SHAPES,
        ),
    ] = "auto"
    string_ids: Annotated[
        bool,
        _reading(
            "Vertices of a table have names: numbered as they appear first, names kept in the store.",
            flags="--string-ids",
            common=True,
        ),
    ] = False
    renumber: str = "no"
    num_nodes: Annotated[
        int | None, _reading("Number of vertices.", unset="the largest id plus 1, or what the source says", common=True)
    ] = None
    symmetrise: Annotated[
        bool,
        _edges(
            "Edges as they are, source to target; or each in both directions: the reverse of every edge that is no "
            "loop, with the same edge id and weight, right behind it.",
            flags="--symmetrise/--directed --symmetrize",
            common=True,
        ),
    ] = False
    deduplicate: Annotated[
        str,
        _edges(
            "Edges between the same two vertices become one, with the edge id of the first: weights are added, or the "
            "first or largest taken. After --symmetrise.",
            choices=_MERGES,
            common=True,
        ),
    ] = "no"
    drop_self_loops: Annotated[bool, _edges("Leave self loops out.", flags="--drop-self-loops")] = False
    add_self_loops: Annotated[
        bool, _edges("Add a self loop of weight 1 to every vertex, behind the last edge.", flags="--add-self-loops")
    ] = False
    edge_ids: Annotated[
        bool,
        _store(
            "Keep each entry's position in the input. Left out of the store where it is the entry's own place.",
            flags="--edge-ids/--no-edge-ids",
        ),
    ] = True
    nodes: Annotated[
        Path | None,
        _store(
            "A table (CSV or Parquet) with a row for each vertex, in any order: its id, features, a label, a split.",
            common=True,
        ),
    ] = None
    node_id: Annotated[
        str | None, _store("The column of ids in --nodes.", unset="the only one named id, node, vertex, name or alike")
    ] = None
    features: Annotated[
        Path | None,
        _store(
            "A row of features for each vertex: an .npy file, or a sparse .npz of SciPy, which stays sparse; or "
            "columns of --nodes.",
            common=True,
        ),
    ] = None
    labels: Annotated[
        Path | None,
        _store(
            "An .npy file: a whole number for each vertex, -1 or NaN for none; or a column of --nodes.", common=True
        ),
    ] = None
    splits: Annotated[
        Path | None,
        _store("An .npz file: train_idx, val_idx, test_idx, or _masks; or a column of --nodes.", common=True),
    ] = None
    features_order: Annotated[
        str | None,
        _store(
            "The order of rows in files of features, labels and splits where vertices have other ids than 0 to n - 1 "
            "and there is no --nodes: that in which names appear first in the edges, or that of renumbered ids.",
            choices=_ORDERS,
        ),
    ] = None
    memory_budget: Annotated[
        int | str | None,
        _cost(
            "Most anonymous memory of the process, as 2GiB.",
            unset="half of what is available",
            check=require_bytes,
            common=True,
        ),
    ] = None
    threads: Annotated[int | None, _cost("Threads.", unset="one per processor", check=at_least(1, MAX_THREADS))] = None
    random_seed: Annotated[int, _reading("Random seed of generated graphs.", check=at_least(0))] = 0
    overwrite: Annotated[bool, _store("Replace a store that is there.", flags="--overwrite", common=True)] = False
    symmetrize: InitVar[bool] = False

    def __post_init__(self, symmetrize: bool) -> None:
        if symmetrize:
            object.__setattr__(self, "symmetrise", True)
        check_settings(self)
        require_choice("renumber", self.renumber, _RENUMBER)
        if self.num_nodes is not None:
            check_num_nodes("num_nodes", self.num_nodes)
        if self.weights is not None:
            require_type("weights", self.weights, (str, os.PathLike), "a name or a number, as text")
        if self.columns is not None:
            expected = "two different columns: SOURCE,TARGET"
            require_type("columns", self.columns, (tuple, list), expected)
            for column in self.columns:
                require_type("columns", column, str, "names or numbers, as text")
            if len(self.columns) != 2 or self.columns[0] == self.columns[1]:
                raise InputError(argument="columns", given=",".join(self.columns), expected=expected)
        for name in ("nodes", *_BY_VERTEX):
            if getattr(self, name) is not None:
                require_path(name, getattr(self, name))
        ways = ("string_ids", "renumber", "num_nodes")
        numbered = [name for name in ways if getattr(self, name) not in (None, False, "no")]
        if len(numbered) > 1:
            given = f"{getattr(self, numbered[-1])} with {' and '.join(numbered[:-1])}"
            raise InputError(argument=numbered[-1], given=given, expected="one way of numbering the vertices")
        self._check_order()

    def _check_order(self) -> None:
        """Refuse files of rows whose vertices are not known."""
        if self.node_id is not None:
            require_type("node_id", self.node_id, str, "the name of a column")
            if self.nodes is None:
                raise InputError(argument="node_id", given=repr(self.node_id), expected="none without nodes")
        order = "first-appearance" if self.string_ids else "ascending" if self.renumber != "no" else None
        files = [] if self.nodes is not None else [name for name in _BY_VERTEX if getattr(self, name) is not None]
        if self.features_order is not None and (self.features_order != order or not files):
            wanted = f"{order!r}, for files of features, labels or splits without nodes"
            expected = wanted if order else "none: rows are those of the vertices 0 to n - 1"
            raise InputError(argument="features_order", given=repr(self.features_order), expected=expected)
        if order is not None and files and self.features_order is None:
            rows = "names as they appear first in the edges" if self.string_ids else "ascending ids"
            hint = (
                "Give --nodes TABLE, a CSV or Parquet file with the id of each row in a column. Or, where the rows are "
                f"in the order of {rows}, --features-order {order}."
            )
            kind = "string ids" if self.string_ids else "renumbered ids"
            given = f"{os.fspath(getattr(self, files[0]))} with {kind}"
            expected = "to be told which vertex each row is of"
            raise InputError(argument=files[0], given=given, expected=expected, hint=hint)

    @property
    def merge(self) -> int:
        """`deduplicate` as the kernels take it."""
        return {"no": 0, "first": 1, "sum": 2, "max": 3}[self.deduplicate]
