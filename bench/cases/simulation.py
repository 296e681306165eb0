"""Epochs on more ranks than there are here: bytes, messages and seconds over p and c, to 256 ranks and beyond."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import spsample as sp
from spsample.planning.cluster import Pilot, network_named, sample_pilot

from ..case import Case, Figures, Plot, Side, Values, Work
from ..inputs import Inputs
from ..ours import SAMPLERS
from ..simulate import FLOAT_BYTES, PARTS, Setting, assumptions, pilot_like, simulate
from ..traced import train_vertices

_MS = dict(zip(PARTS, ("sampling_ms", "features_ms", "propagation_ms"), strict=True))


def epoch(inputs: Inputs) -> Work:
    """The cell's epoch by ``algorithm``; bytes are those that a rank receives, in the mean. ``fits``: its memory."""
    pilot, setting = _pilot(inputs), _setting(inputs)
    cell = {"ranks": [inputs["ranks"]], "replications": [inputs["replication"]], "algorithms": [inputs["algorithm"]]}

    def work() -> Figures:
        rows = simulate(pilot, setting, **cell)
        facts = {"fits": int(rows[0]["fits"]), "memory_gib": rows[0]["memory_bytes"] / 2**30}
        if not rows[0]["fits"]:
            return {"seconds": 0.0, **facts}
        spent = {name: 1e3 * sum(row["seconds"] for row in rows if row["part"] == part) for part, name in _MS.items()}
        sums = {f"{name}_bytes": round(sum(row[name] for row in rows)) for name in ("received", "predicted")}
        recorded = any(row["source"] == "recorded" for row in rows)
        error = {"error": sums["predicted_bytes"] / max(sums["received_bytes"], 1) - 1} if recorded else {}
        messages = {"messages": round(sum(row["messages"] for row in rows))}
        return {
            "seconds": 0.0,
            "epoch_ms": sum(spent.values()),
            **spent,
            **sums,
            **error,
            **messages,
            **facts,
            "k": rows[0]["bulk_size"],
            "note": note,
        }

    note = " ".join(assumptions(pilot, setting))
    return work


def _setting(inputs: Inputs) -> Setting:
    network = network_named(str(inputs["network"]))
    sizes = {"ranks_per_node": inputs["ranks_per_node"], "memory_per_rank": int(inputs["memory_gb"] * 1e9)}
    return Setting(network=network, bulk_size=inputs["bulk_size"] or None, hidden=inputs["hidden"], **sizes)


def _pilot(inputs: Inputs) -> Pilot:
    how = str(inputs["sampler"]), tuple(inputs.fanouts), int(inputs["batch_size"])
    return _like(str(inputs["like"]), *how) if inputs["like"] else _sampled(inputs.store, inputs["dim"], *how)


@lru_cache(maxsize=2)
def _like(name: str, sampler: str, fanouts: tuple[int, ...], batch_size: int) -> Pilot:
    return pilot_like(name, SAMPLERS[sampler](list(fanouts)), batch_size=batch_size)


@lru_cache(maxsize=2)
def _sampled(store: Path, dim: int, sampler: str, fanouts: tuple[int, ...], batch_size: int) -> Pilot:
    graph: Any = sp.Graph.open(store)
    seeds = train_vertices(Inputs(store, {}))
    how = {"batch_size": batch_size, "feature_bytes": FLOAT_BYTES * dim}
    return sample_pilot(graph, seeds, SAMPLERS[sampler](list(fanouts)), **how)


def _is_cell(cell: Values) -> bool:
    return int(cell["ranks"]) % int(cell["replication"]) == 0


CASE = Case(
    about="An epoch by phase over p and c on a cluster: bytes recorded on threads to p = 16, predicted beyond.",
    claim="The time of stages falls with c until its all-reduce dominates, and its bytes rise; owners draw with less.",
    parameters={
        "graph": ("rmat:14,16",),
        "like": ("",),
        "sampler": ("sage",),
        "fanouts": ("15,10,5",),
        "batch_size": (256,),
        "bulk_size": (0,),
        "dim": (100,),
        "hidden": (256,),
        "network": ("perlmutter",),
        "ranks_per_node": (4,),
        "memory_gb": (40.0,),
        "ranks": (4, 16, 64, 256),
        "replication": (1, 2, 4, 8, 16),
    },
    quick={"graph": ("rmat:11,16",), "batch_size": (32,), "bulk_size": (16,), "ranks": (4, 64), "replication": (1, 4)},
    sides=(
        Side("owners draw", epoch, {"algorithm": "column"}),
        Side("stages (algorithm 2)", epoch, {"algorithm": "stages"}),
    ),
    plots=(
        Plot(tuple(_MS.values()), x=("like", "ranks", "replication"), facet="side", title="ms of an epoch, by phase"),
        Plot(
            "sampling_ms",
            x="ranks",
            color=("side", "replication"),
            facet="like",
            kind="line",
            logarithmic=True,
            title="sampling",
        ),
        Plot(
            "received_bytes",
            x="ranks",
            color=("side", "replication"),
            facet="like",
            kind="line",
            logarithmic=True,
            title="bytes",
        ),
    ),
    exact=True,
    valid=_is_cell,
)
