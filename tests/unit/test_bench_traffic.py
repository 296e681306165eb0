"""`bench/traffic.py`: one tiny cell of each kind, and what is made of the lines."""

from __future__ import annotations

import json

import spsample as sp
from traffic import add, by_cell, cells, done, of_model, read, sampling_bytes, table
from traffic_cells import VARIANTS, Cell, modelled, recorded


def test_a_tiny_cell_is_recorded_and_modelled(tmp_path):
    graph, lines = sp.load_dataset("rmat:9,8").graph, tmp_path / "traffic.jsonl"
    chosen = (["rmat:9,8"], ["LADIES norm"], [8], [2], ["stages", "column"], 4, 16)
    for what, cell in cells(*chosen):
        found = {"recorded": recorded, "modelled": modelled}[what](graph, cell)
        add(lines, json.loads(json.dumps({"kind": what, **vars(cell), **found})))
    assert set(cells(*chosen)) == done(lines)
    (variants,) = by_cell(read(lines), "recorded").values()
    (model,) = by_cell(read(lines), "modelled").values()
    assert all(sampling_bytes(line["phases"]) > 0 for line in variants.values())
    assert all(0.8 < ratio < 1.25 for ratio in of_model(model["all"], "stages", variants["stages"]).values())
    assert table(read(lines)).row_count == 1


def test_variants_of_the_reduction_are_stages_where_there_is_none():
    alone, two = ([cell.variant for what, cell in cells(["g"], ["s"], [8], [c], VARIANTS, 4, 0)] for c in (1, 2))
    assert "stages-split" not in alone
    assert two == [*VARIANTS, "all"]
    line = {"kind": "recorded", "graph": "g", "sampler": "GraphSAGE", "batches": 8, "replication": 1, "phases": {}}
    found = by_cell([{**line, "variant": "stages"}], "recorded")
    assert found["g", "GraphSAGE", 8, 1]["stages-split"]["variant"] == "stages"
    assert Cell("g", "s", 8, 1, "all").ranks == 16
