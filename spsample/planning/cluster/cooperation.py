"""`plan_cooperation`: what a rank has to do in a step with cooperative batches, and with batches of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.common.checks import require_int
from spsample.common.units import format_bytes
from spsample.distributed.cooperative import Owners, PieceReader, owners_of, pieces_of, require_targets
from spsample.errors import InputError
from spsample.planning.cluster.exchanges import Exchange, Phase
from spsample.planning.cluster.grid_shape import FloatArray, GridShape
from spsample.planning.cluster.pilot import FIRST_PILOTS, MOST_PILOTS, sample_cheap
from spsample.planning.workload import Workload

if TYPE_CHECKING:
    from spsample.planning.cluster.pilot import Pilot
    from spsample.planning.cluster.plan import Cluster
    from spsample.sampling import BulkSample, Sampler

MOST_RANKS = 1024
FLOAT_BYTES = 4
LEAST_SAVED = 0.02  # of rows or edges: less is within what pilots and batches differ


@dataclass(frozen=True)
class StepLoad:
    """A rank's part of a step, mean of the ranks.

    Attributes
    ----------
    rows, edges : float
        Rows of features that it fetches, and edges that it computes with.
    most_rows, most_edges : float
        Of the rank that has most.
    phases : dict
        Bytes that it receives, by phase: "features", "pieces" (sampled rows), "batch activations", "batch gradients".
    seconds : float
        Time of these exchanges on the network.
    """

    rows: float
    edges: float
    most_rows: float
    most_edges: float
    phases: dict[str, float]
    seconds: float

    @property
    def received(self) -> float:
        """Bytes of all phases."""
        return sum(self.phases.values())


@dataclass(frozen=True)
class CooperationPlan:
    """Cooperative batches beside batches of each rank's own, at equal seeds for a step.

    Attributes
    ----------
    step_seeds : int
        Seeds of a step, of all ranks.
    owners : {"hash", "parts"}
        Who owns a vertex. Its features are with its owner.
    pilot_steps : int
        Cooperative batches that were sampled.
    feature_bytes : int
        Of a vertex.
    independent, cooperative : StepLoad
    """

    step_seeds: int
    owners: str
    pilot_steps: int
    feature_bytes: int
    independent: StepLoad
    cooperative: StepLoad

    @property
    def saved_rows(self) -> float:
        """Share of the rows that cooperation saves."""
        return 1 - self.cooperative.rows / max(self.independent.rows, 1.0)

    @property
    def saved_edges(self) -> float:
        """Share of the edges that it saves; negative where there are more."""
        return 1 - self.cooperative.edges / max(self.independent.edges, 1.0)

    @property
    def verdict(self) -> str:
        """Whether it pays, and why, in one sentence."""
        bytes_ = [format_bytes(round(load.received)) for load in (self.cooperative, self.independent)]
        facts = (
            f"{_change(self.saved_rows)} rows and {_change(self.saved_edges)} edges a rank, and {bytes_[0]} received a "
            f"step in place of {bytes_[1]}"
        )
        later = self.cooperative.seconds - self.independent.seconds
        if max(self.saved_rows, self.saved_edges) < LEAST_SAVED:
            return f"Cooperation does not pay: {facts}."
        if later <= 0:
            saves_all = self.saved_rows >= 0 and self.saved_edges >= 0
            condition = "" if saves_all else " where the rows cost more than the edges"
            return f"Cooperation pays{condition}: {facts}."
        return f"Cooperation pays {self._condition(later)}: {facts}, {1000 * later:.2f} ms longer on this network."

    def _condition(self, later: float) -> str:
        rows = self.independent.rows - self.cooperative.rows
        if rows <= 0:
            edges = self.independent.edges - self.cooperative.edges
            return f"only where an edge costs more than {1e9 * later / edges:,.0f} ns"
        return f"only where a row's fetch and its edges cost more than {1e9 * later / rows:,.0f} ns beside the network"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: every number, by name, and the verdict."""
        loads = {name: getattr(self, name) for name in ("independent", "cooperative")}
        return {
            **asdict(self),
            **{name: {**asdict(load), "received": load.received} for name, load in loads.items()},
            "verdict": self.verdict,
        }


