"""``spsample convert``: an edge list, a matrix or a data set to a graph store."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spsample.cli.config import ConfigOption
from spsample.cli.naming import as_typed
from spsample.cli.progress import Work, print_note
from spsample.cli.screen import print_line
from spsample.common.units import format_bytes

if TYPE_CHECKING:
    from spsample.convert import Conversion

__all__ = ["convert"]

_SOURCE = (
    "A file (text, .npy, .parquet, .mtx, .npz, .pt, raw .int32 or .int64; also .gz or .zst), SRC.npy,DST.npy, "
    "a data set's name, rmat:SCALE,EDGE_FACTOR or planted:NODES[,DEGREE[,CLASSES[,NOISE]]]."
)


def _option(panel: str, help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


_READ, _EDGES, _STORE, _COST = "Reading", "Edges", "Store", "Cost"
_Format = Annotated[
    str,
    _option(_READ, "auto (by the name), text, npy, int32, int64 (raw pairs), parquet, mtx, npz, pyg or dataset."),
]
_Columns = Annotated[str, _option(_READ, "Source and target column of a table: names, or numbers from 0.")]
_Weights = Annotated[
    str | None,
    _option(_READ, "Weights: a column of a table, an .npy file beside arrays, an attribute of PyG's data."),
]
_Header = Annotated[
    bool | None, _option(_READ, "Whether a text starts with names of columns; by default it is looked at.")
]
_NpyShape = Annotated[str, _option(_READ, "Of the edges in one .npy file: 2,E or E,2; auto goes by the array.")]
_Strings = Annotated[bool, _option(_READ, "Vertices have names: numbered as they appear first.", "--string-ids")]
_Renumber = Annotated[bool, _option(_READ, "Number the ids that occur 0, 1, ... in ascending order.", "--renumber")]
_NumNodes = Annotated[int | None, _option(_READ, "Number of vertices; by default the largest id plus 1.")]
_Directed = Annotated[
    bool,
    _option(
        _EDGES,
        "Edges as they are, source to target; or each in both directions.",
        "--directed/--symmetrise",
        " /--symmetrize",
    ),
]
_Deduplicate = Annotated[
    str, _option(_EDGES, "Edges between the same vertices become one: no, sum (of weights), first or max.")
]
_Drop = Annotated[bool, _option(_EDGES, "Leave self loops out.", "--drop-self-loops")]
_Add = Annotated[bool, _option(_EDGES, "Add a self loop of weight 1 to every vertex.", "--add-self-loops")]
_EdgeIds = Annotated[bool, _option(_STORE, "Keep each entry's position in the input.", "--edge-ids/--no-edge-ids")]
_Features = Annotated[
    Path | None, _option(_STORE, "A row of features for each vertex: an .npy file, or a sparse .npz of SciPy.")
]
_Labels = Annotated[Path | None, _option(_STORE, "An .npy file: an integer for each vertex, -1 for none.")]
_Splits = Annotated[Path | None, _option(_STORE, "An .npz file: train_idx, val_idx, test_idx, or _masks.")]
_Overwrite = Annotated[bool, _option(_STORE, "Replace a store that is there.", "--overwrite")]
_Budget = Annotated[str | None, _option(_COST, "Most anonymous memory, as 2GiB; by default half of what is available.")]
_Threads = Annotated[int | None, _option(_COST, "By default one per processor.")]
_Seed = Annotated[int, typer.Option(help="Of generated graphs.")]
_Json = Annotated[bool, typer.Option("--json", help="Print sizes and seconds as JSON.")]


@as_typed()
def convert(
    source: Annotated[str, typer.Argument(help=_SOURCE)],
    store: Annotated[Path, typer.Argument(help="The folder to make.")],
    format: _Format = "auto",
    columns: _Columns = "0,1",
    weights: _Weights = None,
    header: _Header = None,
    npy_shape: _NpyShape = "auto",
    string_ids: _Strings = False,
    renumber: _Renumber = False,
    num_nodes: _NumNodes = None,
    directed: _Directed = True,
    deduplicate: _Deduplicate = "no",
    drop_self_loops: _Drop = False,
    add_self_loops: _Add = False,
    edge_ids: _EdgeIds = True,
    features: _Features = None,
    labels: _Labels = None,
    splits: _Splits = None,
    overwrite: _Overwrite = False,
    memory_budget: _Budget = None,
    threads: _Threads = None,
    random_seed: _Seed = 0,
    config: Annotated[str | None, ConfigOption] = None,
    as_json: _Json = False,
) -> None:
    """Convert a graph once, to a store that every command opens at once, whatever its size.

    An edge leads from its source to its target; row v of the graph holds the sources of v's edges. Works in bounded
    memory: edges are sorted in pieces that fit, by way of temporary files beside the store. A conversion that ends
    early leaves no store that opens.

    Examples
    --------
    * `spsample convert soc-LiveJournal1.txt.gz livejournal`
    * `spsample convert ratings.csv ratings --columns user,item --weights stars --string-ids --symmetrise`
    * `spsample convert protein.mtx protein --deduplicate max --memory-budget 4GiB`
    * `spsample convert edges.int64 web --num-nodes 16777216 --features x.npy --labels y.npy`
    * `spsample convert rmat:24,16 rmat24`
    """
    from spsample.convert import ConvertOptions
    from spsample.convert import convert as run

    options = ConvertOptions(
        format=format,
        columns=_pair(columns),
        weights=weights,
        header=header,
        npy_shape=npy_shape,
        string_ids=string_ids,
        renumber="sorted" if renumber else "no",
        num_nodes=num_nodes,
        symmetrise=not directed,
        deduplicate=deduplicate,
        drop_self_loops=drop_self_loops,
        add_self_loops=add_self_loops,
        edge_ids=edge_ids,
        features=features,
        labels=labels,
        splits=splits,
        memory_budget=memory_budget,
        threads=threads,
        random_seed=random_seed,
        overwrite=overwrite,
    )
    with Work("edges", quiet=as_json) as work:
        result = run(source, store, options, progress=work.show)
    if result.not_read:
        print_note(_not_read(source, result, takes_weights=weights is None))
    if as_json:
        print(json.dumps(asdict(result), indent=2))
    else:
        _print(result)


def _pair(columns: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in columns.split(","))


def _not_read(source: str, result: Conversion, *, takes_weights: bool) -> str:
    hint = "; --weights COLUMN takes one as weights" if takes_weights and not result.weighted else ""
    one = len(result.not_read) == 1
    return (
        f"{'column' if one else 'columns'} {', '.join(result.not_read)} of {source} {'is' if one else 'are'} "
        f"not read{hint}"
    )


def _print(result: Conversion) -> None:
    seconds = sum(result.seconds.values())
    kind = "weighted" if result.weighted else "unweighted"
    lines = (
        f"{result.path}: {result.num_nodes:,} vertices, {result.num_edges:,} edges, {kind}",
        f"from {result.edges_read:,} edges in {seconds:.1f} s "
        f"({result.edges_read / max(seconds, 1e-9) / 1e6:.2f} million per second; "
        f"{format_bytes(result.spilled_bytes)} of temporary records)",
    )
    for line in lines:
        print_line(line)
