"""``spsample reorder``: a store with its rows in the order of a score, and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spsample.cli import sampling
from spsample.cli.options import AsJson, overridden, refuse_given, with_options
from spsample.cli.progress import PhaseProgress, print_note
from spsample.cli.screen import print_json, print_line
from spsample.common.units import format_bytes
from spsample.errors import InputError
from spsample.settings import SamplerChoice, SamplerSizes
from spsample.settings.sampling import BatchSize, Layout, Seeds
from spsample.store.npy import map_npy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class ScoreOptions(SamplerSizes, SamplerChoice):
    """Options of the score: the batches that will be sampled."""

    layout: Layout = "blocks"
    batch_size: BatchSize = 1024
    seeds: Seeds = "auto"


_SCORE = "How rows are ordered: the name of a score, or a file of one number for each vertex (.npy)."


@with_options(ScoreOptions)
def reorder(
    typed: dict[str, Any],
    store: Annotated[Path, typer.Argument(help="The folder of a store.")],
    out: Annotated[Path, typer.Option(help="The store to make.")],
    score: Annotated[str | None, typer.Option(help=f"{_SCORE} [default: posterior]")] = None,
    relabel: Annotated[bool, typer.Option("--relabel", help="Number vertices by score: another graph.")] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Order by the very scores; else those within a factor of two are equal.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Make the store that STORE was made of.")] = False,
    memory_budget: Annotated[str, typer.Option(help="Memory for rows, as in 512MiB.")] = "512MiB",
    as_json: AsJson = False,
) -> None:
    """Move the rows of a store that are wanted most to the beginning of its files.

    Reading the hot rows then reads fewer pages. Vertices keep their numbers, a map in the store leads to their rows,
    and minibatches stay the same. With --relabel vertices are numbered by score instead: no map, other minibatches.

    Examples
    --------
    * `spsample reorder graphs/products --out graphs/products-hot --fanouts 15,10,5`
    * `spsample reorder graphs/products --out graphs/products-hot --score reverse-pagerank`
    * `spsample reorder graphs/products --out graphs/products-new --score counts.npy --relabel`
    * `spsample reorder graphs/products-new --out graphs/products-back --undo`
    """
    from spsample.reorder import reorder as run
    from spsample.reorder import restore
    from spsample.reorder.reordering import check_paths
    from spsample.store import GraphStore

    if undo:
        given = {**typed, "score": score, "relabel": relabel or None, "exact": exact or None, "config": None}
        refuse_given(given, given, "with --undo", "--undo without it")
        with PhaseProgress("bytes", quiet=as_json) as work:
            done = restore(store, out, memory_budget=memory_budget, progress=work.show)
    else:
        GraphStore.open(check_paths(store, out)[0])  # before scores are computed; what is no store is no data set here
        name = score or "posterior"
        scores = _scores(store, name, typed)
        with PhaseProgress("bytes", quiet=as_json) as work:
            kind = "a file" if name.endswith(".npy") else name
            options: dict[str, Any] = {"relabel": relabel, "exact": exact, "memory_budget": memory_budget}
            done = run(store, out, scores, name=kind, progress=work.show, **options)
    if as_json:
        print_json(asdict(done))
        return
    size = f"{done.num_nodes:,} vertices, {done.num_edges:,} edges, {format_bytes(done.nbytes)}"
    print_line(f"{done.path}: {size} in {done.seconds:.1f} s")
    if done.relabelled and not undo:
        print_note("vertices have new numbers: this is another graph, and its minibatches differ")


def _scores(store: Path, name: str, typed: dict[str, Any]) -> NDArray[np.float64]:
    """Read scores from a file, or compute those of a name."""
    from spsample.data import load_dataset
    from spsample.features import score, score_names
    from spsample.features.scores.registry import require_scores
    from spsample.store import GraphStore

    options = overridden(ScoreOptions(), typed)
    if name.endswith(".npy"):
        scores = map_npy(Path(name), "an .npy file of one number for each vertex", "--score")
        return require_scores("score", scores, GraphStore.open(store).meta["num_nodes"])
    if name not in score_names():
        expected = f"one of {', '.join(score_names())}, or a file that ends with .npy"
        raise InputError(argument="score", given=repr(name), expected=expected)
    dataset = load_dataset(str(store))
    sampler = sampling.make_sampler(options, typed)
    return score(name, dataset.graph, sampling.seeds_of(dataset, options.seeds), sampler, options.batch_size)
