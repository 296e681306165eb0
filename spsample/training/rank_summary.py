"""Times and traffic of a run on several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spsample.comm import Communicator, Traffic
from spsample.comm.objects import all_gather_object
from spsample.common.checks import require_number, require_type


@dataclass(frozen=True)
class RankSummary:
    """Times and traffic of a run on all ranks: ``max`` and ``mean`` of each number.

    Attributes
    ----------
    ranks : int
        p.
    backend : str
        What moved the bytes.
    seconds : dict
        By phase of the training.
    traffic : dict
        By phase of the communication, largest first: ``bytes_sent``, ``bytes_received``, ``messages_sent`` and
        ``messages_received``; empty where they were not counted.
    total : dict
        The same of all phases together: the largest sum of a rank, and the mean.
    cache : list of dict
        For each rank the rows and bytes that its cached features gave: ``hits``, ``misses``, ``hit_bytes`` and
        ``miss_bytes``; empty where none are cached.
    """

    ranks: int
    backend: str
    seconds: dict[str, dict[str, float]]
    traffic: dict[str, dict[str, dict[str, float]]]
    total: dict[str, dict[str, float]] = field(default_factory=dict)
    cache: list[dict[str, int]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return asdict(self)


_COUNTS = ("bytes_sent", "bytes_received", "messages_sent", "messages_received")


def rank_summary(
    comm: Communicator, seconds: Mapping[str, float], cache: Mapping[str, int] | None = None
) -> RankSummary:
    """Put together what each rank measured: its seconds by phase, and the traffic if it counted any; collective.

    `cache` is what cached features gave on this rank. Traffic is counted by a `spsample.comm.Recorder`: give one as the
    communicator that graph and features lie on.

    Examples
    --------
    >>> from spsample.comm import Recorder, run_threads
    >>> def body(comm):
    ...     recorder = Recorder(comm)
    ...     recorder.barrier(phase="example")
    ...     return rank_summary(recorder, {"training": 1.0 + comm.rank})
    >>> summary = run_threads(2, body)[0]
    >>> summary.seconds, summary.traffic["example"]["bytes_sent"]
    ({'training': {'max': 2.0, 'mean': 1.5}}, {'max': 1.0, 'mean': 1.0})
    """
    require_type("comm", comm, Communicator, "an spsample Communicator")
    require_type("seconds", seconds, Mapping, "seconds by phase")
    for phase, value in seconds.items():
        require_number(f"seconds[{phase!r}]", value, lambda x: x >= 0, "seconds")
    traffic: Traffic | None = getattr(comm, "traffic", None)
    counted = {} if traffic is None else {phase: asdict(counts) for phase, counts in traffic.phases.items()}
    facts = (dict(seconds), counted, None if cache is None else dict(cache))
    times, traffics, caches = zip(*all_gather_object(comm, facts), strict=True)
    phases = {phase for traffic in traffics for phase in traffic}
    traffic_by_phase = {phase: _counts([traffic.get(phase, {}) for traffic in traffics]) for phase in phases}
    sums = [{name: sum(phase.get(name, 0) for phase in traffic.values()) for name in _COUNTS} for traffic in traffics]
    by_bytes = sorted(traffic_by_phase, key=lambda phase: (-traffic_by_phase[phase]["bytes_sent"]["mean"], phase))
    return RankSummary(
        ranks=comm.size,
        backend=comm.name,
        seconds={phase: _over([seconds.get(phase, 0.0) for seconds in times]) for phase in times[0]},
        traffic={phase: traffic_by_phase[phase] for phase in by_bytes},
        total=_counts(sums) if traffic_by_phase else {},
        cache=[counts for counts in caches if counts is not None],
    )


def _counts(ranks: list[dict[str, int]]) -> dict[str, dict[str, float]]:
    return {name: _over([float(rank.get(name, 0)) for rank in ranks]) for name in _COUNTS}


def _over(values: list[float]) -> dict[str, float]:
    return {"max": max(values), "mean": sum(values) / len(values)}
