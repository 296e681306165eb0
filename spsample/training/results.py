"""Results of training runs: `EpochRecord`, `TrainResult`, the summary of several, and times and traffic of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from spsample.comm import Communicator, Traffic
from spsample.comm.objects import all_gather_object
from spsample.common.checks import require_number, require_type
from spsample.features import CacheCounts
from spsample.training.metrics import METRICS

PHASES = ("sampling", "features", "waiting", "training", "evaluation")
"""Phases that the seconds of every run name."""


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: mean training loss, the metric on the validation vertices where evaluated, the learning rate."""

    epoch: int
    loss: float
    val: float | None = None
    learning_rate: float = 0.0


@dataclass(frozen=True)
class TrainResult:
    """The result of a training run.

    Attributes
    ----------
    dataset, sampler, metric
        Names of what was trained.
    val, test
        The metric of the weights that were best on the validation vertices, with full neighbourhoods, or with sampled
        ones where ``evaluation="sampled"``.
    best_epoch
        The epoch of these weights, from 0.
    num_parameters
        Of the model.
    seconds
        Time per phase: ``sampling`` and ``features`` (in threads beside the training where there is prefetch),
        ``waiting`` for these, ``training`` (forward, backward, step), ``evaluation``; with prefetch also how long the
        threads wait for each other, on several ranks how long each waits for others: `spsample.timeline.stage_times`.
    bayes_rate
        The best accuracy possible, where it is known.
    sampled
        ``val`` and ``test`` of the same weights with sampled neighbourhoods, where ``evaluation="both"``.
    settings
        Settings that decided the result: of data, sampler, model and optimisation.
    stopped_early
        True where patience ran out.
    history
        All epochs.
    cache
        Rows and bytes that cached features gave, as `CacheCounts` names them; None where none are cached. On several
        ranks, of this one.
    notes
        Choices made for the run, and other facts about it, in sentences.
    """

    dataset: str
    sampler: str
    metric: str
    val: float
    test: float
    best_epoch: int
    num_parameters: int
    seconds: dict[str, float]
    bayes_rate: float | None = None
    sampled: dict[str, float] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    stopped_early: bool = False
    history: list[EpochRecord] = field(default_factory=list)
    cache: dict[str, float] | None = None
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain Python values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainResult:
        """Return the result that `as_dict` was taken of; ``remarks`` of older files are its notes.

        Raises
        ------
        ValueError, KeyError, TypeError
            If it is not what a run has.
        """
        values = {"notes" if name == "remarks" else name: value for name, value in values.items()}
        result = cls(**{**values, "history": [EpochRecord(**record) for record in values["history"]]})
        if result.metric not in METRICS:
            raise ValueError(f"the metric {result.metric!r}")
        missing = {*PHASES} - {*result.seconds}
        if missing:
            raise ValueError(f"no seconds of {', '.join(sorted(missing))}")
        if result.cache is not None:  # older files do not name what came from other ranks
            counts: dict[str, Any] = result.cache
            result = replace(result, cache=CacheCounts(**counts).as_dict())
        if result.sampled is not None and {*result.sampled} != {"val", "test"}:
            raise ValueError(f"sampled {result.sampled}")
        return result


def total_seconds(results: Sequence[TrainResult]) -> dict[str, float]:
    """Return the seconds per phase, summed over runs; a phase that a run does not name counts as 0."""
    phases = {phase: None for result in results for phase in result.seconds}
    return {phase: sum(result.seconds.get(phase, 0.0) for result in results) for phase in phases}


def summary(results: Sequence[TrainResult]) -> dict[str, Any]:
    """Return runs and, of several, mean and standard deviation (with n - 1) of their scores, ready for JSON."""
    report: dict[str, Any] = {"runs": [result.as_dict() for result in results]}
    if len(results) > 1:
        scores = {name: np.array([getattr(result, name) for result in results]) for name in ("val", "test")}
        if all(result.sampled for result in results):
            scores |= {f"sampled_{name}": np.array([(r.sampled or {})[name] for r in results]) for name in scores}
        report["summary"] = {
            name: {"mean": float(values.mean()), "std": float(values.std(ddof=1))} for name, values in scores.items()
        }
    return report


# ---------------------------------------------------------------------------------------------------------- of ranks


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
        For each rank the rows and bytes that its cached features gave, as `CacheCounts` names them; empty where none
        are cached.
    """

    ranks: int
    backend: str
    seconds: dict[str, dict[str, float]]
    traffic: dict[str, dict[str, dict[str, float]]]
    total: dict[str, dict[str, float]] = field(default_factory=dict)
    cache: list[dict[str, float]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return asdict(self)


_COUNTS = ("bytes_sent", "bytes_received", "messages_sent", "messages_received")


def rank_summary(
    comm: Communicator, seconds: Mapping[str, float], cache: Mapping[str, float] | None = None
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
