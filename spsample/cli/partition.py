"""``spsample partition``: which block row, or which trainer, each vertex goes to."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from spsample.cli.options import AsJson
from spsample.cli.progress import print_progress
from spsample.cli.sampling import seeds_of
from spsample.cli.screen import print_facts, print_json, print_line
from spsample.common.checks import require_choice
from spsample.errors import InputError
from spsample.store.folder import require_free_path, system_errors, whole_file

if TYPE_CHECKING:
    from spsample.data import Dataset


def partition(
    dataset: Annotated[str, typer.Argument(help="A store, or a data set as `spsample train` takes it.")],
    num_parts: Annotated[int, typer.Option("--parts", help="Block rows (ranks over replication, p/c), or trainers.")],
    out: Annotated[Path | None, typer.Option(help="File for the parts, one number per vertex (.npy).")] = None,
    stores: Annotated[Path | None, typer.Option(help="New folder for a store per part, to train on alone.")] = None,
    method: Annotated[str, typer.Option(help="metis, metis-seeds, pagraph, ldg, ranges or random.")] = "metis",
    hops: Annotated[
        int | None, typer.Option(help="Layers that will be sampled: for pagraph, stores, and copies told.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="train or all vertices; auto: train where there is a split.")] = "auto",
    evaluation: Annotated[
        bool, typer.Option("--evaluation", help="Put validation and test vertices into the stores, too.")
    ] = False,
    random_seed: Annotated[int, typer.Option(help="Random seed of the method.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file, if there is one.")] = False,
    as_json: AsJson = False,
) -> None:
    """Partition a graph: a file for `spsample train --partition FILE` on many ranks, or a store for each part.

    Runs on one machine. METIS takes some 120 bytes of memory for each edge.

    Examples
    --------
    * `spsample partition graphs/products --parts 4 --out parts.npy`
    * `mpirun -n 8 spsample train graphs/products --replication 2 --partition parts.npy`
    * `spsample partition graphs/products --parts 4 --method pagraph --hops 3 --stores parts`
    """
    from spsample.data import load_dataset, partition_quality, partition_vertices, write_part_stores

    _check_places(out, stores, hops, overwrite=overwrite)
    source = _with_train(load_dataset(dataset), seeds, evaluation=evaluation)
    graph, train = source.graph, source.train_idx
    if not as_json:  # METIS holds Python's global lock: no thread can speak meanwhile
        cut = f"{method} makes {num_parts:,} parts of {graph.num_nodes:,} vertices and {graph.num_edges:,} edges"
        print_progress(f"{cut}, and says nothing until it has")
    parts = partition_vertices(graph, num_parts, method, seeds=train, hops=hops, random_seed=random_seed)
    made = []
    if stores is not None and hops is not None:
        made = write_part_stores(source, parts, num_parts, stores, hops=hops, evaluation=evaluation)
    if out is not None:
        with system_errors(out, "a file that can be written"), whole_file(out) as file:
            np.save(file, parts)
    quality = partition_quality(graph, parts, num_parts, seeds=train, hops=hops)
    if as_json:
        places = {"file": None if out is None else str(out), "stores": [str(path) for path in made]}
        print_json({"parts": num_parts, "method": method, **places, **quality._asdict()})
        return
    for place in (out, stores):
        if place is not None:
            print_line(f"{place}: {graph.num_nodes:,} vertices in {num_parts} parts by {method}")
    largest = f"rows and entries {quality.largest:.3f} times the mean, train vertices {quality.train_balance:.3f} times"
    facts = {"largest part": largest, "cut": f"{quality.cut:.2%} of the edges", "empty parts": quality.empty or None}
    if hops is not None:
        copies = f"a vertex is needed by {quality.replication:.2f} parts"
        facts[f"{hops} hops"] = f"a part needs {quality.edges_kept:.1%} of the edges, {copies}"
    print_facts(facts)


def _check_places(out: Path | None, stores: Path | None, hops: int | None, *, overwrite: bool) -> None:
    """Refuse places that cannot be written to, before any work is done."""
    if out is None and stores is None:
        raise InputError(argument="--out", given="nothing", expected="a file, or --stores with a folder")
    if out is not None and out.suffix != ".npy":
        raise InputError(argument="--out", given=str(out), expected="a name that ends with .npy")
    if out is not None and not os.access(out.parent, os.W_OK):
        raise InputError(argument="--out", given=str(out), expected="a file in a folder that can be written to")
    if out is not None and out.exists() and not overwrite:
        raise InputError(argument="--out", given=f"{out}, which exists", expected="a new name, or --overwrite")
    if out is not None and out.is_dir():
        raise InputError(argument="--out", given=f"{out}, a folder", expected="a file")
    if stores is not None:
        require_free_path("stores", stores)
        if hops is None:
            raise InputError(argument="--hops", given="nothing", expected="the layers that will be sampled on --stores")


def _with_train(dataset: Dataset, seeds: str, *, evaluation: bool) -> Dataset:
    """The data set with the train vertices that `--seeds` names."""
    train = seeds_of(dataset, require_choice("seeds", seeds, ("auto", "train", "all")))
    if train is dataset.train_idx:
        return dataset
    if evaluation:
        given = f"it with --seeds {seeds} of {dataset.name!r}: no validation vertices apart from these"
        raise InputError(argument="evaluation", given=given, expected="a data set with a split, and --seeds train")
    none = np.empty(0, np.int64)
    return replace(dataset, train_idx=train, val_idx=none, test_idx=none)
