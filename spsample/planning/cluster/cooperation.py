"""`plan_cooperation`: what a rank has to do in a step with cooperative batches, and with batches of its own."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from spsample.common.checks import require_int
from spsample.common.units import format_bytes
from spsample.distributed.cooperative import owners_of, require_targets
from spsample.errors import InputError
from spsample.planning.cluster.grid_shape import GridShape
from spsample.planning.cluster.pilot import FIRST_PILOTS, MOST_PILOTS, sample_cheap
from spsample.planning.cluster.step_counts import StepCounts, cooperative_step, independent_step
from spsample.planning.workload import Workload

if TYPE_CHECKING:
    from spsample.planning.cluster.pilot import Pilot
    from spsample.planning.cluster.plan import Cluster
    from spsample.sampling import BulkSample, Sampler

MOST_RANKS, MOST_HIDDEN = 1024, 1 << 24
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
        Bytes that it receives, by the phase that a `spsample.comm.Recorder` counts them under: "features requests"
        (ids) and "features"; or "pieces" (sampled rows), "batch activations" and "batch gradients".
    seconds : float
        Time of these exchanges on the network, phase after phase, of the rank that has most.
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
        """Whether it pays, and why, in a sentence or two; the busiest rank decides, for which the others wait."""
        later = self.cooperative.seconds - self.independent.seconds
        rows, edges = self._saved_by_busiest
        if later > 0 and max(rows, edges) < LEAST_SAVED:
            pays = "does not pay"
        elif later > 0:
            pays = f"pays {self._condition(later)}"
        elif min(rows, edges) < -LEAST_SAVED:
            pays = "pays where the network takes the time"
        else:
            pays = "pays"
        return f"Cooperation {pays}: {self._facts(later)}.{self._busiest}"

    @property
    def _saved_by_busiest(self) -> tuple[float, float]:
        """Shares of rows and edges that the rank with most of them saves."""
        shared, alone = self.cooperative, self.independent
        return 1 - shared.most_rows / max(alone.most_rows, 1.0), 1 - shared.most_edges / max(alone.most_edges, 1.0)

    def _facts(self, later: float) -> str:
        bytes_ = [format_bytes(round(load.received)) for load in (self.cooperative, self.independent)]
        time = f"{1000 * abs(later):.2f} ms {'longer' if later > 0 else 'less'} on this network"
        rows, edges = _change(self.saved_rows), _change(self.saved_edges)
        return f"{rows} rows and {edges} edges a rank, {bytes_[0]} received a step in place of {bytes_[1]}, {time}"

    def _condition(self, later: float) -> str:
        """What must be dear for cooperation to make up for its exchanges."""
        rows, edges = self._saved_by_busiest
        if rows < LEAST_SAVED:
            cost = 1e9 * later / (edges * self.independent.most_edges)
            return f"only where an edge costs more than {cost:,.0f} ns"
        cost = 1e9 * later / (rows * self.independent.most_rows)
        if edges < -LEAST_SAVED:
            return f"only where fetching a row costs more than {cost:,.0f} ns, and further edges cost little"
        return f"only where fetching a row and computing with its edges cost more than {cost:,.0f} ns"

    @property
    def _busiest(self) -> str:
        """The rank with most rows or edges, where it has more than with a batch of its own and the mean has fewer."""
        saved = (self.saved_rows, self.saved_edges)
        more = [
            f"{-most:.0%} more {name}"
            for name, mean, most in zip(("rows", "edges"), saved, self._saved_by_busiest, strict=True)
            if most < -LEAST_SAVED and mean > 0
        ]
        return f" The busiest rank has {' and '.join(more)} than with a batch of its own." if more else ""

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
    p = require_cooperative(cluster.ranks, hidden)
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
        independent=timed.load(independent_step(alone, owners, row_bytes, pilot.profile.id_bytes)),
        cooperative=timed.load(cooperative_step(shared, owners, row_bytes, FLOAT_BYTES * hidden)),
    )


def require_cooperative(ranks: Any, hidden: Any) -> int:
    """Return the number of ranks, if cooperative batches of as many can be planned, for a model of that width.

    Raises
    ------
    InputError
        If ranks are not 2 to 1024, or the width is not 1 to 2^24.

    Examples
    --------
    >>> require_cooperative(8, hidden=128)
    8
    """
    p = require_int("ranks", ranks, minimum=1)
    if not 2 <= p <= MOST_RANKS:
        raise InputError(argument="ranks", given=str(p), expected=f"2 to {MOST_RANKS} for cooperative batches")
    require_int("hidden", hidden, minimum=1, maximum=MOST_HIDDEN)
    return p


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


@dataclass(frozen=True)
class _Timed:
    """Makes loads of counts of the pilots' graph."""

    cluster: Cluster
    scale: float

    def load(self, counts: StepCounts) -> StepLoad:
        shape, here = GridShape(self.cluster.ranks), counts.scaled(self.scale)
        seconds = (self.cluster.network.seconds(one, shape, self.cluster.ranks_per_node) for one in here.exchanges)
        return StepLoad(
            rows=float(here.rows.mean()),
            edges=float(here.edges.mean()),
            most_rows=float(here.rows.max()),
            most_edges=float(here.edges.max()),
            phases={one.recorded: float(one.received.mean()) for one in here.exchanges},
            seconds=sum(seconds),
        )


__all__ = ["CooperationPlan", "StepLoad", "plan_cooperation", "require_cooperative"]
