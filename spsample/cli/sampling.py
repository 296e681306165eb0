"""Options that `spsample plan` and `sample` share, and the sampler, seeds and loader that they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spsample.common.checks import require_choice
from spsample.errors import InputError
from spsample.settings import SamplerChoice, SamplerSizes
from spsample.settings.sampling import BatchSize, BulkSize, EdgeIds, Layout, MemoryBudget, Seeds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.data import Dataset
    from spsample.loading import BulkLoader
    from spsample.sampling import Sampler

SOURCE = "Whatever `spsample train` takes: a path, or the name of a data set."


@dataclass(frozen=True)
class SamplingOptions(SamplerSizes, SamplerChoice):
    """Options of sampling."""

    layout: Layout = "blocks"
    batch_size: BatchSize = 1024
    bulk_size: BulkSize = "auto"
    memory_budget: MemoryBudget = None
    seeds: Seeds = "auto"
    edge_ids: EdgeIds = False


def make_sampler(options: Any, typed: Mapping[str, Any]) -> Sampler:
    """The sampler that the options describe; sizes that it has no use for are refused."""
    require_sampler_options(options.sampler, typed)
    layout = getattr(options, "layout", "blocks")
    if options.sampler != "graphsage" and layout != "blocks":
        raise InputError(argument="layout", given=f"{layout!r} with --sampler {options.sampler}", expected="blocks")
    return build_sampler(options.sampler, options.fanouts, options.layer_sizes, layout)


def require_sampler_options(name: str, typed: Mapping[str, Any]) -> None:
    """Refuse sizes that the sampler has no use for."""
    unused, used = ("layer_sizes", "--fanouts") if name == "graphsage" else ("fanouts", "--layer-sizes")
    if typed[unused] is not None:
        given = f"{typed[unused]!r} with --sampler {name}"
        raise InputError(argument=unused, given=given, expected=f"{used} with that sampler")


def build_sampler(name: str, fanouts: Sequence[int], layer_sizes: Sequence[int], layout: Any = "blocks") -> Sampler:
    """The sampler of that name, with the sizes that are its own."""
    from spsample.sampling import LADIES, FastGCN, GraphSAGE

    if name == "graphsage":
        return GraphSAGE(list(fanouts), layout=layout)
    layerwise: dict[str, type[LADIES | FastGCN]] = {"ladies": LADIES, "fastgcn": FastGCN}
    return layerwise[name](list(layer_sizes))


def make_loader(dataset: Dataset, sampler: Sampler, options: SamplingOptions, **more: Any) -> BulkLoader:
    """The loader that the options describe; ``more`` is passed on to it, and wins."""
    from spsample.data.part_stores import require_reach
    from spsample.loading import BulkLoader

    require_reach(dataset, sampler)
    settings = {
        "batch_size": options.batch_size,
        "bulk_size": options.bulk_size,
        "memory_budget": options.memory_budget,
        "edge_ids": options.edge_ids,
    }
    return BulkLoader(dataset.graph, seeds_of(dataset, options.seeds), sampler, **(settings | more))


def seeds_of(dataset: Dataset, which: str) -> NDArray[np.int64]:
    """The vertices that `--seeds` names."""
    import numpy as np

    require_choice("seeds", which, ("auto", "train", "val", "test", "all"))
    if which == "all" or (which == "auto" and len(dataset.train_idx) == 0):
        return np.arange(dataset.graph.num_nodes)
    seeds: NDArray[np.int64] = getattr(dataset, f"{which.replace('auto', 'train')}_idx")
    if len(seeds) == 0:
        raise InputError(argument="seeds", given=f"{which!r} of {dataset.name!r}, which has none", expected="all")
    return seeds
