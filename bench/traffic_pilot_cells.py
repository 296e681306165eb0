"""One cell of `traffic_pilots.py` in a process of its own: prints a line of JSON for each variant of the exchanges.

python bench/traffic_pilot_cells.py recorded FOLDER CELL      pilots that p ranks, threads here, sample and record
python bench/traffic_pilot_cells.py predicted FOLDER CELL     what `Pilot` says of bulks, from the same batches
python bench/traffic_pilot_cells.py distinct FOLDER CELL      distinct rows of many batches, from those of a few

All take the batches that `sample_pilot` takes: the first of an epoch's seeds in its fixed order.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from spsample.comm import Communicator, Recorder, run_threads
from spsample.distributed.published.variants import ComparedGraph
from spsample.planning.cluster.grid_shape import GridShape
from spsample.planning.cluster.layer_rows import LayerRows, layer_rows
from spsample.planning.cluster.pilot import GridPilot, Pilot, sample_pilot
from spsample.planning.cluster.traffic import bulk_traffic
from spsample.planning.cluster.visits import Visits
from spsample.planning.cluster.wire_widths import WireWidths
from spsample.sparse import keys
from traffic_cells import (
    FEATURES,
    MOST_BATCHES,
    RANKS,
    SAMPLERS,
    TIMEOUT,
    VARIANTS,
    Cell,
    batch_size_of,
    fetch_features,
    load,
    peak_bytes,
    warm_up,
)

SIZES = (1, 2, 4)
"""Batches of a rank in the bulks of a recorded pilot: it has the largest of them, sampled also in smaller bulks."""
BULK_SIZES = (16, 64, 192)
FEW = 16
"""Batches of a pilot from which the model is to predict, too; else as many as `sample_pilot` takes."""
PILOTS, BEYOND = (8, 16, 64), (48, 96)
"""Numbers of batches from which those of others are to follow."""

T = TypeVar("T")
Phases = dict[str, dict[str, float]]


@dataclass(frozen=True)
class PilotCell:
    """Pilots for the bulks of a graph and sampler on a grid.

    Attributes
    ----------
    graph, sampler : str
    replication : int
        c.
    variants : list of str
        Of `traffic_cells.VARIANTS`.
    ranks : int
        p of the grid that is planned for.
    pilot_ranks : int
        Ranks that the pilot is recorded on; a multiple of c.
    """

    graph: str
    sampler: str
    replication: int
    variants: list[str]
    ranks: int = RANKS
    pilot_ranks: int = RANKS
    batch_size: int = 0


def batch_size(graph: sp.Graph, cell: PilotCell) -> int:
    """b of the recorded bulks."""
    return batch_size_of(graph, Cell(cell.graph, cell.sampler, 0, cell.replication, "", cell.ranks, cell.batch_size))


def epoch(graph: sp.Graph) -> NDArray[np.int64]:
    """Seeds in the order in which `sample_pilot` takes them."""
    ids = np.flatnonzero(np.diff(graph.indptr))
    return ids[keys.shuffle(len(ids), 0, 0)]


def timed(made: Callable[[], T]) -> tuple[float, T]:
    """Seconds, and what was made."""
    start = time.perf_counter()
    found = made()
    return time.perf_counter() - start, found


# ------------------------------------------------------------------------------------------------- pilots, recorded


def recorded(graph: sp.Graph, cell: PilotCell) -> Iterator[dict[str, Any]]:
    """Of each variant the bytes of the pilot's bulks by size, in the mean of the bulks, and of the first of a size."""
    for variant in cell.variants:
        yield {"variant": variant, **record_variant(graph, cell, variant), "peak": peak_bytes()}


