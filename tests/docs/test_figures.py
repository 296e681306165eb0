"""The pictures of the documentation that are drawn by code."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from jobs import run_ranks

from spsample.settings.training import PIPELINES
from spsample.store import to_scipy

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"


def script(name):
    spec = spec_from_file_location(name, FIGURES / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["architecture", "five_lines", "process_grid", "speed"])
def test_is_drawn(name, tmp_path):
    script(name).main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert (FIGURES / f"{name}.png").is_file()


def test_pipelines_have_pictures():
    page = (ROOT / "docs" / "pipelines.md").read_text("utf-8")
    drawn = script("pipelines").PIPELINES
    assert {*drawn} <= {*PIPELINES}
    for name in drawn:
        assert f"**{name}**" in page
        assert f"(figures/pipelines_{name}.png)" in page
        assert (FIGURES / f"pipelines_{name}.png").is_file()


@pytest.mark.slow
def test_pipelines_are_drawn(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pipelines = script("pipelines")

    def traced(pipeline, job, folder):
        trace = folder / f"{pipeline}.json"
        more = "--pipeline", pipeline, "--trace", trace
        done = run_ranks("gloo", 2, "-m", "spsample.cli.main", "train", *job, *more)
        assert done.returncode == 0, done.stderr
        return trace

    monkeypatch.setattr(pipelines, "traced", traced)
    job = "planted:400", "--batch-size", "16", "--fanouts", "3,2", "--hidden", "8", "--epochs", "1"
    pipelines.main(tmp_path, job, (1, 3))
    pictures = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert pictures.keys() == {f"pipelines_{name}.png" for name in pipelines.PIPELINES}
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())


def test_five_lines_shows_what_was_sampled():
    """GraphSAGE draws 2 neighbours for each seed, LADIES 2 for each batch, all of them where P is not 0."""
    five_lines = script("five_lines")
    A = five_lines.graph()
    neighbours = to_scipy(A).toarray()
    seeds = np.concatenate(five_lines.SEEDS)
    for sampler, Q in zip((five_lines.sp.GraphSAGE, five_lines.sp.LADIES), five_lines.selectors(), strict=True):
        drawn = five_lines.drawn(A, sampler, len(Q)).fill
        assert drawn.sum(axis=1).tolist() == [2] * len(Q)
        assert (neighbours.T @ Q.T).T[drawn > 0].all()
        assert np.flatnonzero(Q.sum(axis=0)).tolist() == sorted(seeds)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_pages_say_what_the_plot_shows(page):
    speed = script("speed")
    times, text = speed.seconds(), (ROOT / page).read_text("utf-8")
    for group in speed.GROUPS:
        ours, other = times[group.case, group.ours], times[group.case, group.other]
        assert f"{1e3 * ours:.1f}" in text
        assert f"{1e3 * other:.0f} ms" in text
