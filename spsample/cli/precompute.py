"""``spsample precompute``: a data set whose features are aggregated once."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from spsample.errors import InputError


def precompute(
    dataset: Annotated[str, typer.Argument(help="A store, or a data set as `spsample train` takes it.")],
    out: Annotated[Path, typer.Option(help="Folder of the new store.")],
    aggregation: Annotated[
        str, typer.Option(help="mean: (x, A x), for precomputed-sage; gcn: the normalised sum, for precomputed-gcn.")
    ] = "mean",
    memory_budget: Annotated[str, typer.Option(help="Bytes that are worked on at a time, such as 2GiB.")] = "1GiB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the store, if there is one.")] = False,
) -> None:
    """Aggregate the features of all vertices once, and write the data set with them: PaGraph's preprocessing.

    A model whose first aggregation has no parameter then samples one layer less. It fetches fewer rows, and wider ones:
    `spsample cache-report` says when that pays.

    Examples
    --------
    * `spsample precompute graphs/products --out graphs/products-mean`
    * `spsample train graphs/products-mean --model precomputed-sage --fanouts 15,10`
    """
    from spsample.data import load_dataset, save_dataset
    from spsample.features import FeatureStore, aggregate_features, aggregated_dim
    from spsample.store.folder import system_errors
    from spsample.store.npy import create_map

    if out.exists() and not overwrite:
        raise InputError(argument="--out", given=f"{out}, which exists", expected="a new name, or --overwrite")
    if not out.parent.is_dir():
        raise InputError(argument="--out", given=str(out), expected="a folder in one that exists")
    data = load_dataset(dataset)
    if data.x is None:
        raise InputError(argument="dataset", given=f"{data.name!r} without features", expected="one with features")
    source = FeatureStore(data.x)
    shape = (data.graph.num_nodes, aggregated_dim(source.dim, aggregation))  # type: ignore[arg-type]
    with ExitStack() as stack:
        with system_errors(out, "room for the aggregated features, twice"):
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=out.parent, prefix=".spsample-"))
            rows = create_map(Path(folder) / "x.npy", np.dtype(np.float32), shape)
        aggregate_features(data.graph, source, aggregation, out=rows, memory_budget=memory_budget)  # type: ignore[arg-type]
        save_dataset(replace(data, x=rows), out, overwrite=overwrite)
    print(f"{out}: {shape[0]:,} rows of {shape[1]:,} numbers in place of {source.dim:,}")
