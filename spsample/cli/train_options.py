"""The options of ``spsample train``: parsed once, on each rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from spsample.cli import sampling
from spsample.cli.options import overridden
from spsample.cli.ranks import check_rank_options
from spsample.errors import InputError
from spsample.settings import Preset, RankOptions, Recording, Runs, SamplerChoice, TrainConfig, preset_for
from spsample.settings.training import PIPELINES

SETTINGS = (SamplerChoice, Preset, Runs, Recording, RankOptions)
"""The dataclasses that declare the options of `train`."""


class Command(NamedTuple):
    """The parameters of the command that are no settings."""

    dataset: str
    out: str | None
    resume: str | None
    as_json: bool


@dataclass(frozen=True)
class TrainOptions:
    """The settings of the command, parsed once.

    Attributes
    ----------
    sampler
        Its name.
    general
        What was given, and the defaults of a data set without a preset.
    preset
        Of the data set's name, a function: what was given takes the place of what is in it.
    """

    sampler: str
    runs: Runs
    recording: Recording
    ranks: RankOptions
    general: Preset
    preset: Callable[[str], Preset]

    @classmethod
    def parsed(cls, typed: Mapping[str, Any], command: Command, num_ranks: int) -> TrainOptions:
        """Refuse what cannot be used, and options that would have no effect."""
        sampler = overridden(SamplerChoice(), typed).sampler
        sampling.require_sampler_options(sampler, typed["fanouts"], typed["layer_sizes"])
        general = overridden(Preset(), typed)
        train, ranks = general.train, overridden(RankOptions(), typed)
        if num_ranks > 1 and PIPELINES[train.pipeline].whole_graph and typed["partitioned"] is None:
            ranks = replace(ranks, partitioned=False)
        options = cls(
            sampler,
            overridden(Runs(), typed),
            overridden(Recording(), typed),
            ranks,
            general,
            lambda name: overridden(preset_for(name), typed),
        )
        options._check(command, typed)
        resumes_local = command.resume is not None and ranks.partition is not None  # other batches are refused later
        shared = "cooperative" if train.shares_batches else train.batches
        check_rank_options(ranks, num_ranks, "local" if resumes_local else shared)
        return options

    def _check(self, command: Command, typed: Mapping[str, Any]) -> None:
        if self.runs.all_splits and self.runs.split is not None:
            given_split = f"{self.runs.split} with --all-splits"
            raise InputError(argument="split", given=given_split, expected="one of the two")
        if command.resume is not None and (command.out or typed["config"]):
            expected = "the folder of a run alone"
            raise InputError(argument="--resume", given="it with --out or --config", expected=expected)
        if self.recording.tensorboard and not (command.out or command.resume):
            raise InputError(argument="--tensorboard", given="it without --out", expected="a folder for the files")
        if self.recording.tensorboard:
            from spsample.training.callbacks import require_tensorboard

            require_tensorboard()  # before there is a folder

    @property
    def notes(self) -> list[str]:
        """Sentences about options that have no effect."""
        train = self.general.train
        if train.cache_budget is not None:
            return []
        idle = {
            "--cache-score": train.cache_score != TrainConfig.cache_score,
            "--cache-replacement": train.cache_replacement != TrainConfig.cache_replacement,
        }
        return [f"{option} has no effect without --cache-budget" for option, is_given in idle.items() if is_given]
