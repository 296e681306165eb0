"""The measurement itself: peers' processes, and the turns that the sides of a case take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from cases import PEERS, Case, Side
from process import PeerFailedError, PeerMissingError, PeerProcess
from report import Result, Turn, summary


class Peers:
    """The processes of all peers, each started when it is first needed; a context manager that ends them.

    `missing` says what could not be measured, and why.
    """

    def __init__(self, pythons: dict[str, str | None], inputs: dict[str, Any]) -> None:
        self.missing: list[str] = []
        self._pythons = pythons
        self._inputs = inputs
        self._processes: dict[tuple[str, str], PeerProcess | None] = {}
        self._versions: dict[str, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def get(self, module: str, side: str = "") -> PeerProcess | None:
        """The peer's process, or one for a side alone; a new one where the last has crashed; None: it is missing."""
        key = module, side
        process = self._processes.get(key)
        if key not in self._processes or (process is not None and process.has_ended):
            process = self._processes[key] = self._start(module, self._stack)
        return process

    def version(self, module: str) -> str:
        """The versions of the peer's packages, once it was started."""
        return self._versions.get(module, "")

    @contextmanager
    def fresh(self, module: str) -> Iterator[PeerProcess | None]:
        """Another process of the peer, for one run."""
        with ExitStack() as stack:
            yield self._start(module, stack)

    def drop_works(self) -> None:
        """Let all peers free what they prepared for a case, and end the processes of single sides."""
        for (module, side), process in list(self._processes.items()):
            if process is None or process.has_ended:
                continue
            if side:
                process.close()
                del self._processes[module, side]
            else:
                process.ask("drop")

    def _start(self, module: str, stack: ExitStack) -> PeerProcess | None:
        peer = PEERS[module]
        python = peer.interpreter(self._pythons)
        try:
            if python is None:
                raise PeerMissingError(peer.missing())
            process = stack.enter_context(PeerProcess(peer, python, self._inputs["threads"]))
        except PeerMissingError as error:
            self.missing.append(str(error))
            return None
        process.ask("open", **self._inputs)
        self._versions[module] = ", ".join(f"{package} {version}" for package, version in process.versions.items())
        return process


def measured(peers: Peers, case: Case, rounds: int, options: dict[str, Any]) -> dict[str, list[Turn]]:
    """As `measure`; where a peer fails, `peers.missing` says so, and the case has no turns."""
    try:
        return measure(peers, case, rounds, options)
    except PeerFailedError as error:
        peers.missing.append(f"{case.name}: missing ({error})")
        return {}
    finally:
        peers.drop_works()


def measure(peers: Peers, case: Case, rounds: int, options: dict[str, Any]) -> dict[str, list[Turn]]:
    """The turns of each side that could be measured: `rounds` rounds after a warm-up that is discarded."""
    if case.fresh:
        return _measure_fresh(peers, case)
    options = {**options, **_counted(peers, case)}
    ready = [side for side in case.sides if _prepare(peers, case, side, options)]
    turns: dict[str, list[Turn]] = {}
    for round_ in range(rounds + 1):
        done = run_round(peers, case, ready)
        ready = [side for side in ready if side.name in done]
        turns = {side.name: [*turns.get(side.name, []), done[side.name]] for side in ready} if round_ else {}
    return turns


def run_round(peers: Peers, case: Case, sides: list[Side]) -> dict[str, Turn]:
    """One turn of each side; without those whose peer fails, which `peers.missing` then names."""
    turns = {}
    for side in sides:
        process = _process_of(peers, case, side)
        try:
            if process is not None:
                turns[side.name] = _run(process, side)
        except PeerFailedError as error:
            peers.missing.append(f"{case.name}, {side.name}: missing ({error})")
    return turns


def _measure_fresh(peers: Peers, case: Case) -> dict[str, list[Turn]]:
    """One turn of each side, in a process that did nothing before."""
    turns = {}
    for side in case.sides:
        with peers.fresh(side.peer) as process:
            if process is None:
                continue
            process.ask("prepare", name=side.name, task=side.task, options=side.options)
            turns[side.name] = [_run(process, side)]
    return turns


def _counted(peers: Peers, case: Case) -> dict[str, float]:
    """The figures of the case's `count`."""
    if case.count is None:
        return {}
    process = peers.get(case.count.peer)
    if process is None:
        return {}
    process.ask("prepare", name=case.count.name, task=case.count.task, options=case.count.options)
    figures = _run(process, case.count).figures
    process.ask("drop")
    return figures


def _prepare(peers: Peers, case: Case, side: Side, options: dict[str, Any]) -> bool:
    """Whether the side can be measured; else `peers.missing` says why."""
    process = _process_of(peers, case, side)
    if process is None:
        return False
    try:
        process.ask("prepare", name=side.name, task=side.task, options={**options, **side.options})
    except PeerFailedError as error:
        peers.missing.append(f"{case.name}, {side.name}: missing ({error})")
        return False
    return True


def _process_of(peers: Peers, case: Case, side: Side) -> PeerProcess | None:
    return peers.get(side.peer, side.name if case.apart else "")


def _run(process: PeerProcess, side: Side) -> Turn:
    return Turn(**process.ask("run", name=side.name))


def results_of(peers: Peers, case: Case, graph: str, turns: dict[str, list[Turn]]) -> list[Result]:
    """A result for each side that was measured."""
    return [
        Result(
            graph=graph,
            case=case.name,
            side=side.name,
            peer=PEERS[side.peer].title,
            version=peers.version(side.peer),
            baseline=case.baseline,
            **summary(turns[side.name], turns.get(case.baseline)),
        )
        for side in case.sides
        if side.name in turns
    ]
