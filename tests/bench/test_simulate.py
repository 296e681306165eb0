"""`bench.simulate`: what is exact to the byte, the error of the rest, and cells that do not fit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import spsample as sp
from spsample.bench.simulate import (
    PARTS,
    Setting,
    assumptions,
    error,
    model_bytes,
    pilot_like,
    simulate,
    step_seconds,
    validate,
)
from spsample.errors import InputError
from spsample.planning.cluster import Link, network_named, sample_pilot

GRAPH = sp.load_dataset("rmat:11,16").graph
SEEDS = np.arange(32 * 32)
PILOT = sample_pilot(GRAPH, SEEDS, sp.GraphSAGE([6, 4]), batch_size=32, feature_bytes=40)
SETTING = Setting(bulk_size=16, hidden=8, classes=3, recorded_bulks=2)


def of(rows, phase):
    (found,) = [row for row in rows if row["phase"] == phase]
    return found


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([6, 4]), sp.LADIES([48, 48])], ids=repr)
def test_predicted_bytes_are_near_recorded_ones(sampler):
    pilot = sample_pilot(GRAPH, SEEDS, sampler, batch_size=32, feature_bytes=40)
    rows = validate(pilot, SETTING, ranks=[8], replications=[1, 2])
    cells = {(row["ranks"], row["replication"], row["algorithm"]) for row in rows}
    assert cells == {(p, c, one) for p in (8,) for c in (1, 2) for one in ("column", "stages")}
    assert {row["part"] for row in rows} == {*PARTS, "epoch"}
    assert all(row["recorded"] > 0 for row in rows if row["part"] == "epoch")
    assert max(abs(row["error"]) for row in rows) < 0.05
    for cell in cells:
        parts = [row for row in rows if (row["ranks"], row["replication"], row["algorithm"]) == cell]
        sums = {row["part"]: row["recorded"] for row in parts}
        assert sums.pop("epoch") == pytest.approx(sum(sums.values()))


@pytest.mark.parametrize("c", [1, 2, 4])
def test_what_does_not_depend_on_the_batches_is_exact(c):
    rows = simulate(PILOT, SETTING, ranks=[4], replications=[c], algorithms=["column"])
    assert {row["source"] for row in rows} == {"recorded"}
    # 32 batches on 4 ranks are 8 steps; 10 x 8 and 8 x 3 weights, twice, and as many biases
    assert model_bytes(PILOT, SETTING) == 4 * (2 * 10 * 8 + 8 + 2 * 8 * 3 + 3) == 876
    gradients = of(rows, "gradients")
    assert gradients["received"] == gradients["predicted"] == 8 * 2 * 3 * 876 / 4
    assert gradients["messages"] == 8 * 2 * 3
    assert gradients["message_bytes"] == 876 / 4
    status = of(rows, "status")
    # two bulks: three headers of 64 bytes to all, and one to the column group before each of four exchanges and at the
    # end; each of eight steps two headers of its end, and two of its exchanges
    to_all = 2 * 3 + 8 * (4 if c < 4 else 2)
    assert status["received"] == status["predicted"] == 64 * (3 * to_all + 2 * 5 * (4 // c - 1))


def test_beyond_the_recorded_ranks_rows_are_the_models():
    setting = replace(SETTING, most_recorded=4)
    rows = simulate(PILOT, setting, ranks=[4, 32], replications=[2])
    assert {row["ranks"]: row["source"] for row in rows} == {4: "recorded", 32: "predicted"}
    assert all(row["received"] == row["predicted"] for row in rows if row["ranks"] == 32)
    recorded, predicted = (
        simulate(PILOT, replace(SETTING, most_recorded=p), ranks=[4], replications=[2]) for p in (4, 3)
    )
    assert [row["seconds"] for row in recorded] == [row["seconds"] for row in predicted]
    assert [row["predicted"] for row in recorded] == [row["predicted"] for row in predicted]
    assert simulate(PILOT, replace(SETTING, memory_here=1), ranks=[4], replications=[2]) == predicted


def test_only_divisors_of_p_are_cells():
    rows = simulate(PILOT, replace(SETTING, most_recorded=0), ranks=[6, 32], replications=[1, 3, 4])
    assert {(row["ranks"], row["replication"]) for row in rows} == {(6, 1), (6, 3), (32, 1), (32, 4)}


def test_a_cell_that_does_not_fit_says_what_it_needs():
    setting = replace(SETTING, memory_per_rank=1 << 20)
    (row,) = simulate(PILOT, setting, ranks=[4], replications=[1], algorithms=["column"])
    assert not row["fits"]
    assert row["memory_bytes"] > 1 << 20
    assert row["refusal"].startswith("a bulk of 16 takes")
    assert (row["phase"], row["seconds"], row["largest_bulk_size"]) == ("", 0.0, 0)
    assert validate(PILOT, setting, ranks=[4]) == []


def test_slower_links_between_nodes_take_longer_and_say_so():
    slow = replace(network_named("perlmutter"), name="slow", between=Link(alpha=1e-3, beta=1e6))
    quick, late = (
        simulate(PILOT, replace(SETTING, network=one, most_recorded=0), ranks=[16], replications=[2])
        for one in (SETTING.network, slow)
    )
    for row, other in zip(quick, late, strict=True):
        assert (row["received"], row["messages"]) == (other["received"], other["messages"])
    assert sum(row["seconds"] for row in late) > 10 * sum(row["seconds"] for row in quick)
    alone = simulate(PILOT, replace(SETTING, network=slow, ranks_per_node=16, most_recorded=0), ranks=[16])
    assert sum(row["seconds"] for row in alone if row["replication"] == 2) < sum(row["seconds"] for row in late)
    text = "\n".join(assumptions(PILOT, replace(SETTING, network=slow)))
    for words in (
        "alpha = 1000 us, beta = 0.001 GB/s",
        "alpha = 2 us, beta = 100 GB/s",
        "k: 16",
        "Inside of a node, 4 ranks",
    ):
        assert words in text


def test_propagation_is_as_long_as_the_work_of_a_batch_takes():
    layers = [[mb.layers[place].adj for mb in PILOT.bulk] for place in (0, 1)]
    dst = [np.mean([len(adj.indptr) - 1 for adj in one]) for one in layers]
    edges = [np.mean([len(adj.indices) for adj in one]) for one in layers]
    setting = replace(SETTING, flops=2.0, memory_bandwidth=5.0)
    operations = 4 * (10 * 8 * dst[0] + 8 * 3 * dst[1])
    moved = 4 * (10 * edges[0] + 8 * edges[1])
    assert step_seconds(PILOT, setting) == pytest.approx(3 * (operations / 2 + moved / 5))


def test_stages_move_more_bytes_the_more_replication_and_owners_fewer(monkeypatch):
    """On a graph of the size of Products; stages take less time meanwhile."""
    monkeypatch.setattr("spsample.bench.simulate.load_dataset", lambda spec: SimpleNamespace(graph=GRAPH))
    pilot = pilot_like("products", sp.GraphSAGE([15, 10, 5]))
    assert (pilot.profile.num_nodes, pilot.num_batches, pilot.scale > 1) == (2_400_000, 196, True)
    rows = simulate(pilot, Setting(bulk_size=196), ranks=[64], replications=[1, 4])
    assert {row["source"] for row in rows} == {"predicted"}
    moved = {
        (name, c): sum(row["received"] for row in rows if (row["algorithm"], row["replication"]) == (name, c))
        for name in ("stages", "column")
        for c in (1, 4)
    }
    assert moved["stages", 4] > moved["stages", 1]
    assert moved["column", 4] < moved["column", 1]
    seconds = [
        sum(row["seconds"] for row in rows if (row["algorithm"], row["replication"]) == ("stages", c)) for c in (1, 4)
    ]
    assert seconds[1] < seconds[0]


def test_errors_are_relative():
    assert [error(*pair) for pair in ((105, 100), (0, 0), (1, 0))] == [pytest.approx(0.05), 0.0, np.inf]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"setting": replace(SETTING, bulk_size=0)}, "bulk_size: got 0"),
        ({"ranks": [0]}, "ranks: got 0"),
        ({"replications": [0]}, "replication: got 0"),
        ({"algorithms": ["rows"]}, "algorithm: got 'rows'; expected one of 'column', 'stages'"),
    ],
)
def test_what_cannot_be_simulated_is_refused(given, words):
    with pytest.raises(InputError, match=words):
        simulate(PILOT, **{"setting": SETTING, "ranks": [4], **given})


def test_a_graph_that_is_not_in_the_table_is_refused():
    with pytest.raises(InputError, match="name: got 'product'; expected one of products, protein, papers"):
        pilot_like("product", sp.GraphSAGE([2]))
