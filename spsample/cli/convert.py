"""``spsample convert``: an edge list, a matrix or a data set to a graph store.

Parameters of the command are what it converts, the form of its output, and ``--renumber``: a flag here, a word in
`ConvertOptions`. All else is a field of that dataclass.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spsample.cli.options import AsJson, overridden, with_options
from spsample.cli.progress import PhaseProgress, print_note
from spsample.cli.screen import print_json, print_line
from spsample.common.units import format_bytes
from spsample.convert.options import ConvertOptions

if TYPE_CHECKING:
    from spsample.convert import Conversion

_SOURCE = (
    "A file (text, .npy, .parquet, .mtx, .npz, .pt; also .gz or .zst), SRC.npy,DST.npy, "
    "a data set's name, rmat:SCALE,EDGE_FACTOR or planted:NODES[,DEGREE[,CLASSES[,NOISE]]]."
)


@with_options(ConvertOptions)
def convert(
    typed: dict[str, Any],
    source: Annotated[str, typer.Argument(help=_SOURCE)],
    store: Annotated[Path, typer.Argument(help="The folder to make.")],
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Number the ids that occur 0, 1, ... in ascending order.")
    ] = False,
    as_json: AsJson = False,
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
    * `spsample convert edges.npy web --num-nodes 16777216 --features x.npy --labels y.npy`
    * `spsample convert rmat:24,16 rmat24`
    """
    from spsample.convert import convert as run

    options = replace(overridden(ConvertOptions(), typed), renumber="sorted" if renumber else "no")
    with PhaseProgress("edges", quiet=as_json) as work:
        result = run(source, store, options, progress=work.show)
    if result.not_read:
        print_note(_not_read(source, result, takes_weights=options.weights is None))
    for note in result.notes:
        print_note(note)
    if as_json:
        print_json(asdict(result))
    else:
        _print(result)


def _not_read(source: str, result: Conversion, *, takes_weights: bool) -> str:
    hint = "; --weights COLUMN takes one as weights" if takes_weights and not result.weighted else ""
    is_single = len(result.not_read) == 1
    names = ", ".join(name or "(without a name)" for name in result.not_read)
    return f"{'column' if is_single else 'columns'} {names} of {source} {'is' if is_single else 'are'} not read{hint}"


def _print(result: Conversion) -> None:
    seconds = sum(result.seconds.values())
    kind = "weighted" if result.weighted else "unweighted"
    ends = "" if result.columns is None else ", from column {} to column {}".format(*result.columns)
    print_line(f"{result.path}: {result.num_nodes:,} vertices, {result.num_edges:,} edges, {kind}{ends}")
    rate = f"{result.edges_read / max(seconds, 1e-9) / 1e6:.2f} million per second"
    spilled = f"{format_bytes(result.spilled_bytes)} of temporary records"
    print_line(f"from {result.edges_read:,} edges in {seconds:.1f} s ({rate}; {spilled})")
