"""`bench/traffic.py`: one tiny cell of each kind, and what is made of the lines."""

from __future__ import annotations

import json

import pytest

import spsample as sp
from traffic import add, by_cell, cells, done, of_model, read, sampling_bytes, table
from traffic_cells import VARIANTS, Cell, modelled, recorded
from traffic_page import main, with_table


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


def test_the_page_gets_its_tables_and_keeps_the_rest(tmp_path):
    spread = {"received_mean": 3.0 * 2**20, "received_max": 4.0 * 2**20, "sent_mean": 0.0, "sent_max": 2**21}
    cell = {"graph": "g", "sampler": "GraphSAGE", "batches": 8, "replication": 1, "ranks": 4}
    phases = {"stages": {"rows": spread}, "column": {"rows": spread, "features": spread, "status": spread}}
    lines = [{"kind": "recorded", **cell, "variant": name, "phases": moved} for name, moved in phases.items()]
    lines.append({"kind": "modelled", **cell, "variant": "all", "variants": phases})
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    page = tmp_path / "page.md"
    marks = {name: f"<!-- {name} -->old<!-- end of {name} -->" for name in ("sampling", "features", "phases")}
    page.write_text("before\n{sampling}\nbetween\n{features}{phases}".format(**marks))
    main(tmp_path / "lines.jsonl", page)
    text = page.read_text()
    assert "| g | GraphSAGE | 8 | 1 |  | 3 | 3 | 3 | 3 |  |  | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 to 1.000 |" in text
    assert "| g | GraphSAGE | 1 | 3 | 4 | 2 | 0.75 | 1.000 |" in text
    assert "| features | 1 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 |" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert "\nbetween\n" in text
    with pytest.raises(SystemExit, match="0 places for a table 'features'"):
        with_table("", "features", "")
