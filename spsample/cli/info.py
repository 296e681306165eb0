"""``spsample info``: what is in a store, a file or a data set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from spsample.cli.options import AsJson
from spsample.cli.progress import PhaseProgress
from spsample.cli.screen import (
    bytes_column,
    print_json,
    print_line,
    print_message,
    print_sentence,
    print_table,
    print_text,
    unit_for,
)
from spsample.common.units import format_bytes
from spsample.errors import DataError, InputError

if TYPE_CHECKING:
    from spsample.store import GraphStore

_HELP = "The folder of a store, or a data set as `spsample train` takes it."


def info(
    dataset: Annotated[str, typer.Argument(help=_HELP, metavar="PATH|SPEC")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all of a store: checksums, and what graphs must satisfy.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Describe a store, an .npz file or a data set: sizes, degrees, arrays, labels, splits, origin.

    Of a store only the row starts are read, unless --verify is given; a data set that is generated or fetched is so
    first. The exit status is 1 if a store is damaged.

    Examples
    --------
    * `spsample info graphs/products`
    * `spsample info graphs/products --verify`
    * `spsample info planted:20000 --json`
    """
    from spsample.cli.describing import describe_dataset, describe_store
    from spsample.data import load_dataset
    from spsample.data.named import NAMED
    from spsample.data.stored import is_store
    from spsample.store import GraphStore

    if dataset not in NAMED and is_store(dataset):
        store = GraphStore.open(dataset)
        facts = describe_store(store)
        if verify:
            without = _verified(store, quiet=as_json)
            facts |= {"verified": without is not None, "without_checksum": list(without or ())}
    elif verify:
        raise InputError(argument="--verify", given=f"with {dataset!r}", expected="the folder of a store")
    else:
        facts = describe_dataset(load_dataset(dataset))
    if as_json:
        print_json(facts)
    else:
        _print(facts)
    if facts.get("verified") is False:
        raise typer.Exit(1)


def _verified(store: GraphStore, *, quiet: bool) -> tuple[str, ...] | None:
    """Verify a store; what is wrong is printed on standard error.

    Return what `GraphStore.verify` returns, None where the store is damaged.
    """
    with PhaseProgress("bytes", quiet=quiet) as work:
        try:
            return store.verify(lambda done, total: work.show("verifying", done, total))
        except DataError as error:
            print_message(f"damaged: {error}")
            return None


def _verdict(facts: dict[str, Any]) -> str | None:
    """Return the result of the verification, in words."""
    if facts.get("verified") is None:
        return None
    if not facts["verified"]:
        return "DAMAGED"
    right = "checksums and structure are right"
    without = facts["without_checksum"]
    return f"{right}; {', '.join(without)} has no checksum: an older store" if without else right


def _print(facts: dict[str, Any]) -> None:
    print_line(facts["name"])
    print_text(_summary(facts))
    unit = unit_for([facts["bytes"]])
    print_sentence(f"{format_bytes(facts['bytes'])} in {len(facts['arrays'])} arrays:")
    sizes = bytes_column([facts["bytes"], *(array["bytes"] for array in facts["arrays"])], unit)
    rows = [["total", "", "", sizes[0]]]
    for array, size in zip(facts["arrays"], sizes[1:], strict=True):
        rows.append([array["name"], array["dtype"], " x ".join(f"{length:,}" for length in array["shape"]), size])
    print_table(["array", "dtype", "shape", f"size, {unit}"], rows, words=2)


def _summary(facts: dict[str, Any]) -> Table:
    shown = Table.grid(padding=(0, 2))
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    degrees, labels, splits = facts["in_degrees"], facts["labels"], facts["splits"]
    rows = {
        "path": facts["path"],
        "vertices": f"{facts['num_nodes']:,}",
        "edges": f"{facts['num_edges']:,}",
        "weights": facts["weighting"],
        "in-neighbours": f"{degrees['mean']:.2f} on average, {degrees['max']:,} at most; "
        f"{degrees['without']:,} vertices without",
        "features": _features(facts),
        "labels": f"{labels['classes']} classes{', several per vertex' if labels['multi'] else ''}" if labels else None,
        "splits": f"{splits['count']} of {splits['train']:,} / {splits['val']:,} / {splits['test']:,} "
        "(training / validation / test)"
        if splits
        else None,
        "metric": facts["metric"],
        "original ids": facts["original_ids"],
        **{key.replace("_", " "): _as_text(value) for key, value in facts["meta"].items()},
        "digest": facts["digest"],
        "verified": _verdict(facts),
    }
    for name, value in rows.items():
        if value is not None:
            shown.add_row(Text(name), Text(str(value)))
    return shown


def _features(facts: dict[str, Any]) -> str | None:
    """As in "7 features per vertex", and the names of those that are not x."""
    widths = [
        f"{width:,} features per {of}" + ("" if name == "x" else f" in {name}")
        for name, (width, of) in facts["feature_widths"].items()
    ]
    return "; ".join(widths) or None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
