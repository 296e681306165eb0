"""Gathering feature rows: spsample, NumPy and torch, beside what the memory of the machine gives.

Each size of row is read from a table far beyond the caches, at random places. All sides of a case take turns, round
after round; the first round is a discarded warm-up. Each call has ids of its own, and before it more other memory is
read than the caches hold, so that no side finds rows there to which others have brought them. The limit reads as many
random rows whole, and writes nothing. Beside the time on the clock there is that of the processors, of all threads
together, which other work on the machine changes less.

Of float32 there are cached features, too, which keep a random half of the rows: with ids of which none, half and all
hit.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from figures import pyplot
from limits import Memory, NoCompilerError
from machine_facts import beyond_caches, machine_facts
from spsample import _core
from spsample.features import CachedFeatures, FeatureStore
from spsample.features.formats import BFloat16, Float, Int8, RowFormat
from spsample.features.gathering import row_reader
from spsample.features.places import place_bytes

FORMS = ("float32", "float16", "bfloat16", "int8")
BASELINE = "spsample"
AS_STORED = "spsample, out, as stored"
"""What sides that do not convert are compared with."""
Ids = NDArray[np.int64]
Call = Callable[[Ids], object]
_BETWEEN = 1 << 29
"""Bytes that are read before the same ids are gathered again: more than the caches hold."""
_OF_BEYOND = 8
"""Of the bytes that are far beyond the caches, the part that is read before each call."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of the table and of the result as float32, and how often each side is measured."""

    table: int
    result: int
    rounds: int


@dataclass(frozen=True)
class Result:
    """One side of a case: medians over rounds, of seconds and of the ratio to spsample's in the same round.

    That is `baseline`, which converts numbers where the side does. `gigabytes_per_second` counts the rows as they are
    read. `processor_` fields: of the time of all threads together.
    """

    form: str
    row_bytes: int
    rows: int
    side: str
    threads: int
    instruction_set: str
    baseline: str
    seconds: float
    gigabytes_per_second: float
    over_spsample: float
    least_over_spsample: float
    most_over_spsample: float
    processor_seconds: float
    processor_over_spsample: float
    processor_least_over_spsample: float
    processor_most_over_spsample: float


class _Taken(NamedTuple):
    """Seconds of one call."""

    wall: float
    processor: float


