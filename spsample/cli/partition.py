"""``spsample partition``: which block row each vertex goes to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import numpy as np
import typer

from spsample.cli.options import AsJson
from spsample.cli.progress import print_progress
from spsample.errors import InputError
from spsample.store.files import whole_file

__all__ = ["partition"]


def partition(
    dataset: Annotated[str, typer.Argument(help="A store, or a data set as `spsample train` takes it.")],
    num_parts: Annotated[int, typer.Option("--parts", help="Block rows: ranks over replication, p/c.")],
    out: Annotated[Path, typer.Option(help="File for the parts, one number per vertex (.npy).")],
    random_seed: Annotated[int, typer.Option(help="Random seed of METIS.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file, if there is one.")] = False,
    as_json: AsJson = False,
) -> None:
    """Partition a graph by METIS, for `spsample train --partition FILE` on many ranks.

    Runs on one machine, with some 120 bytes of memory for each edge.

    Examples
    --------
    * `spsample partition graphs/products --parts 4 --out parts.npy`
    * `mpirun -n 8 spsample train graphs/products --replication 2 --partition parts.npy`
    """
    from spsample.data import load_dataset, metis_partition, partition_quality

    if out.suffix != ".npy":
        raise InputError(argument="--out", given=str(out), expected="a name that ends with .npy")
    if out.exists() and not overwrite:
        raise InputError(argument="--out", given=f"{out}, which exists", expected="a new name, or --overwrite")
    graph = load_dataset(dataset).graph
    if not as_json:  # METIS holds Python's global lock: no thread can speak meanwhile
        cut = f"METIS cuts {graph.num_nodes:,} vertices and {graph.num_edges:,} edges into {num_parts:,} parts"
        print_progress(f"{cut}, and says nothing until it has")
    with _new_file(out) as file:
        parts = metis_partition(graph, num_parts, random_seed=random_seed)
        np.save(file, parts)
    quality = partition_quality(graph, parts, num_parts)
    if as_json:
        print(json.dumps({"parts": num_parts, "file": str(out), **quality._asdict()}))
        return
    empty = f"; {quality.empty} parts are empty" if quality.empty else ""
    print(
        f"{out}: {graph.num_nodes:,} vertices in {num_parts} parts, the largest {quality.largest:.3f} times the mean; "
        f"{quality.cut:.2%} of the edges join two parts{empty}"
    )


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """`whole_file`, opened before the work is done: a path that cannot be written is an error at once."""
    try:
        with whole_file(path) as file:
            yield file
    except OSError as error:
        raise InputError(
            argument="--out", given=f"{str(path)!r}: {error.strerror}", expected="a file in a folder that exists"
        ) from error
