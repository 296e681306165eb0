"""``spsample train``: data set, sampler and settings from the command line to a trained model.

Parameters of the command are what it trains on and where its output goes; all else is a field of a dataclass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from spsample.backends import get_backend
from spsample.cli import sampling
from spsample.cli.config import read_config, set_defaults, write_config
from spsample.cli.options import AsJson, listed, overridden, with_options, written
from spsample.cli.progress import print_note, print_progress
from spsample.cli.ranks import RanksData, abort_on_error, check_rank_options
from spsample.cli.resuming import resume_hint_on_exit
from spsample.cli.screen import print_json, print_line, print_message
from spsample.comm.launch import detect
from spsample.common.options import values_of
from spsample.errors import DataError, InputError
from spsample.settings import Preset, RankOptions, Recording, Runs, SamplerChoice, TrainConfig, differing, preset_for
from spsample.settings.training import ADDED_OPTIONS, PIPELINES

if TYPE_CHECKING:
    from spsample.comm import Communicator
    from spsample.data import Dataset, DatasetPart
    from spsample.timeline import Timeline
    from spsample.training import Trainer, TrainResult
    from spsample.training.runs import RunFolder

SETTINGS = (SamplerChoice, Preset, Runs, Recording, RankOptions)
"""The dataclasses that declare the options of `train`."""


def _resume(ctx: typer.Context, value: str | None) -> str | None:
    """Take the settings of the run that is resumed for defaults."""
    if value is not None:
        config = Path(value) / "config.toml"
        if not config.is_file():
            raise DataError(argument="--resume", given=f"{value!r}, without config.toml", expected="a folder of --out")
        set_defaults(ctx, str(config))
    return value


_DATASET = (
    "digits or another name (cora, reddit, ogbn-arxiv, ...), a store, a path ending in .npz, rmat:SCALE,EDGE_FACTOR or "
    "planted:NODES[,DEGREE[,CLASSES[,NOISE]]]"
)
_OUT = "Folder for settings, metrics, checkpoint, results and figures."
_RESUME = "Go on with the run in this folder, with its settings; with more --epochs it gets longer."


@with_options(*SETTINGS, preset=differing())
def train(
    typed: dict[str, Any],
    dataset: Annotated[str, typer.Argument(help=_DATASET)] = "digits",
    out: Annotated[str | None, typer.Option(help=_OUT, rich_help_panel="Run")] = None,
    resume: Annotated[
        str | None, typer.Option(callback=_resume, is_eager=True, help=_RESUME, rich_help_panel="Run")
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
    * `mpirun -n 4 spsample train my-store --parts my-parts`, see `spsample partition --stores`
    * `spsample train planted:20000 --rewire` (control: no model can learn this one)
    """
    from spsample.comm import Recorder, init

    ranks = overridden(RankOptions(), {"backend_comm": typed["backend_comm"]})  # all else is checked on ranks together
    comm = Recorder(init(ranks.backend_comm))
    with abort_on_error(comm):
        _train(comm, typed, {"dataset": dataset, "out": out, "resume": resume, "as_json": as_json})
    comm.close()


# ---------------------------------------------------------------------------------------------------------- the options


class TrainOptions(NamedTuple):
    """Parameters and settings of the command; `general` has the settings of a data set without a preset."""

    dataset: str
    out: str | None
    resume: str | None
    as_json: bool
    sampler: str
    runs: Runs
    recording: Recording
    ranks: RankOptions
    general: Preset


def _parsed(typed: Mapping[str, Any], command: Mapping[str, Any], num_ranks: int) -> TrainOptions:
    """Refuse what cannot be used, and options that would have no effect."""
    sampler = overridden(SamplerChoice(), typed).sampler
    sampling.require_sampler_options(sampler, typed)
    general, ranks = overridden(Preset(), typed), overridden(RankOptions(), typed)
    train = general.train
    if num_ranks > 1 and PIPELINES[train.pipeline].whole_graph and typed["partitioned"] is None:
        ranks = replace(ranks, partitioned=False)
    runs, recording = overridden(Runs(), typed), overridden(Recording(), typed)
    options = TrainOptions(**command, sampler=sampler, runs=runs, recording=recording, ranks=ranks, general=general)
    if runs.all_splits and runs.split is not None:
        raise InputError(argument="split", given=f"{runs.split} with --all-splits", expected="one of the two")
    if options.resume is not None and (options.out or typed["config"]):
        expected = "the folder of a run alone"
        raise InputError(argument="--resume", given="it with --out or --config", expected=expected)
    if recording.tensorboard:
        from spsample.training.callbacks import require_tensorboard

        if not (options.out or options.resume):
            raise InputError(argument="--tensorboard", given="it without --out", expected="a folder for the files")
        require_tensorboard()  # before there is a folder
    resumes_local = options.resume is not None and ranks.partition is not None  # other batches are refused later
    shared = "cooperative" if train.shares_batches else train.batches
    check_rank_options(ranks, num_ranks, "local" if resumes_local else shared)
    return options


