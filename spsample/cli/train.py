"""``spsample train``: data set, sampler and settings from the command line to a trained model.

Parameters of the command are what it trains on and where its output goes; all else is a field of a dataclass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from spsample.backends import get_backend
from spsample.cli import sampling
from spsample.cli.config import set_defaults, write_config
from spsample.cli.options import AsJson, listed, overridden, with_options, written
from spsample.cli.progress import print_note, print_progress
from spsample.cli.ranks import RanksData, abort_on_error, note_ignored_options
from spsample.cli.report import print_phases, print_plan, print_ranks, print_results
from spsample.cli.resuming import resume_hint_on_exit
from spsample.cli.screen import print_json, print_line, print_message
from spsample.cli.train_options import SETTINGS, Command, TrainOptions
from spsample.comm.launch import detect
from spsample.common.options import values_of
from spsample.errors import DataError, InputError
from spsample.settings import Preset, RankOptions, Runs, SamplerChoice, differing

if TYPE_CHECKING:
    from spsample.comm import Communicator
    from spsample.data import Dataset
    from spsample.timeline import Timeline
    from spsample.training import Trainer, TrainResult
    from spsample.training.runs import RunFolder


def _resume(ctx: typer.Context, value: str | None) -> str | None:
    """Take the settings of the run that is resumed for defaults."""
    if value is not None:
        config = Path(value) / "config.toml"
        if not config.is_file():
            raise DataError(argument="--resume", given=f"{value!r}, without config.toml", expected="a folder of --out")
        set_defaults(ctx, config)
    return value


_DATASET = (
    "digits or another name (cora, reddit, ogbn-arxiv, ...), a store, a path ending in .npz, rmat:SCALE,EDGE_FACTOR or "
    "planted:NODES[,DEGREE[,CLASSES[,NOISE]]]"
)


@with_options(*SETTINGS, preset=differing())
def train(
    typed: dict[str, Any],
    dataset: Annotated[str, typer.Argument(help=_DATASET)] = "digits",
    out: Annotated[
        str | None,
        typer.Option(help="Folder for settings, metrics, checkpoint, results and figures.", rich_help_panel="Run"),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            callback=_resume,
            is_eager=True,
            help="Go on with the run in this folder, with its settings; with more --epochs it gets longer.",
            rich_help_panel="Run",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a graph neural network on bulk-sampled minibatches.

    Settings not given come from the configuration file, then from the preset of the data set's name (of a file: its
    name without .npz). There are presets for digits, planted, tolokers, planetoid_cora and planetoid_citeseer, and a
    general one for all others; the settings used are printed. Accuracy is computed with all neighbours, of the weights
    that were best on the validation vertices.

    Under mpirun, srun, torchrun or `spsample launch` all ranks train one model, each step on a batch of each rank;
    graph and features are partitioned over them unless told otherwise. Data sets that are no stores are made one by
    rank 0, in a temporary folder. The options of ranks have no effect on one.

    Examples
    --------
    * `spsample train digits`
    * `spsample train planetoid_cora.npz --sampler ladies --layer-sizes 256,256 --repeats 10`
    * `spsample train tolokers.npz --all-splits --json`
    * `spsample train digits --model gat --heads 8 --patience 10 --schedule cosine`
    * `spsample train digits --out runs/a --checkpoint-minutes 5`, and after a crash `spsample train --resume runs/a`
    * `spsample train --config configs/digits.toml --lr 0.01`
    * `spsample launch -n 4 train digits --replication 2`, or `mpirun -n 4 spsample train my-store`
    * `mpirun -n 8 spsample train my-store --replication 2 --partition parts.npy`, see `spsample partition`
    * `spsample train planted:20000 --rewire` (control: no model can learn this one)
    """
    from spsample.comm import Recorder, init

    ranks = overridden(RankOptions(), {"backend_comm": typed["backend_comm"]})  # all else is checked on ranks together
    comm = Recorder(init(ranks.backend_comm))
    with abort_on_error(comm):
        _train(comm, typed, Command(dataset, out, resume, as_json))
    comm.close()


