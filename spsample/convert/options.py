"""Options of a conversion."""

import os
from dataclasses import InitVar, dataclass
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
_READING, _EDGES, _STORE, _COST = "Reading", "Edges", "Store", "Cost"


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
        Option(
            "Form of the source; auto goes by the name. text is CSV, TSV or white space, mtx is Matrix Market, pyg is "
            "of torch.save, dataset a name that train takes.",
            _READING,
            choices=FORMATS,
            common=True,
        ),
    ] = "auto"
    columns: Annotated[
        tuple[str, ...] | None,
        Option(
            "Source and target column of a table: names, or numbers from 0.",
            _READING,
            unset="src and dst, or source, target, from, to, u, v; else the two that there are",
            common=True,
        ),
    ] = None
    weights: Annotated[
        str | None,
        Option(
            "Weights: a column of a table by name or number, an .npy file beside arrays, an attribute of PyG's data. "
            "Matrices with values, and arrays that hold weights, keep theirs.",
            _READING,
            unset="none",
            common=True,
        ),
    ] = None
    header: Annotated[
        bool | None,
        Option(
            "Whether the first line of a text names its columns.",
            _READING,
            flags="--header/--no-header",
            unset="where it is no edge; asked for where it may be one",
        ),
    ] = None
    npy_shape: Annotated[
        str,
        Option(
            "Shape of the edges in one .npy file: sources, then targets; or a pair for each edge. auto goes by the "
            "array, and refuses one of shape (2, 2), which may be either.",
            _READING,
            choices=NPY_SHAPES,
        ),
    ] = "auto"
    string_ids: Annotated[
        bool,
        Option(
            "Vertices of a table have names: numbered as they appear first, names kept in the store.",
            _READING,
            flags="--string-ids",
            common=True,
        ),
    ] = False
    renumber: str = "no"
    num_nodes: Annotated[
        int | None,
        Option("Number of vertices.", _READING, unset="the largest id plus 1, or what the source says", common=True),
    ] = None
    symmetrise: Annotated[
        bool,
        Option(
            "Edges as they are, source to target; or each in both directions: the reverse of every edge that is no "
            "loop, with the same edge id and weight, right behind it.",
            _EDGES,
            flags="--symmetrise/--directed --symmetrize",
            common=True,
        ),
    ] = False
    deduplicate: Annotated[
        str,
        Option(
            "Edges between the same two vertices become one, with the edge id of the first: weights are added, or the "
            "first or largest taken. After --symmetrise.",
            _EDGES,
            choices=_MERGES,
            common=True,
        ),
    ] = "no"
    drop_self_loops: Annotated[bool, Option("Leave self loops out.", _EDGES, flags="--drop-self-loops")] = False
    add_self_loops: Annotated[
        bool,
        Option("Add a self loop of weight 1 to every vertex, behind the last edge.", _EDGES, flags="--add-self-loops"),
    ] = False
    edge_ids: Annotated[
        bool,
        Option(
            "Keep each entry's position in the input. Left out of the store where it is the entry's own place.",
            _STORE,
            flags="--edge-ids/--no-edge-ids",
        ),
    ] = True
    nodes: Annotated[
        Path | None,
        Option(
            "A table (CSV or Parquet) with a row for each vertex, in any order: its id, features, a label, a split.",
            _STORE,
            common=True,
        ),
    ] = None
    node_id: Annotated[
        str | None,
        Option("The column of ids in --nodes.", _STORE, unset="the only one named id, node, vertex, name or alike"),
    ] = None
    features: Annotated[
        Path | None,
        Option(
            "A row of features for each vertex: an .npy file, or a sparse .npz of SciPy, which stays sparse; or "
            "columns of --nodes.",
            _STORE,
            common=True,
        ),
    ] = None
    labels: Annotated[
        Path | None,
        Option(
            "An .npy file: a whole number for each vertex, -1 or NaN for none; or a column of --nodes.",
            _STORE,
            common=True,
        ),
    ] = None
    splits: Annotated[
        Path | None,
        Option(
            "An .npz file: train_idx, val_idx, test_idx, or _masks; or a column of --nodes.",
            _STORE,
            common=True,
        ),
    ] = None
    features_order: Annotated[
        str | None,
        Option(
            "The order of rows in files of features, labels and splits where vertices have other ids than 0 to n - 1 "
            "and there is no --nodes: that in which names appear first in the edges, or that of renumbered ids.",
            _STORE,
            choices=_ORDERS,
        ),
    ] = None
    memory_budget: Annotated[
        int | str | None,
        Option(
            "Most anonymous memory of the process, as 2GiB.",
            _COST,
            unset="half of what is available",
            check=require_bytes,
            common=True,
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option("Threads.", _COST, unset="one per processor", check=at_least(1, MAX_THREADS)),
    ] = None
    random_seed: Annotated[int, Option("Random seed of generated graphs.", _READING, check=at_least(0))] = 0
    overwrite: Annotated[bool, Option("Replace a store that is there.", _STORE, flags="--overwrite", common=True)] = (
        False
    )
    symmetrize: InitVar[bool] = False

    def __post_init__(self, symmetrize: bool) -> None:
        if symmetrize:
            object.__setattr__(self, "symmetrise", True)
        check_settings(self)
        require_choice("renumber", self.renumber, _RENUMBER)
        if self.num_nodes is not None:
            check_num_nodes("num_nodes", self.num_nodes)
        self._check_columns()
        for name in ("nodes", *_BY_VERTEX):
            if getattr(self, name) is not None:
                require_path(name, getattr(self, name))
        if self.string_ids and (self.renumber != "no" or self.num_nodes is not None):
            given = "string ids with renumber or num_nodes"
            raise InputError(argument="string_ids", given=given, expected="one way of numbering the vertices")
        if self.renumber != "no" and self.num_nodes is not None:
            given = f"{self.num_nodes} with renumber"
            raise InputError(argument="num_nodes", given=given, expected="no number where vertices are renumbered")
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
            expected = (
                f"{order!r}, for files of features, labels or splits without nodes"
                if order
                else "none: rows are those of the vertices 0 to n - 1"
            )
            raise InputError(argument="features_order", given=repr(self.features_order), expected=expected)
        if order is not None and files and self.features_order is None:
            kind = "string ids" if self.string_ids else "renumbered ids"
            hint = (
                "Give --nodes TABLE, a CSV or Parquet file with the id of each row in a column. Or, where the rows are "
                f"in the order of {'names as they appear first in the edges' if self.string_ids else 'ascending ids'}, "
                f"--features-order {order}."
            )
            given = f"{os.fspath(getattr(self, files[0]))} with {kind}"
            raise InputError(
                argument=files[0], given=given, expected="to be told which vertex each row is of", hint=hint
            )

    def _check_columns(self) -> None:
        expected = "two different columns: SOURCE,TARGET"
        if self.weights is not None:
            require_type("weights", self.weights, (str, os.PathLike), "a name or a number, as text")
        if self.columns is None:
            return
        require_type("columns", self.columns, (tuple, list), expected)
        for column in self.columns:
            require_type("columns", column, str, "names or numbers, as text")
        if len(self.columns) != 2 or self.columns[0] == self.columns[1]:
            raise InputError(argument="columns", given=",".join(self.columns), expected=expected)

    @property
    def merge(self) -> int:
        """`deduplicate` as the kernels take it."""
        return {"no": 0, "first": 1, "sum": 2, "max": 3}[self.deduplicate]
