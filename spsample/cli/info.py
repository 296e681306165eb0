"""``spsample info``: what is in a store, a file or a data set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from spsample.cli.options import AsJson
from spsample.cli.progress import PhaseProgress
from spsample.cli.screen import print_facts, print_json, print_line, print_message, print_sentence, print_table
from spsample.common.units import format_bytes
from spsample.errors import DataError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.data import Dataset
    from spsample.store import GraphStore

_HELP = "The folder of a store, or a data set as `spsample train` takes it."
_PIECE = 2**22


def info(
    dataset: Annotated[str, typer.Argument(help=_HELP, metavar="PATH|SPEC")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all of a store: checksums, and what graphs must satisfy.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Describe a store, an .npz file or a data set: sizes, degrees, arrays, labels, splits, origin.

    Of a store only row starts, labels and splits are read, unless --verify is given; a data set that is generated or
    fetched is so first. The exit status is 1 if a store is damaged.

    Examples
    --------
    * `spsample info graphs/products`
    * `spsample info graphs/products --verify`
    * `spsample info planted:20000 --json`
    """
    from spsample.data import load_dataset
    from spsample.data.named import NAMED
    from spsample.data.stored import is_store
    from spsample.store import GraphStore

    damaged = False
    if dataset not in NAMED and is_store(dataset):
        store = GraphStore.open(dataset)
        verified = _verified(store, quiet=as_json) if verify else {}
        damaged = verified.get("verified") is False  # then nothing in it can be trusted
        facts = ({"path": str(store.path)} if damaged else describe_store(store)) | verified
    elif verify:
        raise InputError(argument="--verify", given=f"with {dataset!r}", expected="the folder of a store")
    else:
        facts = describe_dataset(load_dataset(dataset))
    if as_json:
        print_json(facts)
    elif not damaged:
        _print(facts)
    if damaged:
        raise typer.Exit(1)


def _verified(store: GraphStore, *, quiet: bool) -> dict[str, Any]:
    """Verify a store; what is wrong is printed on standard error."""
    with PhaseProgress("bytes", quiet=quiet) as work:
        try:
            without = store.verify(lambda done, total: work.show("verifying", done, total))
        except DataError as error:
            print_message(f"damaged: {error}")
            return {"verified": False, "without_checksum": []}
    return {"verified": True, "without_checksum": list(without)}


# ------------------------------------------------------------------------------------------------------------ the facts


def describe_store(store: GraphStore) -> dict[str, Any]:
    """Return what a store holds; only the row starts, labels and splits are read."""
    from spsample.data.stored import OWN_FACTS, dataset_of
    from spsample.store.layout import OWN_KEYS

    meta = store.meta
    own = {*OWN_KEYS, *OWN_FACTS, "name", "edge_features"}
    strings = "strings, in names_data" if "names_ptr" in store else None
    widths = {}
    for name in store.feature_names:
        shape = store.specs[name].shape if name in store.specs else meta["x_shape"]
        owner = "edge" if name in meta.get("edge_features", []) else "vertex"
        widths[name] = int(shape[1]) if len(shape) > 1 else 1, owner
    return describe_dataset(dataset_of(store, features=False)) | {
        "path": str(store.path),
        "version": meta["version"],
        "arrays": [_array(name, spec) for name, spec in store.specs.items()],
        "bytes": store.nbytes,
        "features": list(store.feature_names),
        "feature_widths": widths,
        "metric": meta.get("metric"),
        "original_ids": "integers, in original_ids" if "original_ids" in store else strings,
        "meta": {key: value for key, value in meta.items() if key not in own},
        "digest": store.digest,
    }