def _train(comm: Communicator, typed: Mapping[str, Any], command: Command) -> None:
    """The command, on these ranks."""
    from spsample.comm import collective

    with collective(comm):
        options = TrainOptions.parsed(typed, command, comm.size)
    if comm.size == 1:
        note_ignored_options(options.ranks)
    if comm.rank == 0:
        for note in options.notes:
            print_note(note)
    with _timeline(comm, options.recording.trace) as timeline, _ranks_data(comm, options.ranks) as ranks:
        job = _Job.of(command, options, comm, ranks, timeline)
        with collective(comm):
            folder = _run_folder(job)
        results: list[TrainResult] = []
        for name, data, seed in job.runs():
            below = folder if len(job) == 1 or folder is None else folder.below(name)
            results.append(_one_run(job, data, seed, below, results))
    if timeline is not None and comm.rank == 0:
        _print_timeline(timeline, quiet=command.as_json)
    _report(job, folder, results)


@contextmanager
def _timeline(comm: Communicator, path: str | None) -> Iterator[Timeline | None]:
    """The timeline of --trace, written when the runs are over; collective."""
    from spsample.comm import collective
    from spsample.timeline import Timeline
    from spsample.timeline.timeline import require_writable

    if path is None:
        yield None
        return
    with collective(comm):
        if comm.rank == 0:
            require_writable("--trace", Path(path))
    with Timeline(path, comm) as timeline:
        yield timeline


def _print_timeline(timeline: Timeline, *, quiet: bool) -> None:
    """Print the path of the timeline, and the number of spans that are not in it."""
    if timeline.is_written and not quiet:
        print_progress(f"timeline: {timeline.path}, for https://ui.perfetto.dev or chrome://tracing")
    if timeline.is_written and timeline.left_out:
        print_note(f"the disk was full: {timeline.left_out:,} spans are not in {timeline.path}")


@contextmanager
def _ranks_data(comm: Communicator, options: RankOptions) -> Iterator[RanksData | None]:
    """Around a command: the loader of data sets on several ranks; None on one."""
    if comm.size == 1:
        yield None
        return
    ranks = RanksData(comm, options)
    try:
        yield ranks
    finally:
        ranks.close()


def _report(job: _Job, folder: RunFolder | None, results: list[TrainResult]) -> None:
    """Write and print what came of all runs: rank 0."""
    from spsample.training.results import rank_summary, summary, total_seconds

    ranks = rank_summary(job.comm, total_seconds(results), _cached(results)) if job.comm.size > 1 else None
    if job.comm.rank != 0:
        return
    if folder is not None and (len(results) > 1 or not folder.has_figures):
        folder.finish(results)
    if job.command.as_json:
        print_json(summary(results) if ranks is None else {**summary(results), "ranks": ranks.as_dict()})
        return
    if ranks is None:
        print_phases(results)
    else:
        print_ranks(ranks)
    print_results(results)
    if folder is not None:
        _print_folder(folder)


def _print_folder(folder: RunFolder) -> None:
    """Print the contents of a run's folder, and a hint where figures are missing."""
    print_line(f"{folder.path}: {', '.join(folder.contents)}")
    if find_spec("matplotlib") is None:
        print_message(
            "no figures without matplotlib: pip install matplotlib, and "
            f"'spsample train --resume {folder.path}' draws them"
        )


def _cached(results: list[TrainResult]) -> dict[str, int] | None:
    """Return the counts of cached features, summed over the runs; None where none are cached."""
    counts = [result.cache for result in results if result.cache is not None]
    return {name: sum(count[name] for count in counts) for name in counts[0]} if counts else None