@dataclass(frozen=True)
class Pilots:
    """The bulks of a recorded pilot: batches of a rank, and the first of them."""

    graph: sp.Graph
    cell: PilotCell
    variant: str

    @cached_property
    def seeds(self) -> NDArray[np.int64]:
        """Of an epoch."""
        return epoch(self.graph)

    @cached_property
    def batch_size(self) -> int:
        """b."""
        return batch_size(self.graph, self.cell)

    @property
    def seeds_of_step(self) -> int:
        """Of a batch on every rank."""
        return self.cell.pilot_ranks * self.batch_size

    def bulks(self) -> list[tuple[int, int]]:
        """As many as an epoch has batches for."""
        steps = len(self.seeds) // self.seeds_of_step
        return [(m, first) for m in SIZES for first in range(0, SIZES[-1], m) if first + m <= steps]

    def on_rank(self, comm: Communicator) -> tuple[float, list[tuple[float, dict[str, float]]]]:
        """Seconds of the set-up; of each bulk its seconds and the bytes received by phase."""
        algorithm, hubs = VARIANTS[self.variant]
        recorder = Recorder(comm, None)
        grid = sp.ProcessGrid(recorder, self.cell.replication)
        start = time.perf_counter()
        parts = ComparedGraph.from_graph(self.graph, grid, algorithm=algorithm, replicate_hubs=hubs or None)
        warm_up(parts, SAMPLERS[self.cell.sampler][0], self.seeds[: comm.size])
        set_up_seconds = time.perf_counter() - start
        return set_up_seconds, [self.bulk(grid, recorder, parts, *which) for which in self.bulks()]

    def bulk(
        self, grid: sp.ProcessGrid, recorder: Recorder, parts: sp.PartitionedGraph, m: int, first: int
    ) -> tuple[float, dict[str, float]]:
        """One bulk; the smallest ones with their features."""
        recorder.traffic.clear()
        sampler = SAMPLERS[self.cell.sampler][0]
        taken = self.seeds[first * self.seeds_of_step : (first + m) * self.seeds_of_step]
        seconds, bulk = timed(lambda: sp.bulk_sample(parts, taken, sampler, batch_size=self.batch_size))
        if self.variant == "column" and m == 1:
            x = np.zeros((self.graph.num_nodes, FEATURES), np.float32)
            fetch_features(grid, x, [minibatch.src_nodes for minibatch in bulk], m)
        return seconds, {name: float(one.bytes_received) for name, one in recorder.traffic.phases.items()}


def record_variant(graph: sp.Graph, cell: PilotCell, variant: str) -> dict[str, Any]:
    """Bytes received by phase and size, seconds of the set-up and of the bulks of each size."""
    pilots = Pilots(graph, cell, variant)
    ranks = run_threads(cell.pilot_ranks, pilots.on_rank, TIMEOUT)
    bulks = pilots.bulks()
    spreads = [spread_of([moved[at][1] for _, moved in ranks]) for at in range(len(bulks))]
    seconds = [max(moved[at][0] for _, moved in ranks) for at in range(len(bulks))]
    sizes = {}
    for m in SIZES:
        places = [at for at, (size, _) in enumerate(bulks) if size == m]
        if places:
            sizes[m] = {
                "first": spreads[places[0]],
                "mean": mean_of([spreads[at] for at in places]),
                "seconds": sum(seconds[at] for at in places),
                "bulks": len(places),
            }
    return {"b": pilots.batch_size, "sizes": sizes, "set_up_seconds": max(one for one, _ in ranks)}


def spread_of(ranks: list[dict[str, float]]) -> Phases:
    """Of the ranks' bytes by phase: the mean, and the most."""
    names = sorted(set().union(*ranks))
    by_name = {name: np.array([rank.get(name, 0.0) for rank in ranks], np.float64) for name in names}
    return {name: {"received_mean": one.mean(), "received_max": one.max()} for name, one in by_name.items()}


def mean_of(bulks: list[Phases]) -> Phases:
    """Of several bulks, by phase."""
    names = sorted(set().union(*bulks))
    nothing = {"received_mean": 0.0, "received_max": 0.0}
    return {
        name: {of: float(np.mean([bulk.get(name, nothing)[of] for bulk in bulks])) for of in nothing} for name in names
    }


# ------------------------------------------------------------------------------------------------ the present model