class Case:
    """Rows of one form and size, and what gathers them."""

    def __init__(self, form: str, row_bytes: int, sizes: Sizes, memory: Memory | None) -> None:
        rng = np.random.default_rng(0)
        self.form, self.row_bytes = form, row_bytes
        self._format = _format(form, row_bytes)
        dim = row_bytes // self._format.dtype.itemsize
        self.count = min(sizes.result // (4 * dim), 1 << 20)
        self._x = np.ones((sizes.table // row_bytes, dim), self._format.dtype)
        self._ids = _Turns(rng, np.arange(len(self._x)), self)
        self._rng, self._memory = rng, memory

    def sides(self) -> dict[str, Call]:
        """What takes turns. Those "as stored" do not convert to float32."""
        reader, dim = row_reader(self._x, self._format), self._x.shape[1]
        wide, stored = np.zeros((self.count, dim), np.float32), np.zeros((self.count, dim), self._x.dtype)
        sides: dict[str, Call] = {
            BASELINE: reader.gather,
            "spsample, out": lambda ids: reader.gather(ids, out=wide),
            "np.take" if self.form == "float32" else "np.take, as stored": lambda ids: np.take(self._x, ids, axis=0),
        }
        if self.form != "float32":
            sides[AS_STORED] = lambda ids: reader.gather(ids, out=stored)
        if self.form in ("float16", "int8"):
            sides["np.take, then float32"] = lambda ids: np.take(self._x, ids, axis=0).astype(np.float32)
        sides |= _torch_sides(self._x, self.count, self.form)
        if self._memory is not None and self.row_bytes % 8 == 0:
            sides["limit: random rows read"] = lambda _: self._memory.read_random_rows(self.row_bytes, self.count)
        return sides

    def calls(self) -> dict[str, Callable[[], object]]:
        """The sides with their ids."""
        calls = {name: partial(self._turn, side, self._ids) for name, side in self.sides().items()}
        return calls | (self._cached_calls() if self.form == "float32" else {})

    def _cached_calls(self) -> dict[str, Callable[[], object]]:
        num_rows = len(self._x)
        is_kept = self._rng.random(num_rows) < 0.5
        room = int(is_kept.sum()) * self.row_bytes + place_bytes(num_rows)
        cached = CachedFeatures(FeatureStore(self._x), room, is_kept)
        ids = {
            "all hit": np.flatnonzero(is_kept),
            "half hit": np.arange(num_rows),
            "none hit": np.flatnonzero(~is_kept),
        }
        turns = {name: _Turns(self._rng, some, self) for name, some in ids.items()}
        return {f"cached, {name}": partial(self._turn, cached.gather, some) for name, some in turns.items()}

    @staticmethod
    def _turn(side: Call, ids: _Turns) -> object:
        return side(next(ids))

    def measure(self, sizes: Sizes) -> list[Result]:
        """All sides in turn, round after round."""
        calls = self.calls()
        other = np.ones(beyond_caches(0) // _OF_BEYOND, np.uint8)
        rounds = [{name: _taken(call, other) for name, call in calls.items()} for _ in range(sizes.rounds + 1)][1:]
        return [self._result(name, rounds) for name in calls]

    def _result(self, side: str, rounds: list[dict[str, _Taken]]) -> Result:
        seconds, processor = (statistics.median(times) for times in zip(*(one[side] for one in rounds), strict=True))
        baseline = AS_STORED if side.endswith("as stored") else BASELINE
        over = [one[side].wall / one[baseline].wall for one in rounds]
        processor_over = [one[side].processor / one[baseline].processor for one in rounds]
        return Result(
            form=self.form,
            row_bytes=self.row_bytes,
            rows=self.count,
            side=side,
            threads=_core.get_num_threads(),
            instruction_set=_core.instruction_set(),
            baseline=baseline,
            seconds=seconds,
            gigabytes_per_second=self.count * self.row_bytes / seconds / 1e9,
            over_spsample=statistics.median(over),
            least_over_spsample=min(over),
            most_over_spsample=max(over),
            processor_seconds=processor,
            processor_over_spsample=statistics.median(processor_over),
            processor_least_over_spsample=min(processor_over),
            processor_most_over_spsample=max(processor_over),
        )


class _Turns:
    """Random ids of some rows: other ones in each call, until more has been read than the caches hold."""

    def __init__(self, rng: np.random.Generator, rows: Ids, case: Case) -> None:
        count = min(2 + _BETWEEN // (case.count * case.row_bytes), 16)
        self._ids = cycle([rng.choice(rows, case.count) for _ in range(count)])

    def __next__(self) -> Ids:
        return next(self._ids)


def _format(form: str, row_bytes: int) -> RowFormat:
    if form == "int8":
        return Int8(np.full(row_bytes, 127.0))
    return BFloat16() if form == "bfloat16" else Float(form)


def _torch_sides(x: NDArray[Any], count: int, form: str) -> dict[str, Call]:
    """`index_select` into new memory, into the same memory each time, and with the conversion to float32 after it."""
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(_core.get_num_threads())
    rows = torch.from_numpy(x)
    rows = rows.view(torch.bfloat16) if form == "bfloat16" else rows
    stored = torch.empty((count, x.shape[1]), dtype=rows.dtype)
    wide = torch.empty(stored.shape)

    def converted(ids: Ids) -> None:
        torch.index_select(rows, 0, torch.from_numpy(ids), out=stored)
        wide.copy_(stored)

    kind = "" if form == "float32" else ", as stored"
    sides: dict[str, Call] = {
        f"index_select{kind}": lambda ids: torch.index_select(rows, 0, torch.from_numpy(ids)),
        f"index_select, out{kind}": lambda ids: torch.index_select(rows, 0, torch.from_numpy(ids), out=stored),
    }
    return sides if form == "float32" else {**sides, "index_select, out, then float32": converted}


def _taken(call: Callable[[], object], other: NDArray[np.uint8]) -> _Taken:
    other.max()  # reads it
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return _Taken(time.perf_counter() - wall, time.process_time() - processor)


def table(results: list[Result]) -> Table:
    """A row for each side of each case."""
    made = Table(
        "form", "bytes of a row", "side", "ms", "GB/s of rows read", "time over spsample", "processor time over it"
    )
    for one in results:
        over = f"{one.over_spsample:.2f} ({one.least_over_spsample:.2f} to {one.most_over_spsample:.2f})"
        spread = f"{one.processor_least_over_spsample:.2f} to {one.processor_most_over_spsample:.2f}"
        rate, processor = f"{one.gigabytes_per_second:.1f}", f"{one.processor_over_spsample:.2f} ({spread})"
        made.add_row(one.form, str(one.row_bytes), one.side, f"{one.seconds * 1e3:.2f}", rate, over, processor)
    return made


def plot(results: list[Result], path: Path) -> None:
    """GB/s against the bytes of a row: a panel for each form, a line for each side."""
    plt = pyplot()
    if plt is None:
        return
    forms = list(dict.fromkeys(one.form for one in results))
    size = (1 + 4.5 * len(forms), 4.5)
    figure, panels = plt.subplots(1, len(forms), figsize=size, layout="constrained", squeeze=False)
    for axes, form in zip(panels.flat, forms, strict=True):
        of_form = [one for one in results if one.form == form]
        for side in dict.fromkeys(one.side for one in of_form):
            line = [one for one in of_form if one.side == side]
            style = (
                {"color": "grey", "linestyle": "--"} if side.startswith("limit") else {"marker": "o", "markersize": 4}
            )
            axes.plot([one.row_bytes for one in line], [one.gigabytes_per_second for one in line], label=side, **style)
        axes.set(title=form, xscale="log", ylim=0, xlabel="bytes of a row", ylabel="GB/s of rows read")
        axes.legend(fontsize="x-small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def features(
    form: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(FORMS)}; all, by default.")] = None,
    row_bytes: Annotated[list[int] | None, typer.Option(help="[64 128 256 400 512 1024 2048 4096]")] = None,
    table_bytes: Annotated[int, typer.Option(help="Of the rows that are read from.")] = 1 << 30,
    result_bytes: Annotated[int, typer.Option(help="Of the result, as float32.")] = 64 << 20,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 15,
    threads: Annotated[int, typer.Option(help="Of every side.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder of features.jsonl and features.png.")] = Path("bench/results"),
) -> None:
    """Gathering feature rows of several types and sizes: spsample, NumPy, torch and the memory."""
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before OpenMP is loaded: threads that wait take no time
    sizes = Sizes(table_bytes, result_bytes, rounds)
    _core.set_num_threads(threads)
    memory = _memory(sizes, threads, console)
    results = []
    for one in form or FORMS:
        for size in row_bytes or (64, 128, 256, 400, 512, 1024, 2048, 4096):
            results += Case(one, size, sizes, memory).measure(sizes)
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(threads)}, *({"kind": "result", **asdict(one)} for one in results)]
    (out / "features.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    console.print(table(results))
    plot(results, out / "features.png")


def _memory(sizes: Sizes, threads: int, console: Console) -> Memory | None:
    try:
        return Memory(sizes.table, threads)
    except NoCompilerError as error:
        console.print(f"limit: missing ({error})", markup=False)
        return None
