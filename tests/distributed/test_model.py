"""The cost model: each formula by hand, counts against plain Python, predictions against counts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from counted_bulks import count_bulk
from hypothesis import given
from hypothesis import strategies as st
from own_samplers import NearUniform, SumSampler

import spsample as sp
from spsample.comm import Recorder, run_threads
from spsample.distributed import ProcessGrid
from spsample.distributed.placement import balanced
from spsample.errors import InputError
from spsample.features import PartitionedFeatures
from spsample.planning.cluster.counting import HopCounts, RankCounts
from spsample.planning.cluster.exchanges import (
    NETWORKS,
    BlockRows,
    GridShape,
    WireWidths,
    all_gather,
    answered,
    asked,
    broadcasts,
    grouped,
    header,
    hub_rows,
    network_named,
    parse_bandwidth,
    parse_seconds,
    reply,
    request,
    ring_reduction,
    row_gather,
    share_inside,
    stages_reply,
    stages_request,
    widths,
)
from spsample.planning.cluster.pilot import GridPilot, Visits, sample_pilot, scaled_pilot, seen
from spsample.planning.cluster.traffic import (
    asked_pairs,
    bulk_traffic,
    by_phase,
    column_law,
    column_law_reduction,
    drawn_columns,
    drawn_edges,
    entry_law,
    entry_law_reduction,
    extraction,
    features,
    gradients,
    graph_law,
    in_columns,
    masked_edges,
    named_rows,
    positions,
    row_law,
    row_law_reduction,
    src_sets,
)
from spsample.sparse import keys

GRAPH = sp.load_dataset("rmat:12,16").graph
SEEDS = np.arange(GRAPH.num_nodes)
SAMPLERS = {
    "blocks": sp.GraphSAGE([6, 4]),
    "subgraph": sp.GraphSAGE([6, 4], layout="subgraph"),
    "LADIES": sp.LADIES([48, 48]),
    "LADIES squared": sp.LADIES([48, 48], law="squared_count"),
    "FastGCN": sp.FastGCN([48, 48]),
}
samplers = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
shapes = st.sampled_from([(1, 1), (4, 1), (4, 2), (4, 4), (6, 2), (12, 3), (16, 4)]).map(lambda s: GridShape(*s))


def hop(**given):
    """A layer on a 2 x 1 grid: every count is 1 unless it is given."""
    square, line = np.ones((2, 2)), np.ones(2)
    counts = dict.fromkeys(
        ("pairs", "edges", "rows", "row_entries", "positions", "sums", "most_summed", "sources_by_range"), square
    )
    counts |= {
        "longest": square,
        "longest_edges": square,
        "gaps": line,
        "sources": line,
        "most_sources": 100,
        "group_rows": square,
        "group_entries": square,
    }
    counts |= dict.fromkeys(("stage_entries", "stage_most_summed", "stage_rows", "stage_edges"), line)
    return HopCounts(**{**counts, **{name: np.asarray(value, float) for name, value in given.items()}})


# ----------------------------------------------------------------------------------------------------------- the grid


def test_a_replication_that_does_not_divide_the_ranks_is_refused():
    with pytest.raises(InputError, match=r"replication: got c = 3 for p = 8 ranks.*Divisors of 8: 1, 2, 4, 8"):
        GridShape(8, 3)


@given(shapes, st.integers(0, 200))
def test_batches_of_all_ranks_are_the_bulk(shape, bulk_size):
    positions = np.arange(bulk_size) % shape.ranks
    assert shape.batches(bulk_size).tolist() == np.bincount(positions, minlength=shape.ranks).tolist()
    assert shape.group_batches(bulk_size).sum() == bulk_size


def test_block_rows_have_their_stage_in_one_column_each():
    assert GridShape(16, 2).stage_columns.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]  # 4 divides 16: p / c^2 = 4 each
    assert GridShape(6, 2).stage_columns.tolist() == [0, 1, 0]
    assert GridShape(4, 4).stage_columns.tolist() == [0]


# ------------------------------------------------------------------------------------------------------ the exchanges


@given(shapes, st.integers(0, 1000))
def test_what_is_asked_is_answered(shape, seed):
    needed = np.random.default_rng(seed).integers(0, 9, (shape.ranks, shape.num_blocks)).astype(float)
    out, back = asked(shape, needed), answered(shape, needed)
    for rank in range(shape.ranks):
        i, j = divmod(rank, shape.replication)
        assert out[rank] == sum(needed[rank, k] for k in range(shape.num_blocks) if k != i)
        column = [r for r in range(shape.ranks) if r % shape.replication == j and r != rank]
        assert back[rank] == sum(needed[r, i] for r in column)
    one, other = request("rows", shape, needed), reply("rows", shape, needed)
    assert one.sent.tolist() == other.received.tolist()
    assert one.sent.sum() == one.received.sum()


@given(shapes, st.integers(0, 1000))
def test_stages_send_what_is_received(shape, seed):
    needed = np.random.default_rng(seed).integers(0, 9, (shape.num_blocks, shape.num_blocks)).astype(float)
    one, other = stages_request("rows", shape, needed), stages_reply("rows", shape, needed)
    off_diagonal = needed.sum() - np.trace(needed)
    assert one.sent.sum() == one.received.sum() == other.sent.sum() == off_diagonal
    assert one.sent.tolist() == other.received.tolist()
    assert one.serial <= off_diagonal <= one.serial * shape.replication


def test_stages_by_hand():
    """4 x 2: block rows 0 and 1 in column 0, 2 and 3 in column 1."""
    needed = np.arange(16.0).reshape(4, 4)
    one = stages_reply("rows", GridShape(8, 2), needed)
    assert one.received.tolist() == [1, 5, 4, 13, 17, 11, 25, 14]
    assert one.sent.tolist() == [24, 0, 23, 0, 0, 22, 0, 21]
    assert one.serial == 47
    assert one.messages.tolist() == [3, 0, 3, 0, 0, 3, 0, 3]


def test_the_rank_that_broadcasts_sends_to_each_other():
    one = broadcasts("rows", GridShape(4, 2), np.array([10.0, 20.0]))  # block row 0 in column 0, 1 in column 1
    assert one.sent.tolist() == [10, 0, 0, 20]
    assert one.received.tolist() == [0, 20, 10, 0]
    assert one.serial == 20
    four = broadcasts("rows", GridShape(4), np.array([10.0, 20.0, 30.0, 40.0]))
    assert four.sent.tolist() == [30, 60, 90, 120]
    assert four.serial == 3 * 100  # two copies leave the root at once, then one of them goes on


def test_gathers_rings_and_headers():
    gathered = row_gather(GridShape(4, 2), np.array([1.0, 2.0, 3.0, 4.0]))
    assert gathered.received.tolist() == [2, 1, 4, 3]
    assert gathered.sent.tolist() == [1, 2, 3, 4]
    ring = ring_reduction("gradients", GridShape(8), 800)
    assert (ring.sent[0], ring.messages[0]) == (2 * 7 / 8 * 800, 14)
    before = header(GridShape(8, 2), 2)
    assert (before.sent[0], before.messages[0]) == (2 * 3 * 64, 6)
    assert all_gather("status", GridShape(8, 2), 1).sent[0] == 7 * 8
    assert gradients(GridShape(4), 100, 3).sent[0] == 3 * 150


# -------------------------------------------------------------------------------------------------------- the formulas


def counts_of(one, batches=(1, 1)):
    entries = np.ones(2), np.array([100.0, 100.0]), np.array([9.0, 9.0])
    return RankCounts(GridShape(2), np.array(batches), (one,), np.zeros((2, 2)), *entries)


def received(traffic, phase):
    """Of each rank."""
    return sum((one.received for one in traffic if one.recorded == phase), start=np.zeros(2))


def test_numbers_travel_in_as_many_bytes_as_they_need():
    assert widths(np.array([-1, 0, 255, 256, 65535, 65536, 2.0**33])).tolist() == [1, 1, 1, 2, 2, 4, 8]


def test_node_wise_by_hand():
    one, wire = hop(pairs=[[0, 10], [20, 0]], edges=[[0, 50], [100, 0]]), WireWidths(4)
    assert asked_pairs(one, np.array([3, 4]), wire).tolist() == [[48, 88], [144, 64]]
    assert drawn_edges(one, 15, wire).tolist() == [[0, 10 + 200], [20 + 400, 0]]
    assert drawn_edges(one, 300, wire)[0, 1] == 20 + 200
    assert drawn_edges(one, 15, WireWidths(8, weight_bytes=4, edge_id_bytes=8))[0, 1] == 10 + 50 * 20
    assert drawn_edges(one, 15, WireWidths.of(4, 0, "row"))[0, 1] == 10 * 9 + 200
    traffic = list(row_law(counts_of(one, (3, 4)), one, 15, wire))
    assert received(traffic, "rows requests").tolist() == [144, 88]
    assert received(traffic, "rows").tolist() == [210, 420]


def test_entry_law_by_hand():
    one = hop(
        rows=[[0, 10], [20, 0]], pairs=[[0, 300], [20, 0]], longest=[[0, 300], [9, 0]], positions=[[0, 7], [8, 0]]
    )
    assert named_rows(one, np.array([9, 8]), WireWidths(4)).tolist() == [[72, 10 * 6 + 72], [20 * 5 + 64, 64]]
    assert positions(one).tolist() == [[8, 7 * (2 + 2) + 8], [8 * (1 + 1) + 8, 8]]
    traffic = list(entry_law(counts_of(one), one, 5, WireWidths(4)))
    assert received(traffic, "positions").tolist() == [7 * 4, 8 * 4]
    assert received(traffic, "frontier").tolist() == [8 + 10 * 2, 8 + 20 * 1]  # with the rows' entry counts


def test_masked_extraction_by_hand():
    one = hop(sources=[30, 40], gaps=[200, 300], pairs=[[0, 5], [6, 0]], edges=[[0, 7], [8, 0]])
    assert src_sets(one).tolist() == [30, 80]
    assert masked_edges(one, WireWidths(4)).tolist() == [[0, 5 + 7], [6 + 8, 0]]
    assert masked_edges(hop(most_sources=257, longest_edges=300 * np.ones((2, 2))), WireWidths(4, 4))[0, 0] == 2 + 2 + 4


def test_extraction_takes_the_rows_where_they_are_cheaper():
    one = hop(rows=[[0, 1], [1, 0]], row_entries=[[0, 1000], [2, 0]], sources=[10, 10], pairs=[[0, 1], [1, 0]])
    traffic = list(extraction(counts_of(one), one, WireWidths(4), held=np.zeros((2, 2), bool)))
    # Rank 1 asks for the two entries: fewer bytes than its src vertices.
    assert received(traffic, "extraction requests")[::-1].tolist() == [8 + 1 + 10, 8 + 1]
    assert received(traffic, "extraction").tolist() == [1 + 1 + 1, 1 + 1 + 8]
    traffic = list(extraction(counts_of(one), one, WireWidths(4), held=np.ones((2, 2), bool)))
    assert received(traffic, "extraction").tolist() == [1, 1]


def test_column_law_takes_the_cheaper_of_rows_and_sums():
    one = hop(rows=[[0, 1], [1, 0]], row_entries=[[0, 100], [1, 0]], sums=[[0, 10], [9, 0]])
    traffic = list(column_law(counts_of(one), one, 5, WireWidths(4)))
    later = 2 * (2 + 5)
    assert 10 * 5 + later < 100 * 4
    assert received(traffic, "sums").tolist() == [1 + 1 + 10 * 5, 1 + 1 + 1 + 4]
    assert received(traffic, "sums requests").tolist() == [16, 16]
    assert received(traffic, "extraction")[1] == 1  # its rows are here


def test_graph_law_by_hand():
    one = hop(positions=[[0, 7], [8, 0]], sources_by_range=[[0, 3], [4, 0]])
    out, back = drawn_columns(counts_of(one), one)
    assert out.tolist() == [[8, 7 + 8], [8 + 8, 8]]
    assert back.tolist() == [[0, 7 * 11], [8 * 11, 0]]
    traffic = list(graph_law(counts_of(one), one, 5, WireWidths(4)))
    assert received(traffic, "columns").tolist() == [7 * 11 + 3 * 2, 8 * 11 + 4 * 2]


def test_stages_formulas_by_hand():
    one = hop(stage_entries=[100, 50], stage_rows=[10, 5], stage_edges=[20, 10], longest=[[300, 1], [1, 1]])
    counts = counts_of(one)
    assert row_law_reduction(counts, one, WireWidths(4)).tolist() == [10 * 2 + 400, 5 + 200]
    assert entry_law_reduction(counts, one, WireWidths(4)).tolist() == [10 * 2 + 400, 5 + 200]
    assert column_law_reduction(counts, one, WireWidths(4)).tolist() == [6 + 500 + 30, 6 + 250 + 15]


def test_what_a_row_group_has_in_a_column():
    shape = GridShape(8, 2)  # block rows 0 and 1 in column 0, 2 and 3 in column 1
    needed = np.arange(32.0).reshape(8, 4)
    group = grouped(shape, needed)
    assert group[0].tolist() == [4, 6, 8, 10]
    assert in_columns(shape, group)[:2].tolist() == [10, 18]
    assert in_columns(shape, group, np.maximum)[:2].tolist() == [6, 10]


def test_features_by_hand():
    inputs = np.array([[5.0, 7.0], [5, 7], [5, 7], [2, 3]])
    ids, rows, *_ = features(GridShape(4, 2), inputs, WireWidths(4), 400, 2)
    assert ids.sent.tolist() == [28, 28, 20, 8]
    assert rows.received.tolist() == [2800, 2800, 2000, 800]
    assert rows.sent.tolist() == [2000, 800, 2800, 2800]
    assert ids.messages.tolist() == [2, 2, 2, 2]


def test_the_remote_share_of_features_is_that_of_the_other_block_rows():
    counts = count_bulk(GRAPH, bulk_of(sp.GraphSAGE([6, 4]), 32), GridShape(8, 2))
    traffic = bulk_traffic(counts, sp.GraphSAGE([6, 4]), "row", WireWidths(4), feature_bytes=100)
    moved = sum(one.received.sum() for one in traffic if one.recorded == "features")
    assert moved == pytest.approx(100 * counts.inputs.sum() * (1 - 2 / 8), rel=0.02)


def test_an_unknown_algorithm_is_refused():
    counts = count_bulk(GRAPH, bulk_of(sp.GraphSAGE([6, 4]), 8), GridShape(2))
    with pytest.raises(InputError, match="algorithm: got 'other'; expected one of 'column', 'stages'"):
        bulk_traffic(counts, sp.GraphSAGE([6, 4]), "row", WireWidths(), "other")


@samplers
def test_only_the_status_is_exchanged_where_every_rank_holds_the_graph(sampler):
    recorded, modelled = bytes_received(GRAPH, sampler, (4, 4), "column")
    assert {name for name, found in recorded.items() if found.any()} == {"status"}
    assert modelled.keys() == {"status"}
    assert modelled["status"].tolist() == recorded["status"].tolist()


@pytest.mark.parametrize("c", [1, 2, 4])
def test_fetching_features_is_modelled_to_the_byte(c):
    shape, bulk = GridShape(4, c), bulk_of(sp.GraphSAGE([6, 4]), 10)

    def body(comm):
        recorder = Recorder(comm)
        x = PartitionedFeatures.of(np.zeros((GRAPH.num_nodes, 2), np.float32), ProcessGrid(recorder, replication=c))
        recorder.traffic.clear()
        for step in range(3):
            place = 4 * step + comm.rank
            x.gather(bulk[place].src_nodes if place < 10 else SEEDS[:0])
        return {name: counts.bytes_received for name, counts in recorder.traffic.phases.items()}

    recorded, modelled = run_threads(4, body), defaultdict(lambda: np.zeros(4))
    inputs = count_bulk(GRAPH, bulk, shape).inputs
    for one in features(shape, inputs, WireWidths(4), feature_bytes=8, steps=3):
        modelled[one.recorded] = modelled[one.recorded] + one.received
    for name in ("features requests", "features", "status"):
        assert modelled[name].tolist() == [rank.get(name, 0) for rank in recorded], name


@samplers
@pytest.mark.parametrize("algorithm", ["column", "stages", "oblivious"])
def test_what_is_sent_is_received(sampler, algorithm):
    counts = count_bulk(GRAPH, bulk_of(sampler, 20), GridShape(8, 2))
    law = sampler.draw_law("unweighted")
    for one in bulk_traffic(counts, sampler, law, WireWidths(), algorithm, feature_bytes=8, model_bytes=100):
        assert one.sent.sum() == pytest.approx(one.received.sum())


def test_owners_that_draw_send_less_than_rows():
    sampler = sp.GraphSAGE([6, 4])
    counts = count_bulk(GRAPH, bulk_of(sampler, 64), GridShape(8, 2))
    moved = {
        algorithm: sum(one.received.sum() for one in bulk_traffic(counts, sampler, "row", WireWidths(), algorithm))
        for algorithm in ("column", "stages", "oblivious")
    }
    assert moved["column"] < moved["stages"] < moved["oblivious"]


# ---------------------------------------------------------------------------------------------------------- the counts


def bulk_of(sampler, batches, random_seed=5):
    ids = SEEDS[keys.shuffle(len(SEEDS), random_seed, 0)[: 16 * batches]]
    return sp.bulk_sample(GRAPH, ids, sampler, batch_size=16, random_seed=random_seed)


def rows_of_layers(bulk, sampler):
    """For each layer, nearest the seeds first: position, vertex and sampled edges of each row."""
    for at in range(len(sampler.sizes)):
        found = []
        for position, minibatch in enumerate(bulk):
            layers = minibatch.layers[::-1]
            known = len(layers[at - 1].dst_nodes) if at and getattr(sampler, "layout", "") == "subgraph" else 0
            lengths = np.diff(layers[at].adj.indptr)
            pairs = list(zip(layers[at].dst_nodes.tolist(), lengths.tolist(), strict=True))[known:]
            found += [(position, vertex, length) for vertex, length in pairs]
        yield found


@samplers
@pytest.mark.parametrize("grid", [(4, 1), (8, 2), (6, 2)])
def test_counts_are_those_of_plain_python(sampler, grid):
    shape, bulk = GridShape(*grid), bulk_of(sampler, 18)
    law = sampler.draw_law("unweighted")
    starts = balanced(GRAPH.indptr, shape.num_blocks).bounds
    hubs = hub_rows(GRAPH, 20_000, 4)
    counts = count_bulk(GRAPH, bulk, shape, BlockRows(starts, hubs))
    degrees = GRAPH.in_degrees()
    p, c = grid
    assert 0 < len(hubs) < 100
    for found, one in zip(rows_of_layers(bulk, sampler), counts.hops, strict=True):
        pairs, edges, rows, groups, merged, stage = (defaultdict(float) for _ in range(6))
        distinct, united, columns, staged = set(), set(), set(), set()
        for position, vertex, length in found:
            if vertex in hubs:
                continue
            rank, owner = position % p, int(np.searchsorted(starts, vertex, side="right")) - 1
            pairs[rank, owner] += 1
            edges[rank, owner] += length
            distinct.add((rank, owner, vertex))
            united.add((rank // c, owner, vertex))
            around = GRAPH.indices[GRAPH.indptr[vertex] : GRAPH.indptr[vertex + 1]].tolist()
            columns |= {(position, owner, column) for column in around}
            j = int(shape.stage_columns[owner])
            staged |= {(position, j, column) for column in around}
            stage[(rank // c) * c + j] += len(around)
        for rank, owner, vertex in distinct:
            rows[rank, owner] += degrees[vertex]
        for group, owner, vertex in united:
            groups[group, owner] += degrees[vertex]
        for position, owner, _ in columns:
            merged[position % p, owner] += 1
        assert_equals(one.pairs, pairs)
        assert_equals(one.edges, edges)
        assert_equals(one.row_entries, rows)
        assert_equals(one.group_entries, groups)
        assert one.rows.sum() == len(distinct)
        assert one.group_rows.sum() == len(united)
        if law == "column":
            assert_equals(one.sums, merged)
        if law in ("row", "entry"):
            assert_equals(one.stage_entries[:, None], {(rank, 0): value for rank, value in stage.items()})
        elif law == "column":
            assert one.stage_entries.sum() == len(staged)


@samplers
@pytest.mark.parametrize(("grid", "hubs"), [((4, 1), 0), ((8, 2), 0), ((8, 2), 40_000)])
@pytest.mark.parametrize("weighting", ["unweighted", "row"])
def test_the_model_of_a_given_bulk_is_what_is_recorded(sampler, grid, hubs, weighting):
    """Every phase of algorithm="column" within 5 %, most of them to the byte; features of the batches, too.

    Owners answer with rows or with sums, whichever are fewer bytes; no part of these is near the break-even.
    """
    graph = GRAPH if weighting == "unweighted" else GRAPH.normalized("row")
    recorded, modelled = bytes_received(graph, sampler, grid, "column", hubs=hubs)
    assert {phase for phase, found in modelled.items() if found.any()} <= set(recorded)
    assert set(recorded) - {"totals", "totals requests"} <= set(modelled)  # of rounds of draws after the first
    for phase, found in recorded.items():
        expected = modelled[phase]
        if phase.startswith(("frontier", "rows", "features")) or phase == "extraction requests":
            assert found.tolist() == expected.tolist(), phase
        elif phase.startswith(("extraction", "sums")):
            assert expected == pytest.approx(found, rel=1e-9), phase
        elif phase not in ("status", "totals requests", "totals") and weighting == "unweighted":
            # Rounds of draws after the first add to all these; on a row-normalised graph there are many.
            assert expected.mean() == pytest.approx(found.mean(), rel=0.05), phase
            assert expected.max() == pytest.approx(found.max(), rel=0.1), phase


@pytest.mark.parametrize("own", [NearUniform([6, 4]), SumSampler([48, 48])], ids=repr)
@pytest.mark.parametrize("weighting", ["unweighted", "row"])
def test_the_model_knows_samplers_of_ones_own_by_what_they_state(own, weighting):
    test_the_model_of_a_given_bulk_is_what_is_recorded(own, (8, 2), 0, weighting)


def bytes_received(graph, sampler, grid, algorithm, batches=48, edge_ids=False, hubs=0):
    """By phase of each rank: recorded, and modelled of the same bulk. Features are fetched with "column"."""
    (p, c), seeds = grid, SEEDS[keys.shuffle(len(SEEDS), 3, 0)[: batches * 64]]
    options = {"batch_size": 64, "edge_ids": edge_ids}
    x = np.zeros((graph.num_nodes, 25 if algorithm == "column" else 0), np.float32)

    def body(comm):
        recorder = Recorder(comm)
        parts = ProcessGrid(recorder, replication=c)
        partitioned = sp.PartitionedGraph.from_graph(graph, parts, algorithm=algorithm, replicate_hubs=hubs or None)
        features = PartitionedFeatures.of(x, parts) if x.size else None
        sp.bulk_sample(partitioned, seeds[:64], sampler, batch_size=64)  # makes what is made once
        recorder.traffic.clear()
        for minibatch in sp.bulk_sample(partitioned, seeds, sampler, **options):
            if features is not None:
                features.gather(minibatch.src_nodes)
        return {name: counts.bytes_received for name, counts in recorder.traffic.phases.items()}

    ranks = run_threads(p, body)
    bulk = sp.bulk_sample(graph, seeds, sampler, batch_size=64)
    shape = GridShape(p, c)
    layout = BlockRows(balanced(graph.indptr, shape.num_blocks).bounds, hub_rows(graph, hubs, 4)) if hubs else None
    counts = count_bulk(graph, bulk, shape, layout, with_stages=algorithm != "column")
    modelled = defaultdict(lambda: np.zeros(p))
    wire = WireWidths.of(4, 0, graph.weighting, edge_ids=edge_ids)
    law, row_bytes = sampler.draw_law(graph.weighting), x.itemsize * x.shape[1]
    for one in bulk_traffic(counts, sampler, law, wire, algorithm, feature_bytes=row_bytes):
        modelled[one.recorded] = modelled[one.recorded] + one.received
    return {name: np.array([rank.get(name, 0) for rank in ranks]) for name in set().union(*ranks)}, modelled


@samplers
@pytest.mark.parametrize("algorithm", ["stages", "oblivious"])
@pytest.mark.parametrize("c", [1, 2, 4])
@pytest.mark.parametrize("edge_ids", [False, True])
def test_the_model_of_the_published_algorithms_is_what_is_recorded(sampler, algorithm, c, edge_ids):
    """Rows, what is asked for and what is put together within 5 % on every rank."""
    recorded, modelled = bytes_received(GRAPH, sampler, (8, c), algorithm, batches=20, edge_ids=edge_ids)
    assert {phase for phase, found in modelled.items() if found.any()} == set(recorded)
    for phase, found in recorded.items():
        draws = phase in ("columns", "columns requests")  # few of them, whose widths and rounds are not known
        assert modelled[phase].mean() == pytest.approx(found.mean(), rel=0.15 if draws or phase == "status" else 0.05)
        if not draws and phase != "status":
            assert modelled[phase] == pytest.approx(found, rel=0.05), phase
        if phase == "rows requests":
            assert modelled[phase].tolist() == found.tolist()


def assert_equals(array, cells):
    expected = np.zeros(array.shape)
    for cell, value in cells.items():
        expected[cell] = value
    assert np.array_equal(array, expected)


@samplers
@pytest.mark.parametrize(("grid", "batches"), [((8, 1), 8), ((8, 2), 64), ((4, 1), 128)])
@pytest.mark.parametrize("algorithm", ["column", "stages"])
def test_predictions_are_near_the_counts(sampler, grid, batches, algorithm):
    shape, law = GridShape(*grid), sampler.draw_law("unweighted")
    pilot = sample_pilot(GRAPH, SEEDS, sampler, batch_size=16)
    exact = count_bulk(GRAPH, bulk_of(sampler, batches), shape)
    predicted = GridPilot(pilot, shape).counts(batches)
    sums = []
    for counts in (exact, predicted):
        traffic = bulk_traffic(counts, sampler, law, WireWidths(), algorithm, feature_bytes=100)
        sums.append({phase: one.received_mean for phase, one in by_phase(traffic).items()})
    # The column law takes rows or sums, whichever is cheaper, and near the break-even it may be either.
    sums = [{"all": sum(one.values())} for one in sums] if law == "column" else sums
    tolerance = 0.25 if batches == 8 else 0.1  # eight batches of 16 seeds differ from other eight
    assert sums[1] == pytest.approx(sums[0], rel=tolerance, abs=100)


@samplers
@pytest.mark.parametrize("grid", [(8, 1), (8, 2)])
def test_ranks_differ_as_the_pilots_do_that_stand_for_their_batches(sampler, grid):
    """A bulk of as many batches as there are pilots: what adds up over batches is counted, not expected."""
    shape, pilot = GridShape(*grid), sample_pilot(GRAPH, SEEDS, sampler, batch_size=64)
    pilot = replace(pilot, bulk=bulk_of(sampler, 24))
    predicted, counted = GridPilot(pilot, shape).counts(24), count_bulk(GRAPH, pilot.bulk, shape)
    assert predicted.inputs == pytest.approx(counted.inputs)
    for one, other in zip(predicted.hops, counted.hops, strict=True):
        assert one.pairs == pytest.approx(other.pairs)
        assert one.edges == pytest.approx(other.edges)
        assert one.stage_edges == pytest.approx(other.stage_edges)
    twice = GridPilot(pilot, shape).counts(48)  # each pilot stands for two batches
    assert twice.inputs.sum(axis=0) == pytest.approx(2 * counted.inputs.sum(axis=0))


def test_a_scaled_pilot_predicts_the_larger_graph():
    """R-MAT of 2^14 vertices, from one of 2^12: batches of 64 seeds from batches of 16."""
    large, small = sp.load_dataset("rmat:14,16").graph, sp.load_dataset("rmat:12,17").graph
    sampler, shape = sp.GraphSAGE([6, 4]), GridShape(4)
    seeds = np.flatnonzero(large.in_degrees())
    sizes = {"num_nodes": large.num_nodes, "num_edges": large.num_edges, "num_seeds": len(seeds)}
    scaled = scaled_pilot(small, sampler, **sizes, batch_size=64)
    assert (scaled.scale, scaled.bulk.sampler, scaled.num_batches) == (4.0, sampler, -(-len(seeds) // 64))
    direct = sample_pilot(large, seeds, sampler, batch_size=64)
    for name, tolerance in {"pairs": 0.1, "edges": 0.1, "rows": 0.1, "row_entries": 0.2}.items():  # longest rows grow
        one, other = (getattr(GridPilot(pilot, shape).counts(16).hops[1], name).sum() for pilot in (scaled, direct))
        assert one == pytest.approx(other, rel=tolerance), name


def test_a_scaled_pilot_divides_layer_sizes():
    sizes = {"num_nodes": 4 * GRAPH.num_nodes, "num_edges": 4 * GRAPH.num_edges, "num_seeds": 4096}
    pilot = scaled_pilot(GRAPH, sp.LADIES([64, 32], law="squared_count"), **sizes, batch_size=64)
    assert pilot.bulk.sampler == sp.LADIES([16, 8], law="squared_count")
    assert pilot.sampler.sizes == (64, 32)


@given(st.lists(st.integers(0, 50), min_size=3, max_size=12), st.integers(0, 500))
def test_more_batches_visit_more(histogram, unvisited):
    visits = Visits(np.array([[0], *([f] for f in histogram)]), unvisited)
    found = [visits.distinct(j).sum() for j in range(3 * len(histogram))]
    assert all(after >= before - 1e-6 * (1 + before) for before, after in pairwise(found))
    assert found[-1] <= unvisited + sum(histogram) + 1e-6
    assert found[len(histogram)] == pytest.approx(sum(histogram))
    assert found[1] == pytest.approx(sum(f * h for f, h in enumerate(histogram, 1)) / len(histogram))


def test_unseen_vertices_are_extrapolated():
    rng = np.random.default_rng(0)
    rates = rng.beta(0.3, 20, 20000)
    times = (rng.random((20, len(rates))) < rates).sum(0)
    histogram = np.bincount(times, minlength=21)
    visits = Visits(histogram[:, None], histogram[0])
    for batches in (40, 100):
        assert visits.distinct(batches).sum() == pytest.approx((1 - (1 - rates) ** batches).sum(), rel=0.06)


def test_visits_by_block_row_add_up():
    histogram = np.array([[0, 0], [30, 10], [5, 20], [0, 4]])
    visits = Visits(histogram, 100)
    whole = Visits(histogram.sum(axis=1, keepdims=True), 100)
    for batches in (1, 2, 3, 9):
        assert visits.distinct(batches).sum() == pytest.approx(whole.distinct(batches).sum())
    assert visits.distinct(3).tolist() == pytest.approx([35, 34])
    assert seen(3, 3).tolist() == [1, 1, 1]


# ----------------------------------------------------------------------------------------------------------- the links


def test_links_are_parsed():
    assert parse_seconds("alpha", "2us") == 2e-6
    assert parse_bandwidth("bandwidth", "200Gbit/s") == 25e9
    links = network_named("perlmutter", "10us", "12.5GB/s")
    assert (links.between.alpha, links.between.beta) == pytest.approx((1e-5, 12.5e9))
    assert links.inside == NETWORKS["perlmutter"].inside
    for argument, text in (("alpha", "2"), ("alpha", "0us"), ("bandwidth", "25GB"), ("bandwidth", "fast")):
        with pytest.raises(InputError, match=f"{argument}: got '{text}'"):
            network_named("ethernet", **{argument: text})
    with pytest.raises(InputError, match="network: got 'token ring'; expected one of perlmutter, ethernet"):
        network_named("token ring")


def test_ranks_of_a_node_share_its_adapters():
    assert NETWORKS["perlmutter"].to_other_nodes(4).beta == 25e9
    assert NETWORKS["perlmutter"].to_other_nodes(8).beta == 12.5e9
    assert NETWORKS["ethernet"].to_other_nodes(1).beta == 3.125e9


def test_peers_on_the_same_node():
    shape = GridShape(16, 4)
    assert share_inside("row", shape, 4) == 1
    assert share_inside("column", shape, 4) == 0
    assert share_inside("column", shape, 8) == 1 / 3
    assert share_inside("all", shape, 8) == 7 / 15
    assert share_inside("ring", shape, 16) == 1


def test_seconds_by_hand():
    """Two ranks on two nodes: a message of 10 bytes either way takes alpha + 10 / beta."""
    links = network_named("ethernet", "1ms", "1kB/s")
    one = request("rows", GridShape(2), np.array([[0.0, 10.0], [10.0, 0.0]]))
    assert links.seconds(one, GridShape(2), 1) == pytest.approx(0.011)
    assert links.seconds(one.scaled(3), GridShape(2), 1) == pytest.approx(0.033)


def test_links_that_are_slower_both_ways():
    both = request("rows", GridShape(2), np.array([[0.0, 10.0], [10.0, 0.0]]))
    one_way = request("rows", GridShape(2), np.array([[0.0, 10.0], [0.0, 0.0]]))
    half = network_named("ethernet", "1ms", "1kB/s", duplex=0.5)
    assert half.seconds(both, GridShape(2), 1) == pytest.approx(0.021)
    assert half.seconds(one_way, GridShape(2), 1) == pytest.approx(0.011)
    with pytest.raises(InputError, match=r"duplex: got 1.4; expected a share above 0 and up to 1"):
        network_named("ethernet", duplex=1.4)