def describe_dataset(dataset: Dataset) -> dict[str, Any]:
    """Return what a data set in memory holds."""
    graph, x = dataset.graph, dataset.x
    named = {name: getattr(graph, name) for name in ("indptr", "indices", "data", "edge_ids")}
    if x is not None and not hasattr(x, "indptr"):
        named["x"] = x
    elif x is not None:
        named |= {f"x_{part}": getattr(x, part) for part in ("indptr", "indices", "data")}
    if dataset.num_classes:
        named["y"] = dataset.y
    arrays = [_array(name, array) for name, array in named.items() if array is not None]
    parts = {part: len(getattr(dataset, f"{part}_idx")) for part in ("train", "val", "test")}
    labels = {"classes": dataset.num_classes, "multi": dataset.y.ndim > 1} if dataset.num_classes else None
    return {
        "name": dataset.name,
        "path": None,
        **{name: getattr(graph, name) for name in ("num_nodes", "num_edges", "weighting")},
        "in_degrees": in_degrees(graph.indptr),
        "arrays": arrays,
        "bytes": sum(array["bytes"] for array in arrays),
        "features": [] if x is None else ["x"],
        "feature_widths": {} if x is None else {"x": (int(x.shape[1]), "vertex")},
        "labels": labels,
        "splits": {"count": dataset.num_splits, **parts} if any(parts.values()) else None,
        "metric": dataset.metric if labels else None,
        "original_ids": None,
        "meta": dataset.meta,
        "digest": graph.digest,
    }


def in_degrees(indptr: NDArray[np.int64]) -> dict[str, Any]:
    """Return the largest and the mean number of in-neighbours, and how many vertices have none.

    Examples
    --------
    >>> in_degrees(np.array([0, 3, 3, 4]))
    {'max': 3, 'mean': 1.3333333333333333, 'without': 1}
    """
    n, most, without = len(indptr) - 1, 0, 0
    for start in range(0, n, _PIECE):
        degrees = np.diff(indptr[start : min(start + _PIECE, n) + 1])
        most, without = max(most, int(degrees.max())), without + int(np.count_nonzero(degrees == 0))
    return {"max": most, "mean": float(indptr[-1]) / n, "without": without}


def _array(name: str, of: Any) -> dict[str, Any]:
    return {"name": name, "dtype": str(of.dtype), "shape": [int(size) for size in of.shape], "bytes": int(of.nbytes)}


# -------------------------------------------------------------------------------------------------------- on the screen


def _print(facts: dict[str, Any]) -> None:
    print_line(facts["name"])
    print_facts(_summary(facts))
    print_sentence(f"{format_bytes(facts['bytes'])} in {len(facts['arrays'])} arrays:")
    rows = [["total", "", "", facts["bytes"]]]
    for array in facts["arrays"]:
        shape = " x ".join(f"{length:,}" for length in array["shape"])
        rows.append([array["name"], array["dtype"], shape, array["bytes"]])
    print_table(["array", "dtype", "shape", "size, bytes"], rows, words=2)


def _summary(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts in words, by what they are of."""
    degrees, labels, splits = facts["in_degrees"], facts["labels"], facts["splits"]
    average = f"{degrees['mean']:.2f} on average, {degrees['max']:,} at most"
    widths = [
        f"{width:,} features per {of}" + ("" if name == "x" else f" in {name}")
        for name, (width, of) in facts["feature_widths"].items()
    ]
    return {
        "path": facts["path"],
        "vertices": f"{facts['num_nodes']:,}",
        "edges": f"{facts['num_edges']:,}",
        "weights": facts["weighting"],
        "in-neighbours": f"{average}; {degrees['without']:,} vertices without",
        "features": "; ".join(widths) or None,
        "labels": labels and f"{labels['classes']} classes{', several per vertex' if labels['multi'] else ''}",
        "splits": splits
        and f"{splits['count']} of {splits['train']:,} / {splits['val']:,} / {splits['test']:,} "
        "(training / validation / test)",
        "metric": facts["metric"],
        "original ids": facts["original_ids"],
        **{name.replace("_", " "): of if isinstance(of, str) else json.dumps(of) for name, of in facts["meta"].items()},
        "digest": facts["digest"],
        "verified": _verdict(facts),
    }


def _verdict(facts: dict[str, Any]) -> str | None:
    """Return the result of the verification, in words."""
    if not facts.get("verified"):
        return "DAMAGED" if "verified" in facts else None
    right, without = "checksums and structure are right", facts["without_checksum"]
    return f"{right}; {', '.join(without)} has no checksum: an older store" if without else right
