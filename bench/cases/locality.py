"""Locality-aware sampling (Song and Jiang, ICS 2022): rows that are fetched, time and accuracy against the factor."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import spsample as sp
from spsample.comm import Communicator
from spsample.features import draw_shift

from ..case import Case, Figures, Plot, Side, Value, Work
from ..inputs import Inputs
from ..ours import comm_of, sampler_of
from ..traced import dataset_of

if TYPE_CHECKING:
    from spsample.training import Trainer


def train(inputs: Inputs) -> Work:
    """With a share of the rows cached, those of the highest posterior, which draws prefer by the factor."""
    plain = {**inputs.values, "factor": 1.0, "weights": 0}
    fetched = _fetched(inputs.store, tuple(plain.items()), inputs.comm)

    def work() -> Figures:
        figures = _run(inputs)
        return {**figures, "misses_over_plain": figures["fetched"] / max(fetched, 1)}

    return work


@lru_cache(maxsize=8)
def _fetched(store: Path, values: tuple[tuple[str, Value], ...], comm: Communicator | None) -> float:
    """Rows of a batch that a run fetches; kept, as cells that differ by their factor ask for the same."""
    return _run(Inputs(store, dict(values), comm))["fetched"]


def _run(inputs: Inputs) -> Figures:
    from ..trained import cache_bytes, trained

    data = dataset_of(inputs)

    def look(trainer: Trainer) -> Figures:
        shift = draw_shift(data.graph, data.train_idx, trainer.sampler, inputs["batch_size"], epochs=2)
        fetched = trainer.cache_counts.misses / trainer.progress.step
        return {"fetched": fetched, "total_variation": shift.total_variation}

    shared = replace(data, graph=sp.ReplicatedGraph(data.graph, comm_of(inputs)))
    how = {"biased": inputs["factor"], "importance_weights": bool(inputs["weights"])}
    how |= {"pipeline": "sync", "cache_budget": cache_bytes(inputs, data)}
    return trained(inputs, shared, sampler_of(inputs), look=look, **how)


CASE = Case(
    about="Training where draws prefer cached vertices: rows of a batch that are fetched, ms of an epoch, accuracy.",
    claim="The larger the factor, the fewer rows are fetched; up to 4 it costs hardly any accuracy.",
    parameters={
        "graph": ("planted:20000",),
        "fanouts": ("15,5",),
        "batch_size": (512,),
        "bulk_size": (16,),
        "hidden": (64,),
        "epochs": (10,),
        "share": (0.1,),
        "random_seed": (0,),
        "factor": (1.0, 2.0, 4.0, 8.0, 16.0),
    },
    quick={"graph": ("planted:3000",), "batch_size": (128,), "epochs": (2,), "factor": (1.0, 4.0)},
    sides=(
        Side("preferred", train, {"weights": 0}),
        Side("preferred, with importance weights", train, {"weights": 1}),
    ),
    plots=(
        Plot("misses_over_plain", x="factor", kind="line", title="rows that are fetched, over those of plain sampling"),
        Plot("accuracy", x="factor", kind="line", facet="random_seed", title="accuracy"),
        Plot("ms", x="factor", kind="line", title="ms of an epoch"),
    ),
    ranks=True,
)