def _print_ignored(options: TrainOptions, num_ranks: int) -> None:
    """Name the options that have no effect."""
    idle = [*([] if options.ranks.partitioned else ["--replicated"]), *options.ranks.of_block_rows]
    if num_ranks == 1 and idle:
        print_note(f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect on one rank")
    train = options.general.train
    for name in ("cache_score", "cache_replacement"):
        if train.cache_budget is None and getattr(train, name) != getattr(TrainConfig, name):
            print_note(f"--{name.replace('_', '-')} has no effect without --cache-budget")


# ------------------------------------------------------------------------------------------------------------- the runs


def _train(comm: Communicator, typed: Mapping[str, Any], command: Mapping[str, Any]) -> None:
    """The command, on these ranks."""
    from spsample.comm import collective

    with collective(comm):
        options = _parsed(typed, command, comm.size)
    if comm.rank == 0:
        _print_ignored(options, comm.size)
    with _timeline(comm, options.recording.trace) as timeline, closing(RanksData(comm, options.ranks)) as ranks:
        first = ranks.load(options.dataset, options.runs.split or 0, options.general.train.random_seed)
        with collective(comm):
            preset = overridden(preset_for(first[0].name), typed)
            job = _Job(options, first, preset, comm, ranks, timeline)
            folder = _run_folder(job)
        results: list[TrainResult] = []
        for name, data, seed in job.runs():
            below = folder if len(job) == 1 or folder is None else folder.below(name)
            results.append(_one_run(job, data, seed, below, is_first=not results))
    if timeline is not None and comm.rank == 0 and timeline.is_written:
        if not options.as_json:
            print_progress(f"timeline: {timeline.path}, for https://ui.perfetto.dev or chrome://tracing")
        if timeline.left_out:
            print_note(f"the disk was full: {timeline.left_out:,} spans are not in {timeline.path}")
    _report(job, folder, results)


def _timeline(comm: Communicator, path: str | None) -> AbstractContextManager[Timeline | None]:
    """The timeline of --trace, written when the runs are over; collective."""
    from spsample.comm import collective
    from spsample.timeline import Timeline
    from spsample.timeline.timeline import require_writable

    if path is None:
        return nullcontext()
    with collective(comm):
        if comm.rank == 0:
            require_writable("--trace", Path(path))
    return Timeline(path, comm)


def _report(job: _Job, folder: RunFolder | None, results: list[TrainResult]) -> None:
    """Write and print what came of all runs: rank 0."""
    from spsample.cli.report import print_phases, print_ranks, print_results
    from spsample.training.results import rank_summary, summary, total_seconds

    ranks = None
    if job.comm.size > 1:
        counts = [result.cache for result in results if result.cache is not None]
        cached = {name: sum(count[name] for count in counts) for name in counts[0]} if counts else None
        ranks = rank_summary(job.comm, total_seconds(results), cached)
    if job.comm.rank != 0:
        return
    if folder is not None and (len(results) > 1 or not folder.has_figures):
        folder.finish(results)
    if job.options.as_json:
        print_json(summary(results) if ranks is None else {**summary(results), "ranks": ranks.as_dict()})
        return
    if ranks is None:
        print_phases(results)
    else:
        print_ranks(ranks)
    print_results(results)
    if folder is not None:
        print_line(f"{folder.path}: {', '.join(folder.contents)}")
        if find_spec("matplotlib") is None:
            resumed = f"'spsample train --resume {folder.path}' draws them"
            print_message(f"no figures without matplotlib: pip install matplotlib, and {resumed}")


@dataclass(frozen=True)
class _Job:
    """A training: the options, the preset with those that were given, and the ranks.

    `first` is the data set of the first run, and the store that it lies in.
    """

    options: TrainOptions
    first: tuple[Dataset, str]
    preset: Preset
    comm: Communicator
    ranks: RanksData
    timeline: Timeline | None

    @property
    def settings(self) -> dict[str, Any]:
        """Options that would give the same runs again, under the names that files of settings have."""
        values = values_of(self.preset) | {
            "sampler": self.options.sampler,
            "backend": get_backend(self.preset.train.backend).name,
        }
        values |= {
            name: value for name, value in vars(self.options.runs).items() if value is not None and value is not False
        }
        values.pop("layer_sizes" if self.options.sampler == "graphsage" else "fanouts")
        return {**written(SETTINGS, values), "dataset": self.options.dataset}

    @property
    def parts(self) -> dict[str, Any]:
        """Options of ranks that decide what is sampled, as files of settings have them; empty where none does."""
        ranks, train = self.options.ranks, self.preset.train
        decide = self.comm.size > 1 and (train.batches == "local" or train.biased is not None)
        names = ("partitioned", "replication", "partition") if decide else ()
        values = {name: getattr(ranks, name) for name in (*names, "parts")}
        return written([RankOptions], {name: value for name, value in values.items() if value is not None})

    def __len__(self) -> int:
        runs = self.options.runs
        return runs.repeats * (self.first[0].num_splits if runs.all_splits else 1)

    def runs(self) -> Iterator[tuple[str, tuple[Dataset, str], int]]:
        """Name, data set and random seed of each run."""
        start, first = self.preset.train.random_seed, self.first[0]
        splits = range(first.num_splits) if self.options.runs.all_splits else [first.split]
        for split in splits:
            for seed in range(start, start + self.options.runs.repeats):
                same = split == first.split and seed == start
                data = self.first if same else self.ranks.load(self.options.dataset, split, seed)
                yield f"split-{split}-seed-{seed}", data, seed

    def trainer(self, data: tuple[Dataset, str], seed: int) -> Trainer:
        """Everything for one run."""
        from spsample.training import Trainer

        ready = self.ranks.spread(*data, partial(self._prepared, seed=seed))
        if self.options.runs.features_on_disk is not None:
            ready = self._on_disk(ready, self.options.runs.features_on_disk)
        sampler = sampling.build_sampler(self.options.sampler, self.preset.fanouts, self.preset.layer_sizes)
        config = replace(self.preset.train, random_seed=seed)
        parts = self.ranks.seed_parts()
        part = self._part_of(ready)
        return Trainer(ready, sampler, self.preset.model, config, parts=parts, part=part, timeline=self.timeline)

    def _part_of(self, whole: Dataset) -> DatasetPart | None:
        """The part of this rank, its features scaled as those of all vertices; collective."""
        from spsample.comm import collective
        from spsample.data import read_part
        from spsample.features import FeatureSource

        folder = self.options.ranks.parts
        if folder is None:
            return None
        with collective(self.comm):
            if self.options.runs.rewire:
                raise InputError(argument="--parts", given="it with --rewire", expected="one of the two")
            part = read_part(folder, self.comm.rank, self.comm.size)
        if self.preset.scaling == "none":
            return part
        x: Any = whole.x
        rows = x.gather(part.original_ids) if isinstance(x, FeatureSource) else x[part.original_ids]
        return part._replace(dataset=replace(part.dataset, x=rows))

    def _prepared(self, dataset: Dataset, *, seed: int) -> Dataset:
        from spsample.data import rewire, scale_features

        runs = self.options.runs
        dataset = scale_features(dataset, self.preset.scaling)
        if runs.metric != "auto":
            dataset = replace(dataset, metric=runs.metric)
        return rewire(dataset, seed) if runs.rewire else dataset

    def _on_disk(self, dataset: Dataset, budget: str) -> Dataset:
        """The data set with the features of its store on the disk."""
        from spsample.data.stored import is_store
        from spsample.features import DiskFeatures

        path, scaling = self.options.dataset, self.preset.scaling
        if self.comm.size > 1:
            given, expected = f"it on {self.comm.size} ranks, which keep their rows in memory", "one rank"
        elif not is_store(path):
            given, expected = f"it with {path!r}", "the folder of a store"
        elif scaling != "none":
            given, expected = f"it with --scaling {scaling}", "--scaling none: rows stay as they are"
        else:
            return replace(dataset, x=DiskFeatures(path, budget))
        raise InputError(argument="--features-on-disk", given=given, expected=expected)


def _one_run(
    job: _Job, data: tuple[Dataset, str], seed: int, folder: RunFolder | None, *, is_first: bool
) -> TrainResult:
    """Train once, or give back the result of a run that was over when its command was interrupted."""
    from spsample.cli.report import EpochProgress, print_plan
    from spsample.comm.objects import broadcast_object

    done = None if folder is None else broadcast_object(job.comm, folder.result)
    size, prints, epochs = job.comm.size, job.comm.rank == 0, job.preset.train.epochs
    tells = prints and not job.options.as_json
    if done is not None and done.settings.get("epochs") == epochs:
        if tells:
            print_progress(f"random seed {seed}: all {epochs} epochs are trained")
        return done
    trainer = job.trainer(data, seed)
    if is_first and tells:
        print_plan(trainer, job.settings, None if size == 1 else job.options.ranks.describe(job.comm))
    progress = EpochProgress(trainer.dataset, epochs, quiet=not tells)
    launcher = detect().launcher if size > 1 else ""
    kept = job.options.resume or job.options.out
    with resume_hint_on_exit(kept, ranks=size, launcher=launcher, prints=prints), progress:
        if prints:
            trainer.callbacks.append(progress)
        result = trainer.fit() if folder is None else folder.fit(trainer, job.options.recording)
    trainer.close()
    return result


# ----------------------------------------------------------------------------------------------------------- the folder


def _run_folder(job: _Job) -> RunFolder | None:
    """The folder of --out, which rank 0 makes, or of --resume."""
    from spsample.training.runs import RunFolder

    out, resume = job.options.out, job.options.resume
    if resume is not None:
        folder = RunFolder(resume)
        saved = _check_resumed(folder, job)
        epochs = job.preset.train.epochs
        if job.comm.rank == 0 and saved.get("epochs") != epochs:
            write_config(folder.config, "train", {**saved, "epochs": epochs})
        return folder
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