@dataclass(frozen=True)
class _Job:
    """A training: the options, the preset with those that were given, and the ranks."""

    command: Command
    options: TrainOptions
    first: _Loaded
    preset: Preset
    comm: Communicator
    ranks: RanksData | None
    timeline: Timeline | None

    @classmethod
    def of(
        cls,
        command: Command,
        options: TrainOptions,
        comm: Communicator,
        ranks: RanksData | None,
        timeline: Timeline | None,
    ) -> _Job:
        from spsample.comm import collective

        random_seed = options.general.train.random_seed
        first = _load(ranks, command.dataset, options.runs.split or 0, random_seed)
        with collective(comm):
            preset = options.preset(first.dataset.name)
        return cls(command, options, first, preset, comm, ranks, timeline)

    @property
    def settings(self) -> dict[str, Any]:
        """Options that would give the same runs again, under the names that files of settings have."""
        unused = "layer_sizes" if self.options.sampler == "graphsage" else "fanouts"
        values = values_of(self.preset) | {
            "sampler": self.options.sampler,
            "backend": get_backend(self.preset.train.backend).name,
        }
        values |= {
            name: value for name, value in vars(self.options.runs).items() if value is not None and value is not False
        }
        values.pop(unused)
        return {**written(SETTINGS, values), "dataset": self.command.dataset}

    @property
    def parts(self) -> dict[str, Any]:
        """Options by which seeds are local to ranks, as files of settings have them; empty where none are."""
        if self.ranks is None or self.preset.train.batches != "local":
            return {}
        values = {name: getattr(self.options.ranks, name) for name in ("partitioned", "replication", "partition")}
        return written([RankOptions], {name: value for name, value in values.items() if value is not None})

    def __len__(self) -> int:
        runs = self.options.runs
        return runs.repeats * (self.first.dataset.num_splits if runs.all_splits else 1)

    def runs(self) -> Iterator[tuple[str, _Loaded, int]]:
        """Name, data set and random seed of each run."""
        start, path, first = self.preset.train.random_seed, self.command.dataset, self.first.dataset
        splits = range(first.num_splits) if self.options.runs.all_splits else [first.split]
        for split in splits:
            for seed in range(start, start + self.options.runs.repeats):
                same = split == first.split and seed == start
                data = self.first if same else _load(self.ranks, path, split, seed)
                yield f"split-{split}-seed-{seed}", data, seed

    def trainer(self, data: _Loaded, seed: int) -> Trainer:
        """Everything for one run."""
        from spsample.training import Trainer

        config = replace(self.preset.train, random_seed=seed)
        prepare = partial(
            _prepare,
            scaling=self.preset.scaling,
            metric=self.options.runs.metric,
            rewire_seed=seed if self.options.runs.rewire else None,
        )
        ready = prepare(data.dataset) if self.ranks is None else self.ranks.spread(data.dataset, data.path, prepare)
        if self.options.runs.features_on_disk is not None:
            ready = self._on_disk(ready, self.options.runs.features_on_disk)
        sampler = sampling.build_sampler(self.options.sampler, self.preset.fanouts, self.preset.layer_sizes)
        parts = None if self.ranks is None else self.ranks.seed_parts()
        return Trainer(ready, sampler, self.preset.model, config, parts=parts, timeline=self.timeline)

    def _on_disk(self, dataset: Dataset, budget: str) -> Dataset:
        """The data set with the features of its store on the disk."""
        from spsample.data.stored import is_store
        from spsample.features import DiskFeatures

        path = self.command.dataset
        if self.ranks is not None:
            given, expected = f"it on {self.comm.size} ranks, which keep their rows in memory", "one rank"
        elif not is_store(path):
            given, expected = f"it with {path!r}", "the folder of a store"
        elif self.preset.scaling != "none":
            given, expected = (
                f"it with --scaling {self.preset.scaling}",
                "--scaling none: rows stay as they are",
            )
        else:
            return replace(dataset, x=DiskFeatures(path, budget))
        raise InputError(argument="--features-on-disk", given=given, expected=expected)


class _Loaded(NamedTuple):
    """A data set; on several ranks with the store that it lies in."""

    dataset: Dataset
    path: str = ""


def _load(ranks: RanksData | None, spec: str, split: int, random_seed: int) -> _Loaded:
    from spsample.data import load_dataset

    if ranks is not None:
        return _Loaded(*ranks.load(spec, split, random_seed))
    return _Loaded(load_dataset(spec, split=split, random_seed=random_seed))


