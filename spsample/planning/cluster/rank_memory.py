"""Memory of a rank: its part of the graph and of the features, its bulks, and the buffers of exchanges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from math import sqrt

from spsample.planning.bulk_counts import BulkCounts, GraphProfile
from spsample.planning.bulk_plan import ORDER_BYTES, BulkPlan, feature_bytes_of, warm_up_divisor
from spsample.planning.cluster.exchanges import Exchange
from spsample.planning.cluster.grid_shape import GridShape
from spsample.planning.cluster.pilot import Pilot
from spsample.planning.cluster.rank_counts import RankCounts
from spsample.planning.loader_plan import FEATURE_BATCHES
from spsample.planning.scratch import host_scratch

COLUMN_BYTES = 12  # a column's share of a distribution of the whole graph


def memory_parts(
    profile: GraphProfile, counts: RankCounts, bulks: BulkPlan, traffic: Iterable[Exchange], *, hub_budget: int = 0
) -> dict[str, int]:
    """Bytes of the rank that needs most, by what they are for.

    Parameters
    ----------
    profile : GraphProfile
    counts : RankCounts
        Counts of a bulk.
    bulks : BulkPlan
        The plan of one rank (`bulk_plan_of_rank`).
    traffic : iterable of Exchange
        Exchanges of the bulk.
    hub_budget : int
        Bytes of hub rows that every rank holds.

    Returns
    -------
    dict
        "block row", "hub rows", "features", "bulks", "exchanges".
    """
    return {
        "block row": block_row_bytes(profile, counts),
        "hub rows": 0 if counts.shape.num_blocks == 1 else min(hub_budget, csr_bytes(profile, profile.num_edges, 0)),
        "features": feature_block_bytes(profile, counts.shape),
        "bulks": bulks.peak(int(counts.batches.max())),
        "exchanges": buffer_bytes(traffic, int(counts.batches.max())),
    }


def csr_bytes(profile: GraphProfile, entries: float, rows: float) -> int:
    """Entries, and where rows begin."""
    return round(entries * profile.entry_bytes + 8 * (rows + 1))


def block_row_bytes(profile: GraphProfile, counts: RankCounts) -> int:
    """The largest block row, and where each block row begins."""
    pairs = zip(counts.block_entries.tolist(), counts.block_rows.tolist(), strict=True)
    return max(csr_bytes(profile, entries, rows) for entries, rows in pairs) + 8 * (counts.shape.num_blocks + 1)


def feature_block_bytes(profile: GraphProfile, shape: GridShape) -> int:
    """Features of n over p/c vertices."""
    return -(-profile.num_nodes // shape.num_blocks) * profile.feature_bytes


def buffer_bytes(traffic: Iterable[Exchange], steps: int) -> int:
    """What a rank sends and receives in the largest exchange; features are exchanged a step at a time."""
    sizes = [0.0]
    for one in traffic:
        once = float((one.sent + one.received).max())
        sizes.append(once / max(steps, 1) if one.phase in ("features", "gradients") else once)
    return round(max(sizes))


def bulk_plan_of_rank(pilot: Pilot, shape: GridShape, *, prefetch: int, threads: int) -> BulkPlan:
    """The plan of one rank's bulks, from the pilots; its budget is not used.

    Parameters
    ----------
    pilot : Pilot
    shape : GridShape
    prefetch : int
        Bulks that a loader samples ahead.
    threads : int
        Threads of a rank.
    """
    counts = _scaled_counts(BulkCounts.of(pilot.bulk), pilot)
    batches = -(-pilot.num_batches // shape.ranks)
    profile = pilot.profile
    other_seeds = pilot.num_seeds - batches * pilot.batch_size
    of_graph = pilot.sampler.draw_law(profile.weighting) == "graph"
    distribution = COLUMN_BYTES * profile.num_nodes // shape.num_blocks if of_graph else 0
    return BulkPlan(
        memory_budget=1,
        num_batches=batches,
        batch_size=pilot.batch_size,
        counts=counts,
        held=max(prefetch, 1),
        warm_up=warm_up_divisor(prefetch),
        feature_bytes=feature_bytes_of(FEATURE_BATCHES, profile.feature_bytes, counts),
        kept_bytes=distribution + ORDER_BYTES * max(other_seeds, 0),
        pilot_seconds=pilot.seconds,
        id_bytes=profile.id_bytes,
        scratch=partial(host_scratch, profile, threads),
    )


def _scaled_counts(counts: BulkCounts, pilot: Pilot) -> BulkCounts:
    """Counts of batches of the graph and with the sampler that are planned for."""
    scaled = counts.scaled(counts.batches, pilot.scale)
    layers = tuple(
        replace(
            layer,
            largest_rows=round(layer.largest_rows * pilot.scale),
            largest_sources=round(layer.largest_sources * pilot.scale),
        )
        for layer in scaled.layers
    )
    return replace(scaled, sampler=pilot.sampler, layers=layers, spread=counts.spread / sqrt(pilot.scale))


__all__ = ["bulk_plan_of_rank", "memory_parts"]