def _change(saved: float) -> str:
    return f"{abs(saved):.0%} {'fewer' if saved >= 0 else 'more'}"


def plan_cooperation(pilot: Pilot, cluster: Cluster, *, hidden: int, parts: Any = None) -> CooperationPlan:
    """Predict a step of p ranks from cooperative pilots of p b seeds, which are sampled here and cut as ranks cut them.

    Layer sizes of layer-wise samplers are taken p times for cooperative batches. Where an epoch has fewer than p b
    seeds, a step has all of them. Features are spread like the vertices.

    Parameters
    ----------
    pilot : Pilot
    cluster : Cluster
        At most 1024 ranks.
    hidden : int
        Numbers (float32) of an activation, in all layers after the first.
    parts : int array (n,), optional
        The part of each vertex, as many as divide the ranks evenly; by default a hash deals vertices out.

    Raises
    ------
    InputError
        If there are fewer seeds than ranks, too many ranks or one, parts that do not fit, or a sampler without targets.

    References
    ----------
    M. F. Balin, D. LaSalle and U. V. Catalyurek, Cooperative minibatching in graph neural networks, TMLR 2025.

    Examples
    --------
    >>> import spsample as sp
    >>> from spsample.planning.cluster import Cluster, network_named, sample_pilot
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> pilot = sample_pilot(graph, range(1024), sp.GraphSAGE([5, 5]), batch_size=32, feature_bytes=400)
    >>> plan = plan_cooperation(pilot, Cluster(4, 10**9, network_named("ethernet"), ranks_per_node=1), hidden=16)
    >>> plan.step_seeds, plan.saved_rows > 0.2
    (128, True)
    """
    p = require_int("ranks", cluster.ranks, minimum=2, maximum=MOST_RANKS)
    require_int("hidden", hidden, minimum=1)
    require_targets(pilot.sampler)
    owners = owners_of(pilot.graph, parts, p)
    batch = _batch_size(pilot, p)
    alone = pilot.bulk if batch == len(pilot.bulk[0].seeds) else _pilots(pilot, pilot.bulk.sampler, batch, MOST_PILOTS)
    shared = _pilots(pilot, _of_step(pilot.bulk.sampler, p), p * batch, max(MOST_PILOTS // p, FIRST_PILOTS))
    timed = _Timed(cluster, pilot.scale)
    row_bytes = pilot.profile.feature_bytes
    return CooperationPlan(
        step_seeds=round(p * batch * pilot.scale),
        owners="hash" if parts is None else "parts",
        pilot_steps=len(shared),
        feature_bytes=row_bytes,
        independent=timed.load(*_independent(alone, owners, row_bytes)),
        cooperative=timed.load(*_cooperative(shared, owners, row_bytes, FLOAT_BYTES * hidden)),
    )


def _batch_size(pilot: Pilot, ranks: int) -> int:
    """Seeds of a rank's own batch, on the graph that the pilots are sampled from."""
    if len(pilot.seeds) < ranks:
        raise InputError(
            argument="seeds",
            given=f"{len(pilot.seeds)} for {ranks} ranks",
            expected="at least one for each rank in a cooperative batch",
        )
    return max(min(round(pilot.batch_size / pilot.scale), len(pilot.seeds) // ranks), 1)


def _of_step(sampler: Sampler, ranks: int) -> Sampler:
    """The sampler of a batch of p times the seeds."""
    return sampler if sampler.kind == "node-wise" else sampler.with_sizes([ranks * size for size in sampler.sizes])


def _pilots(pilot: Pilot, sampler: Sampler, batch_size: int, most: int) -> BulkSample:
    return sample_cheap(pilot.graph, Workload(pilot.graph, pilot.seeds, sampler, batch_size, shuffle=True).pilots(most))


_Counts = tuple[FloatArray, FloatArray, dict[Phase, FloatArray]]
"""Rows (p,), edges (p,), and by phase what each rank sends and receives (2, p)."""


def _independent(bulk: BulkSample, owners: Owners, row_bytes: int) -> _Counts:
    """Of a step in which each rank has a batch like the mean one."""
    p, batches = owners.ranks, max(len(bulk), 1)
    rows_of = np.bincount(np.concatenate([owners.of(one.src_nodes) for one in bulk]), minlength=p) / batches
    edges = sum(layer.adj.nnz for one in bulk for layer in one.layers) / batches
    received, sent = rows_of.sum() - rows_of, (p - 1) * rows_of
    return np.full(p, rows_of.sum()), np.full(p, edges), {"features": row_bytes * np.stack([sent, received])}


def _cooperative(bulk: BulkSample, owners: Owners, row_bytes: int, activation_bytes: int) -> _Counts:
    """Of a step in which all have one batch like the mean one; who samples it does not matter in the mean."""
    p, batches, layers = owners.ranks, max(len(bulk), 1), bulk.layers
    has = {"data": layers[0].data is not None, "edge_ids": layers[0].edge_ids is not None}
    rows, edges, piece_bytes = np.zeros(p), np.zeros(p), np.zeros(p)
    activations, gradients = np.zeros((2, p)), np.zeros((2, p))
    for rank, arrays in enumerate(pieces_of(bulk, owners)):
        piece_bytes[rank] = sum(array.nbytes for array in arrays)
        for piece in PieceReader(arrays, p, **has).minibatches(len(layers)):
            rows[rank] += len(piece.src_nodes)
            edges[rank] += sum(layer.adj.nnz for layer in piece.layers)
            first, *later = (layer.routes for layer in piece.layers)
            through = [np.array([one.send_counts.sum(), one.recv_counts.sum()], np.float64) for one in (first, *later)]
            hidden = sum(through[1:], np.zeros(2))
            activations[:, rank] += row_bytes * through[0] + activation_bytes * hidden
            gradients[:, rank] += activation_bytes * hidden[::-1]
    received = piece_bytes * (p - 1) / p
    moved: dict[Phase, FloatArray] = {
        "pieces": np.stack([np.full(p, received.mean()), received]) / batches,
        "batch activations": activations / batches,
        "batch gradients": gradients / batches,
    }
    return rows / batches, edges / batches, moved


@dataclass(frozen=True)
class _Timed:
    """Makes loads of counts of the pilots' graph."""

    cluster: Cluster
    scale: float

    def load(self, rows: FloatArray, edges: FloatArray, moved: dict[Phase, FloatArray]) -> StepLoad:
        shape, scale = GridShape(self.cluster.ranks), self.scale
        exchanges = list(_exchanges(shape, moved, scale))
        seconds = (self.cluster.network.seconds(one, shape, self.cluster.ranks_per_node) for one in exchanges)
        return StepLoad(
            rows=float(scale * rows.mean()),
            edges=float(scale * edges.mean()),
            most_rows=float(scale * rows.max()),
            most_edges=float(scale * edges.max()),
            phases={one.phase: float(one.received.mean()) for one in exchanges},
            seconds=sum(seconds),
        )


def _exchanges(shape: GridShape, moved: dict[Phase, FloatArray], scale: float) -> Iterable[Exchange]:
    """One all-to-all for each phase."""
    messages = np.full(shape.ranks, shape.ranks - 1.0)
    for phase, (sent, received) in moved.items():
        serial = float(scale * max(sent.max(), received.max()))
        yield Exchange(phase, "reply", "column", scale * sent, scale * received, messages, serial)


__all__ = ["CooperationPlan", "StepLoad", "plan_cooperation"]