def _one_run(job: _Job, data: _Loaded, seed: int, folder: RunFolder | None, before: list[TrainResult]) -> TrainResult:
    """Train once, or give back the result of a run that was over when its command was interrupted."""
    from spsample.cli.epochs import EpochProgress
    from spsample.comm.objects import broadcast_object

    done = None if folder is None else broadcast_object(job.comm, folder.result)
    quiet, prints = job.command.as_json, job.comm.rank == 0
    if done is not None and done.settings.get("epochs") == job.preset.train.epochs:
        if prints and not quiet:
            print_progress(f"random seed {seed}: all {job.preset.train.epochs} epochs are trained")
        return done
    trainer = job.trainer(data, seed)
    if not before and not quiet and prints:
        where = None if job.ranks is None else job.options.ranks.describe(job.comm)
        print_plan(trainer, job.settings, where)
    progress = EpochProgress(trainer.dataset, trainer.config.epochs, quiet=quiet or not prints)
    with _resume_hint(job), progress:
        if prints:
            trainer.callbacks.append(progress)
        result = trainer.fit() if folder is None else folder.fit(trainer, job.options.recording)
    trainer.close()
    return result


def _resume_hint(job: _Job) -> AbstractContextManager[None]:
    """Around a run: where it is ended, rank 0 prints how to go on."""
    folder = job.command.resume or job.command.out
    launcher = detect().launcher if job.comm.size > 1 else ""
    return resume_hint_on_exit(folder, ranks=job.comm.size, launcher=launcher, prints=job.comm.rank == 0)


def _run_folder(job: _Job) -> RunFolder | None:
    """The folder of --out, which rank 0 makes, or of --resume."""
    from spsample.training.runs import RunFolder

    out, resume = job.command.out, job.command.resume
    if resume is not None:
        saved = _check_resumed(RunFolder(resume), job)
        epochs = job.preset.train.epochs
        if job.comm.rank == 0 and saved.get("epochs") != epochs:
            write_config(RunFolder(resume).config, "train", {**saved, "epochs": epochs})
        return RunFolder(resume)
    if out is None:
        return None
    folder = RunFolder(out)
    if job.comm.rank == 0:
        folder.create()
        recording = {**vars(job.options.recording), "trace": None}  # of this command alone
        write_config(folder.config, "train", {**job.settings, **job.parts, **recording})
    return folder


def _check_resumed(folder: RunFolder, job: _Job) -> dict[str, Any]:
    """Refuse settings that the run did not have, but for more epochs; return those that it had."""
    from spsample.cli.config import read_config
    from spsample.settings.training import ADDED_OPTIONS
    from spsample.training.optimisation import require_epochs

    saved = {**ADDED_OPTIONS, **read_config(folder.config, "train")}
    wanted = {name: value for name, value in job.settings.items() if value is not None}
    decisive = {setting.key for setting in listed(SamplerChoice, Preset, Runs) if setting.option.decisive}
    decisive = decisive - {"epochs"} | {"dataset"}
    names = [n for n in sorted({*saved, *wanted} & decisive) if saved.get(n) != wanted.get(n)]
    if names:
        others = ", ".join(f"--{n.replace('_', '-')} {wanted.get(n)} (there {saved.get(n)})" for n in names)
        raise InputError(argument="--resume", given=f"other settings: {others}", expected="the settings of that run")
    epochs, planned = wanted["epochs"], saved.get("epochs", wanted["epochs"])
    if epochs < planned:
        raise InputError(argument="epochs", given=f"{epochs} for a run of {planned}", expected=f"at least {planned}")
    require_epochs(epochs, planned, wanted["schedule"])
    return saved


def _prepare(dataset: Dataset, *, scaling: str, metric: str, rewire_seed: int | None) -> Dataset:
    from spsample.data import rewire as rewired
    from spsample.data import scale_features

    dataset = scale_features(dataset, scaling)
    if metric != "auto":
        dataset = replace(dataset, metric=metric)
    return dataset if rewire_seed is None else rewired(dataset, rewire_seed)
