"""An epoch on more ranks than there are here: bytes, messages and seconds over p and c, by `spsample.planning.cluster`.

Up to 16 ranks the bytes are also recorded, by ranks that are threads of this process, and stand beside the model's.
Beyond they are predicted from real samples. Seconds are the model's throughout. `simulate` makes a row for each phase
of each cell, `validate` the error of the model where there is a record, `assumptions` what to print on a plot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from spsample.comm import Communicator, Recorder, run_threads
from spsample.data import load_dataset
from spsample.errors import InputError
from spsample.features import PartitionedFeatures
from spsample.planning.cluster import (
    Cluster,
    GridPlan,
    Link,
    Network,
    PhasePlan,
    Pilot,
    network_named,
    plan_cluster,
    scaled_pilot,
)
from spsample.sampling import Sampler

RANKS = (4, 8, 16, 32, 64, 128, 256)
REPLICATIONS = (1, 2, 4, 8, 16)
ALGORITHMS = ("column", "stages")
"""Owners draw; algorithm 2 of Tripathy, Yelick, Buluc (MLSys 2024)."""
PARTS = ("sampling", "feature fetch", "propagation")
"""The stacked bars of an epoch; `part_of` says which phases are in which."""
FORWARD = "forward and backward"
TIMEOUT = 1800.0
FLOAT_BYTES = 4


# ------------------------------------------------------------------------------------------------- what is assumed


@dataclass(frozen=True)
class Setting:
    """What a simulation assumes, but for the graph and the sampler.

    Attributes
    ----------
    network : Network
        Latency and bandwidth inside of a node and between nodes.
    ranks_per_node : int
    memory_per_rank : int
        Bytes.
    bulk_size : int, optional
        k; None: what `plan_cluster` finds best for a cell.
    hidden, classes : int
        Widths of a GraphSAGE model of as many layers as the sampler has.
    flops, memory_bandwidth : float
        Operations and bytes per second of a rank in propagation.
    most_recorded : int
        Cells of at most as many ranks are recorded.
    recorded_bulks : int
        Whole bulks that are recorded of a cell, whose mean stands for all; the rest of an epoch is recorded, too.
    memory_here : int
        Cells whose ranks would take more bytes together are not recorded.
    """

    network: Network = field(default_factory=lambda: network_named("perlmutter"))
    ranks_per_node: int = 4
    memory_per_rank: int = 40 * 10**9
    bulk_size: int | None = None
    hidden: int = 256
    classes: int = 47
    flops: float = 1e13
    memory_bandwidth: float = 1e12
    most_recorded: int = 16
    recorded_bulks: int = 4
    memory_here: int = 8 << 30


@dataclass(frozen=True)
class Published:
    """A graph of the paper, its table 3: vertices, edges, minibatches of 1,024 seeds, features of a vertex.

    `pilot` is an R-MAT graph of about its average degree, with some four million edges.
    """

    num_nodes: int
    num_edges: int
    batches: int
    features: int
    pilot: str


PUBLISHED = {
    "products": Published(2_400_000, 126_000_000, 196, 100, "rmat:16,32"),
    "protein": Published(8_700_000, 1_300_000_000, 1024, 128, "rmat:14,117"),
    "papers": Published(111_000_000, 1_600_000_000, 1172, 128, "rmat:18,8"),
}


def pilot_like(name: str, sampler: Sampler, *, batch_size: int = 1024) -> Pilot:
    """Pilots for a graph of `PUBLISHED`, sampled on a smaller R-MAT graph of its average degree."""
    if name not in PUBLISHED:
        raise InputError(argument="name", given=repr(name), expected="one of " + ", ".join(PUBLISHED))
    size = PUBLISHED[name]
    return scaled_pilot(
        load_dataset(size.pilot).graph,
        sampler,
        num_nodes=size.num_nodes,
        num_edges=size.num_edges,
        num_seeds=1024 * size.batches,
        batch_size=batch_size,
        feature_bytes=FLOAT_BYTES * size.features,
    )


# ----------------------------------------------------------------------------------------------------- the simulation


def simulate(
    pilot: Pilot,
    setting: Setting | None = None,
    *,
    ranks: Iterable[int] = RANKS,
    replications: Iterable[int] = REPLICATIONS,
    algorithms: Iterable[str] = ALGORITHMS,
) -> list[dict[str, Any]]:
    """Rows of an epoch, one for each phase of each p, each c that divides it, and each algorithm.

    Parameters
    ----------
    pilot : Pilot
        Of a graph that is here (`sample_pilot`), or of one that is not (`pilot_like`), whose cells are all predicted.
    setting : Setting, optional
    ranks, replications : iterable of int
        p and c.
    algorithms : iterable of str

    Returns
    -------
    list of dict
        `ranks`, `replication`, `algorithm`; `fits`, `refusal`, `memory_bytes` of a rank, `bulk_size`, the
        `largest_bulk_size` that fits; `part`, `phase`, `seconds`; `source`, "recorded" or "predicted", of the bytes
        `received` (mean of the ranks), `received_most`, `sent_most`, of `messages` (of the rank that sends most) and of
        their mean size `message_bytes`; beside them `predicted`, the model's `received`. A cell that does not fit has
        one row, without a phase.
    """
    setting = Setting() if setting is None else setting
    replications = list(replications)
    rows: list[dict[str, Any]] = []
    for p in ranks:
        for c in (one for one in replications if one < 1 or p % one == 0):  # a plan refuses those below 1
            for algorithm in algorithms:
                rows += _cell(pilot, setting, p, c, algorithm)
    return rows


def _cell(pilot: Pilot, setting: Setting, p: int, c: int, algorithm: str) -> list[dict[str, Any]]:
    how: dict[str, Any] = {"algorithm": algorithm, "bulk_size": setting.bulk_size}
    cluster = Cluster(
        p,
        setting.memory_per_rank,
        setting.network,
        setting.ranks_per_node,
        model_bytes=model_bytes(pilot, setting),
        **how,
    )
    (grid,) = plan_cluster(pilot, cluster, replication=c).grids
    cell = {
        "ranks": p,
        "replication": c,
        "algorithm": algorithm,
        "fits": grid.fits,
        "refusal": grid.refusal,
        "memory_bytes": grid.memory_bytes,
        "bulk_size": grid.bulk_size,
        "largest_bulk_size": grid.largest_bulk_size,
    }
    if not grid.fits:
        return [{**cell, **_row("", "", 0.0, "predicted", _NOTHING, 0.0)}]
    moved = _record(pilot, setting, grid, cluster) if _recordable(pilot, setting, grid) else None
    rows = [{**cell, **_of_phase(one, moved)} for one in grid.phases]
    whole, rest = divmod(pilot.num_batches, grid.bulk_size)
    steps = whole * -(-grid.bulk_size // p) + -(-rest // p)
    seconds = steps * step_seconds(pilot, setting)
    return [*rows, {**cell, **_row("propagation", FORWARD, seconds, rows[0]["source"], _NOTHING, 0.0)}]


@dataclass(frozen=True)
class Moved:
    """Of a phase: bytes and messages of a rank."""

    received: float
    received_most: float
    sent_most: float
    messages: float


_NOTHING = Moved(0.0, 0.0, 0.0, 0.0)


def _of_phase(one: PhasePlan, moved: dict[str, Moved] | None) -> dict[str, Any]:
    if moved is None:
        source, found = "predicted", Moved(one.received_mean, one.received_max, one.sent_max, one.messages_max)
    else:
        source, found = "recorded", moved.get(one.phase, _NOTHING)
    return _row(part_of(one.phase), one.phase, one.seconds, source, found, one.received_mean)


def _row(part: str, phase: str, seconds: float, source: str, found: Moved, predicted: float) -> dict[str, Any]:
    size = found.sent_most / found.messages if found.messages else 0.0
    about = {"part": part, "phase": phase, "seconds": seconds, "source": source}
    return {**about, **asdict(found), "message_bytes": size, "predicted": predicted}


def part_of(phase: str) -> str:
    """Of `PARTS`; headers, those of the features too, count as sampling."""
    return {"features": "feature fetch", "gradients": "propagation", FORWARD: "propagation"}.get(phase, "sampling")


# -------------------------------------------------------------------------------------------------------- propagation


def widths(pilot: Pilot, setting: Setting) -> list[tuple[int, int]]:
    """What goes into and comes out of each layer of the model, farthest from the seeds first."""
    depth = len(pilot.sampler.sizes)
    sizes = [pilot.profile.feature_bytes // FLOAT_BYTES, *[setting.hidden] * (depth - 1), setting.classes]
    return list(pairwise(sizes))


def model_bytes(pilot: Pilot, setting: Setting) -> int:
    """Bytes of the gradients: two matrices and a bias for each layer."""
    return FLOAT_BYTES * sum((2 * inner + 1) * outer for inner, outer in widths(pilot, setting))


def step_seconds(pilot: Pilot, setting: Setting) -> float:
    """Forward and backward of a batch like the pilots' mean: products of dst rows, and reading a row for each edge.

    Backward takes twice as long as forward.
    """
    operations = moved = 0.0
    for place, (inner, outer) in enumerate(widths(pilot, setting)):
        layers = [batch.layers[place].adj for batch in pilot.bulk]
        operations += 4 * inner * outer * float(np.mean([adj.shape[0] for adj in layers]))
        moved += FLOAT_BYTES * inner * float(np.mean([adj.nnz for adj in layers]))
    return 3 * pilot.scale * (operations / setting.flops + moved / setting.memory_bandwidth)


# ---------------------------------------------------------------------------------------------------------- recording


def _recordable(pilot: Pilot, setting: Setting, grid: GridPlan) -> bool:
    """Whether the graph is here, and so many ranks with what the plan says of their memory."""
    p = grid.shape.ranks
    return pilot.scale == 1 and p <= setting.most_recorded and p * grid.memory_bytes <= setting.memory_here


def _record(pilot: Pilot, setting: Setting, grid: GridPlan, cluster: Cluster) -> dict[str, Moved]:
    """By phase, what ranks move in an epoch, from bulks of other batches than the pilots' and a step on each batch."""
    p, k, b = grid.shape.ranks, grid.bulk_size, pilot.batch_size
    order = np.random.default_rng(1).permutation(pilot.seeds)
    whole = len(order) // (k * b)
    recorded = min(whole, setting.recorded_bulks)
    bulks = [(at * k, order[at * k * b : (at + 1) * k * b], whole / recorded) for at in range(recorded)]
    if len(order) % (k * b):
        bulks.append((whole * k, order[whole * k * b :], 1.0))
    x = np.zeros((pilot.graph.num_nodes, pilot.profile.feature_bytes // FLOAT_BYTES), np.float32)
    gradients, nothing = np.zeros(cluster.model_bytes // FLOAT_BYTES, np.float32), np.zeros(0, np.int64)

    def body(comm: Communicator) -> dict[str, NDArray[np.float64]]:
        sp.set_num_threads(1)
        recorder, found = Recorder(comm), dict[str, Any]()
        on_grid = sp.ProcessGrid(recorder, replication=grid.shape.replication)
        parts = sp.PartitionedGraph.from_graph(pilot.graph, on_grid, algorithm=cluster.algorithm)
        features = PartitionedFeatures.of(x, on_grid)
        sp.bulk_sample(parts, order[:p], pilot.sampler, batch_size=1)  # makes what is made once
        for first, seeds, times in bulks:
            recorder.traffic.clear()
            bulk = sp.bulk_sample(parts, seeds, pilot.sampler, batch_size=b, random_seed=1, first_batch=first)
            for step in range(-(-len(seeds) // (p * b))):
                if x.size:
                    features.gather(bulk[step].src_nodes if step < len(bulk) else nothing)
                recorder.all_reduce(gradients, phase="gradients")
            for name, one in recorder.traffic.phases.items():
                moved = times * np.array([one.bytes_received, one.bytes_sent, one.messages_sent])
                phase = name.removesuffix(" requests")
                found[phase] = found.get(phase, 0.0) + moved
        return found

    by_rank = run_threads(p, body, TIMEOUT)
    names = sorted(set().union(*by_rank))
    return {name: _moved(np.array([one.get(name, np.zeros(3)) for one in by_rank])) for name in names}


def _moved(ranks: NDArray[np.float64]) -> Moved:
    received, sent, messages = ranks.T
    return Moved(received.mean(), received.max(), sent.max(), messages.max())


# --------------------------------------------------------------------------------------------------------- validation


def validate(
    pilot: Pilot,
    setting: Setting | None = None,
    *,
    ranks: Iterable[int] = (4, 8, 16),
    replications: Iterable[int] = REPLICATIONS,
    algorithms: Iterable[str] = ALGORITHMS,
) -> list[dict[str, Any]]:
    """Bytes that a rank receives in an epoch, recorded and predicted, and the relative error of the prediction.

    A row for each recorded cell and part, and one for the "epoch" of the cell.
    """
    rows = simulate(pilot, setting, ranks=ranks, replications=replications, algorithms=algorithms)
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["source"] == "recorded":
            cells.setdefault((row["ranks"], row["replication"], row["algorithm"]), []).append(row)
    return [one for cell, phases in cells.items() for one in _compared(repr(pilot.sampler), cell, phases)]


def _compared(sampler: str, cell: tuple[Any, ...], phases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    p, c, algorithm = cell
    about = {"sampler": sampler, "ranks": p, "replication": c, "algorithm": algorithm}
    for part in (*PARTS, "epoch"):
        ones = [row for row in phases if part in (row["part"], "epoch")]
        recorded, predicted = (sum(row[name] for row in ones) for name in ("received", "predicted"))
        yield {**about, "part": part, "recorded": recorded, "predicted": predicted, "error": error(predicted, recorded)}


def error(predicted: float, recorded: float) -> float:
    """Relative; 0 where there is nothing of either.

    Examples
    --------
    >>> error(150, 100), error(0, 0), error(1, 0)
    (0.5, 0.0, inf)
    """
    return predicted / recorded - 1 if recorded else np.inf if predicted else 0.0


# ------------------------------------------------------------------------------------------------------- in words


def assumptions(pilot: Pilot, setting: Setting | None = None) -> list[str]:
    """What a simulation assumes, in lines for a plot."""
    setting = Setting() if setting is None else setting
    profile, network = pilot.profile, setting.network
    share = f", each standing for 1/{pilot.scale:.0f} of one of a smaller graph" if pilot.scale != 1 else ""
    k = "the best found for each cell" if setting.bulk_size is None else f"{setting.bulk_size:,}"
    here = f"up to p = {setting.most_recorded}, of {setting.recorded_bulks} bulks and the rest, where they fit here"
    recorded = here if pilot.scale == 1 else "none, since the graph is not here"
    width, size = profile.feature_bytes // FLOAT_BYTES, model_bytes(pilot, setting)
    return [
        f"Graph: {profile.num_nodes:,} vertices, {profile.num_edges:,} edges, {width:,} features.",
        f"Epoch: {pilot.num_batches:,} batches of {pilot.batch_size:,} seeds, {pilot.sampler!r}; k: {k}.",
        f"Predicted from {len(pilot.bulk)} sampled batches{share}.",
        f"Recorded bytes, with threads as ranks: {recorded}.",
        f"Network {network.name}: a message of n bytes takes alpha + n / beta, {network.duplex:g} of beta each way.",
        f"Inside of a node, {setting.ranks_per_node} ranks: {_link(network.inside)}.",
        f"Between nodes, {network.adapters} adapters each: {_link(network.between)}.",
        f"Memory of a rank: {setting.memory_per_rank / 1e9:g} GB.",
        "Sampling: exchanges and what precedes them, also those of features; computation is not counted.",
        f"Propagation: GraphSAGE, width {setting.hidden}, {setting.classes} classes; ring all-reduce: {size:,} bytes.",
        f"Forward and backward: {step_seconds(pilot, setting) * 1e3:.2f} ms a batch, at {setting.flops:.3g} operations "
        f"and {setting.memory_bandwidth:.3g} bytes a second.",
        "Nothing overlaps: an epoch takes the sum of its phases, each as long as the rank that has most.",
    ]


def _link(link: Link) -> str:
    return f"alpha = {link.alpha * 1e6:g} us, beta = {link.beta / 1e9:g} GB/s"
