"""Papers name cases, parameters and sides that there are; one of them runs to its page."""

from __future__ import annotations

import pytest

pytest.importorskip("pandas", reason="the extra spsample[bench]")

from click.testing import CliRunner

from spsample.bench.case import declared, names_in
from spsample.bench.command import bench
from spsample.bench.paper import Figure, Paper

PAPERS = names_in("papers")


def test_there_are_five():
    assert PAPERS == ["data_tiering", "gnnlab", "pagraph", "song_jiang", "tripathy"]


@pytest.mark.parametrize("name", PAPERS)
def test_figures_name_what_there_is(name):
    for figure in declared("papers", name).figures:
        case = declared("cases", figure.case)
        assert set(figure.parameters) | set(figure.quick) <= set(case.parameters)
        assert all(any(side.name.startswith(one) for side in case.sides) for one in figure.sides)
        assert figure.ranks == (1,) or case.ranks
        for plot in figure.plots:
            names = {plot.x} if isinstance(plot.x, str) else set(plot.x)
            assert names - {"side", "ranks"} <= set(case.parameters)


def test_a_paper_runs_to_its_page(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "spsample.bench.paper.declared", lambda room, name: PAPER if room == "papers" else declared(room, name)
    )
    done = CliRunner().invoke(bench, ["paper", "any", "--quick", "--graph", "rmat:8,8", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "any" / "report.html").read_text()
    assert "Figure 1" in page
    assert "01/caches_of_parts.jsonl:2" in page


PAPER = Paper("A paper", (Figure("Figure 1", "Hits.", "caches_of_parts", quick={"trainers": (2,)}, sides=("whole",)),))
