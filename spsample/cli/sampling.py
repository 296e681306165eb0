"""Options that `spsample train`, `plan` and `sample` share: what is sampled, and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spsample.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.data import Dataset
    from spsample.sampling import Sampler

__all__ = [
    "BatchSize",
    "EdgeIds",
    "Fanouts",
    "LayerSizes",
    "Layout",
    "MemoryBudget",
    "SamplerName",
    "Seeds",
    "Source",
    "build_sampler",
    "make_sampler",
    "parse_sizes",
    "require_sampler_options",
    "seeds_of",
]

_SAMPLERS = ("graphsage", "ladies", "fastgcn")
_PANEL = "Sampling"

Source = Annotated[str, typer.Argument(help="Whatever `spsample train` takes: a path, or the name of a data set.")]
SamplerName = Annotated[
    str, typer.Option("--sampler", help="One of graphsage, ladies, fastgcn.", rich_help_panel=_PANEL)
]
Fanouts = Annotated[
    str | None,
    typer.Option(help="GraphSAGE: in-neighbours per layer, nearest the seeds first; -1 = all.", rich_help_panel=_PANEL),
]
LayerSizes = Annotated[
    str | None,
    typer.Option(help="LADIES, FastGCN: vertices per layer, nearest the seeds first.", rich_help_panel=_PANEL),
]
Layout = Annotated[str, typer.Option(help="GraphSAGE: blocks or subgraph.", rich_help_panel=_PANEL)]
BatchSize = Annotated[int, typer.Option(help="Seeds per minibatch.", rich_help_panel=_PANEL)]
EdgeIds = Annotated[
    bool, typer.Option("--edge-ids", help="Also each entry's position in the input.", rich_help_panel=_PANEL)
]
Seeds = Annotated[
    str,
    typer.Option(
        help="train, val, test or all vertices; train where there is a split, else all.", rich_help_panel=_PANEL
    ),
]
MemoryBudget = Annotated[
    str | None,
    typer.Option(help="For bulks, as in 2GiB; by default half of what is available.", rich_help_panel=_PANEL),
]

_FANOUTS, _LAYER_SIZES = "15,10", "512,512"


def make_sampler(name: str, fanouts: str | None, layer_sizes: str | None, layout: Any = "blocks") -> Sampler:
    """The sampler that the options describe; an option that it has no use for is refused."""
    require_sampler_options(name, fanouts, layer_sizes)
    if name != "graphsage" and layout != "blocks":
        raise InputError(argument="layout", given=f"{layout!r} with --sampler {name}", expected="blocks")
    text = {
        "fanouts": _FANOUTS if fanouts is None else fanouts,
        "layer_sizes": _LAYER_SIZES if layer_sizes is None else layer_sizes,
    }
    return build_sampler(
        name, **{argument: parse_sizes(argument, sizes) for argument, sizes in text.items()}, layout=layout
    )


def require_sampler_options(name: str, fanouts: str | None, layer_sizes: str | None) -> None:
    """Refuse an unknown sampler, and sizes that it has no use for."""
    if name not in _SAMPLERS:
        raise InputError(argument="sampler", given=repr(name), expected="one of " + ", ".join(_SAMPLERS))
    if name == "graphsage":
        _refuse("layer_sizes", layer_sizes, name, "--fanouts")
    else:
        _refuse("fanouts", fanouts, name, "--layer-sizes")


def build_sampler(name: str, fanouts: Sequence[int], layer_sizes: Sequence[int], layout: Any = "blocks") -> Sampler:
    """The sampler of that name, with the sizes that are its own."""
    from spsample.sampling import LADIES, FastGCN, GraphSAGE

    if name == "graphsage":
        return GraphSAGE(list(fanouts), layout=layout)
    return (LADIES if name == "ladies" else FastGCN)(list(layer_sizes))


def seeds_of(dataset: Dataset, which: str) -> NDArray[np.int64]:
    """The vertices that `--seeds` names."""
    import numpy as np

    parts: dict[str, NDArray[np.int64]] = {name: getattr(dataset, f"{name}_idx") for name in ("train", "val", "test")}
    everything = np.arange(dataset.graph.num_nodes)
    if which == "auto":
        return parts["train"] if len(parts["train"]) else everything
    if which == "all":
        return everything
    if which not in parts:
        raise InputError(argument="seeds", given=repr(which), expected="train, val, test, all or auto")
    if len(parts[which]) == 0:
        raise InputError(argument="seeds", given=f"{which!r} of {dataset.name!r}, which has none", expected="all")
    return parts[which]


def _refuse(argument: str, text: str | None, sampler: str, instead: str) -> None:
    if text is not None:
        raise InputError(
            argument=argument, given=f"{text!r} with --sampler {sampler}", expected=f"{instead} with that sampler"
        )


def parse_sizes(name: str, text: str) -> tuple[int, ...]:
    """Parse "15,10"."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise InputError(argument=name, given=repr(text), expected="integers with commas, as in 15,10") from None
