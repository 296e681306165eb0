"""Draws architecture.png: the rooms of the package on their floors, and which imports which, read from the code."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import grimp
import matplotlib
from importlinter.api import read_configuration

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "spsample"
WIDTH, HEIGHT = 2.7, 0.62
BLUE, INK, GREY, LINES, PAPER = "#2468b0", "#1f2937", "#6b7280", "#9aa3b2", "#eef3fa"


class Room(NamedTuple):
    """A package or module directly in the root package: its floor from the ground, place on it, files and lines."""

    name: str
    floor: int
    place: tuple[float, float]
    files: int
    lines: int


def floors() -> list[list[str]]:
    """Names of the rooms, the ground floor first, as the contract that is checked by import-linter states them."""
    contract = read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"][0]
    return [[name.strip(" ()") for name in floor.split("|")] for floor in reversed(contract["layers"])]


def rooms() -> dict[str, Room]:
    """Every room with its place."""
    found = {}
    for number, names in enumerate(floors()):
        for i, name in enumerate(names):
            x = (i - (len(names) - 1) / 2) * (WIDTH + 0.6)
            files = sorted((PACKAGE / name).rglob("*.py")) or [PACKAGE / f"{name}.py"]
            lines = sum(len(file.read_text("utf-8").splitlines()) for file in files)
            found[name] = Room(name, number, (x, number), len(files), lines)
    return found


def imports() -> dict[str, set[str]]:
    """For each room the rooms that it imports, without those that one of them imports in turn."""
    graph = grimp.build_graph("spsample", exclude_type_checking_imports=True, cache_dir=None)
    direct: dict[str, set[str]] = {name: set() for name in rooms()}
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            room, used = (name.split(".")[1] if "." in name else "" for name in (module, other))
            if room in direct and used in direct and room != used:
                direct[room].add(used)
    below = {name: _reached(direct, name) for name in direct}
    return {
        name: {one for one in used if not any(one in below[other] for other in used)} for name, used in direct.items()
    }


def _reached(direct: dict[str, set[str]], name: str) -> set[str]:
    reached: set[str] = set()
    for one in direct[name]:
        reached |= {one} | _reached(direct, one)
    return reached


def summary(name: str) -> str:
    """First sentence of a room's docstring."""
    folder = PACKAGE / name
    file = folder / "__init__.py" if folder.is_dir() else PACKAGE / f"{name}.py"
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return text.splitlines()[0]


def main(path: Path | None = None) -> None:
    """One box a room, floor by floor; an arrow for each import that no other one implies."""
    placed, used = rooms(), imports()
    figure, axes = plt.subplots(figsize=(8.2, 8.6), layout="constrained")
    for name, room in placed.items():
        x, y = room.place
        corner = (x - WIDTH / 2, y - HEIGHT / 2)
        style = {"boxstyle": "round,pad=0,rounding_size=0.08", "facecolor": PAPER, "edgecolor": BLUE, "linewidth": 1}
        axes.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, zorder=2, **style))
        axes.text(x, y + 0.1, name, ha="center", va="center", fontsize=11, color=INK, zorder=3, weight="bold")
        size = f"{room.files} files, {room.lines:,} lines" if room.files > 1 else f"{room.lines:,} lines"
        axes.text(x, y - 0.14, size, ha="center", va="center", fontsize=7.5, color=GREY, zorder=3)
        for other in used[name]:
            begin, end = (x, y - HEIGHT / 2), (placed[other].place[0], placed[other].place[1] + HEIGHT / 2)
            bend = 0.0 if room.floor - placed[other].floor == 1 else 0.18
            arrow = {"arrowstyle": "-|>", "color": LINES, "linewidth": 1.1, "connectionstyle": f"arc3,rad={bend}"}
            axes.annotate("", end, begin, arrowprops=arrow, zorder=1)
    most = max(abs(room.place[0]) for room in placed.values()) + WIDTH / 2 + 0.3
    axes.set(xlim=(-most, most), ylim=(-0.6, max(room.floor for room in placed.values()) + 0.6))
    axes.axis("off")
    figure.savefig(path or Path(__file__).with_suffix(".png"), dpi=130)


if __name__ == "__main__":
    main()
