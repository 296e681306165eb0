"""`bench/traffic_pilots.py`: pilots of a tiny graph, and what is made of them."""

from __future__ import annotations

import json

import pytest

import spsample as sp
from traffic_cells import Cell
from traffic_cells import modelled as counted_cell
from traffic_cells import recorded as recorded_cell
from traffic_pilot_cells import PilotCell, distinct, predicted, recorded
from traffic_pilots import (
    COUNTED,
    MODELS,
    ON_FEWER,
    RECORDED,
    bulk_of,
    distinct_rows,
    error,
    linear,
    power_law,
    predictions,
    saturating,
    summary_rows,
)

GRAPH = sp.load_dataset("rmat:9,8").graph
CELL = PilotCell("rmat:9,8", "GraphSAGE", 2, ["column", "stages"], ranks=4, pilot_ranks=4, batch_size=16)


def lines_of(what, cell):
    kind = {"recorded": recorded, "predicted": predicted, "distinct": distinct}[what]
    shown = {name: value for name, value in vars(cell).items() if name != "variants"}
    return [json.loads(json.dumps({"kind": what, **shown, **line})) for line in kind(GRAPH, cell)]


def test_all_predictions_of_a_tiny_bulk():
    cell = Cell("rmat:9,8", "GraphSAGE", 16, 2, "column", 4, 16)
    figures = [
        {"kind": "recorded", **vars(cell), **recorded_cell(GRAPH, cell)},
        {"kind": "modelled", **{**vars(cell), "variant": "all"}, **counted_cell(GRAPH, cell)},
    ]
    lines = lines_of("recorded", CELL) + lines_of("predicted", CELL)
    lines += lines_of("recorded", PilotCell(**{**vars(CELL), "ranks": 8}))  # stands for a larger grid
    found = predictions(lines, json.loads(json.dumps(figures)))
    (one,) = found.values()
    assert {*RECORDED, ON_FEWER, "model", COUNTED} <= set(one)
    assert all(abs(error(one, name)) < 0.2 for name in ("model", COUNTED, "linear, 4 a rank"))
    assert len(list(summary_rows(found, "received_mean"))) >= len(RECORDED) + len({"model"} & set(MODELS))


def test_a_bulk_as_large_as_the_pilots_is_as_recorded():
    line = lines_of("recorded", CELL)[0]
    made = bulk_of(line, 16, ((4, "mean"),), linear)
    assert made["rows"] == pytest.approx(line["sizes"]["4"]["mean"]["rows"])


@pytest.mark.parametrize("curve", [linear, power_law, saturating])
def test_what_grows_in_proportion_goes_on_to(curve):
    assert curve({1: 3.0, 2: 6.0, 4: 12.0}, 16) == pytest.approx(48)


@pytest.mark.parametrize("curve", [power_law, saturating])
def test_what_does_not_grow_stays(curve):
    assert curve({1: 3.0, 2: 3.0, 4: 3.0}, 16) == pytest.approx(3)


def test_distinct_rows_of_more_batches():
    lines = lines_of("distinct", PilotCell("rmat:9,8", "GraphSAGE", 1, [], batch_size=2))
    head, *rows = distinct_rows(lines)
    assert len(head) == len(rows[0])
    assert {few for few, *_ in rows} == {"8", "16", "64"}