def predicted(graph: sp.Graph, cell: PilotCell) -> Iterator[dict[str, Any]]:
    """What the model says of bulks of each size from all pilots, and from a few."""
    sampler, b = SAMPLERS[cell.sampler][0], batch_size(graph, cell)
    seeds = np.flatnonzero(np.diff(graph.indptr))
    seconds, pilot = timed(lambda: sample_pilot(graph, seeds, sampler, batch_size=b, feature_bytes=4 * FEATURES))
    seconds_of_few, few = timed(lambda: sp.bulk_sample(graph, epoch(graph)[: FEW * b], sampler, batch_size=b))
    pilots = {"all": (seconds, pilot)}
    if len(few) < len(pilot.bulk):
        pilots["few"] = (seconds_of_few, replace(pilot, bulk=few))
    for variant in cell.variants:
        found = {name: predict_variant(one, cell, variant) for name, (_, one) in pilots.items()}
        took = {name: {"sampling": spent, "batches": len(one.bulk)} for name, (spent, one) in pilots.items()}
        yield {"variant": variant, "b": b, "pilots": found, "took": took, "peak": peak_bytes()}


def predict_variant(pilot: Pilot, cell: PilotCell, variant: str) -> dict[str, Any]:
    """Bytes by bulk size and phase; seconds of tallies, and of all predictions from them."""
    (algorithm, hubs), shape = VARIANTS[variant], GridShape(cell.ranks, cell.replication)
    profile, sampler = pilot.profile, pilot.sampler
    law, wire = sampler.draw_law(profile.weighting), WireWidths.of(profile.id_bytes, 0, profile.weighting)

    def tallied() -> GridPilot:
        return replace(pilot).on(shape, pilot.blocks(shape, hubs), with_stages=algorithm != "column")

    tally_seconds, grid_pilot = timed(tallied)

    def of_bulk(bulk_size: int) -> Phases:
        counts = grid_pilot.counts(bulk_size)
        traffic = bulk_traffic(counts, sampler, law, wire, algorithm, feature_bytes=profile.feature_bytes)
        names = sorted({one.recorded for one in traffic})
        sums = {name: np.sum([one.received for one in traffic if one.recorded == name], axis=0) for name in names}
        return spread_of([{name: float(one[rank]) for name, one in sums.items()} for rank in range(shape.ranks)])

    seconds, bulks = timed(lambda: {k: of_bulk(k) for k in BULK_SIZES})
    return {"bulks": bulks, "tally_seconds": tally_seconds, "seconds": seconds}


# ------------------------------------------------------------------------------------------------- the mixture alone


def distinct(graph: sp.Graph, cell: PilotCell) -> Iterator[dict[str, Any]]:
    """Of each layer but the seeds' own: distinct rows and their entries of few batches, and of other, many ones.

    Lines of `few` pilots say what the mixture fit makes of a number of batches; "counted" is what others have.
    """
    sampler, b = SAMPLERS[cell.sampler][0], batch_size(graph, cell)
    seeds = epoch(graph)
    others = seeds[keys.shuffle(len(seeds), 5, 0)]
    most = min(MOST_BATCHES, len(seeds) // b)
    pilots = layer_rows(graph, sp.bulk_sample(graph, seeds[: max(PILOTS) * b], sampler, batch_size=b))
    many = layer_rows(graph, sp.bulk_sample(graph, others[: most * b], sampler, batch_size=b, random_seed=5))
    for layer in range(1, len(pilots)):
        for things, weights in (("rows", None), ("entries", np.diff(graph.indptr))):
            counted = Visits(visited(graph, many[layer], weights))
            for few in PILOTS:
                visits = Visits(visited(graph, pilots[layer].first(few), weights))
                sizes = {m: visits.distinct(m) for m in (few // 4, few // 2, few)}
                beyond = {j: [visits.distinct(j), counted.distinct(j)] for j in (*BEYOND, most) if few < j <= most}
                yield {"layer": layer, "things": things, "few": few, "sizes": sizes, "beyond": beyond}


def visited(graph: sp.Graph, rows: LayerRows, weights: NDArray[Any] | None) -> NDArray[np.float64]:
    """Vertices, or their weights, by how many batches visited them."""
    times = np.bincount(rows.vertices, minlength=graph.num_nodes)
    return np.bincount(times, weights, len(rows.sources) + 1).astype(np.float64)


KINDS = {"recorded": recorded, "predicted": predicted, "distinct": distinct}


def main(what: str, folder: str, cell: str) -> None:
    """Print the lines of a cell."""
    one = PilotCell(**json.loads(cell))
    shown = {name: value for name, value in asdict(one).items() if name != "variants"}
    for line in KINDS[what](load(Path(folder)), one):
        print(json.dumps({"kind": what, **shown, **line}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
