"""``spsample train``: data set, sampler and settings from the command line to a trained model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, cast

import typer

from spsample.cli import sampling
from spsample.cli.config import ConfigOption, set_defaults, write_config
from spsample.cli.naming import as_typed
from spsample.cli.progress import print_progress
from spsample.cli.ranks import (
    Algorithm,
    Backend,
    FeatureType,
    Hubs,
    Partition,
    Partitioned,
    RankOptions,
    RanksData,
    Replication,
    check_rank_options,
    ending_together,
    say_what_one_rank_ignores,
)
from spsample.cli.report import EpochProgress, describe_settings, print_phases, print_plan, print_ranks, print_results
from spsample.cli.resuming import saying_how_to_go_on
from spsample.comm.launch import detect
from spsample.common.checks import require_int
from spsample.errors import DataError, InputError

if TYPE_CHECKING:
    from spsample.comm import Communicator
    from spsample.data import Dataset
    from spsample.training import Callback, Preset, Trainer, TrainResult
    from spsample.training.runs import RunFolder

__all__ = ["train"]

_Settings = TypeVar("_Settings")

_EXAMPLES = """
Examples:

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


def _resume(ctx: typer.Context, value: str | None) -> str | None:
    """Take the settings of the run that is resumed for defaults."""
    if value is not None:
        config = Path(value) / "config.toml"
        if not config.is_file():
            raise DataError(argument="--resume", given=f"{value!r}, without config.toml", expected="a folder of --out")
        set_defaults(ctx, config)
    return value


def _option(panel: str, help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


_DATASET = (
    "digits or another name (cora, reddit, ogbn-arxiv, ...), a store, a path ending in .npz, rmat:SCALE,EDGE_FACTOR or "
    "planted:NODES[,DEGREE[,CLASSES[,NOISE]]]"
)
_BatchSize = Annotated[int | None, _option("Sampling", "Seeds per minibatch.")]
_BulkSize = Annotated[str | None, _option("Sampling", "Minibatches sampled at once, at most; or auto.")]
_Budget = Annotated[str | None, _option("Sampling", "Memory for bulks, as 2GiB.")]
_Prefetch = Annotated[int | None, _option("Sampling", "Bulks sampled ahead, beside the training.")]
_Backend = Annotated[str | None, _option("Sampling", "cpu or reference; the fastest one by default.")]
_Model = Annotated[str | None, _option("Model", "sage, gcn, gat or residual.", "--model")]
_Hidden = Annotated[int | None, _option("Model", "Width of the hidden layers.")]
_Dropout = Annotated[float | None, _option("Model", "Probability of a dropped unit.")]
_Residual = Annotated[bool | None, _option("Model", "Each layer adds to its input.", "--residual/--no-residual")]
_Norm = Annotated[
    bool | None, _option("Model", "Normalise each vertex's features in every layer.", "--layer-norm/--no-layer-norm")
]
_Heads = Annotated[int | None, _option("Model", "Attention heads of gat.")]
_Epochs = Annotated[int | None, _option("Optimisation", "Passes over the training vertices, at most.")]
_Optimizer = Annotated[str | None, _option("Optimisation", "adam, adamw or sgd.")]
_Rate = Annotated[float | None, _option("Optimisation", "Learning rate.", "--lr")]
_Decay = Annotated[float | None, _option("Optimisation", "Weight decay.")]
_Momentum = Annotated[float | None, _option("Optimisation", "Of sgd.")]
_Schedule = Annotated[str | None, _option("Optimisation", "Of the learning rate: constant, cosine, step, plateau.")]
_Warmup = Annotated[int | None, _option("Optimisation", "Epochs in which the learning rate first rises.")]
_DecayEvery = Annotated[int | None, _option("Optimisation", "Epochs of step, bad evaluations of plateau.")]
_DecayFactor = Annotated[float | None, _option("Optimisation", "What step and plateau multiply the rate by.")]
_Clip = Annotated[float | None, _option("Optimisation", "Scale gradients down to this norm.")]
_Patience = Annotated[int | None, _option("Optimisation", "Stop after so many evaluations without a better one.")]
_Every = Annotated[int | None, _option("Evaluation", "Epochs between two evaluations.")]
_Evaluation = Annotated[str | None, _option("Evaluation", "full, sampled, or both for the result.")]
_TestSizes = Annotated[str | None, _option("Evaluation", "Fanouts or layer sizes of sampled evaluation.")]
_EvalMemory = Annotated[str | None, _option("Evaluation", "For what full evaluation computes at once, as 1GiB.")]
_Scaling = Annotated[str | None, _option("Data", "Of the features: none, rows or standard.")]
_Metric = Annotated[
    str, _option("Data", "accuracy, roc_auc, f1_micro, f1_macro, average_precision, or auto: what the data set says.")
]
_Split = Annotated[int | None, _option("Data", "Which published split, from 0 on; the first one by default.")]
_AllSplits = Annotated[bool, _option("Data", "Train on every published split.", "--all-splits")]
_Rewire = Annotated[bool, _option("Data", "Control: permute the edges' sources first.", "--rewire")]
_Seed = Annotated[int, typer.Option(help="Decides generated data, rewiring, weights, orders and samples.")]
_Repeats = Annotated[int, typer.Option(help="Train so often, with the random seeds from --random-seed on.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")]
_Out = Annotated[str | None, _option("Run", "Folder for settings, metrics, checkpoint, results and figures.")]
_Resume = Annotated[
    str | None,
    typer.Option(callback=_resume, is_eager=True, help="Go on with the run in this folder.", rich_help_panel="Run"),
]
_Minutes = Annotated[float, _option("Run", "Minutes between two checkpoints; 0 for none.")]
_Batches = Annotated[int, _option("Run", "Batches between two checkpoints; 0 for none.")]
_CkptEpochs = Annotated[int, _option("Run", "Epochs between two checkpoints; 0 for none.")]
_LogEvery = Annotated[int, _option("Run", "Batches per line of metrics.jsonl; 0: lines per epoch alone.")]
_TensorBoard = Annotated[bool, _option("Run", "Write TensorBoard's files too.", "--tensorboard")]


@as_typed()
def train(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument(help=_DATASET)] = "digits",
    sampler: sampling.SamplerName = "graphsage",
    fanouts: sampling.Fanouts = None,
    layer_sizes: sampling.LayerSizes = None,
    batch_size: _BatchSize = None,
    bulk_size: _BulkSize = None,
    memory_budget: _Budget = None,
    prefetch: _Prefetch = None,
    backend: _Backend = None,
    architecture: _Model = None,
    hidden: _Hidden = None,
    dropout: _Dropout = None,
    residual: _Residual = None,
    layer_norm: _Norm = None,
    heads: _Heads = None,
    epochs: _Epochs = None,
    optimizer: _Optimizer = None,
    learning_rate: _Rate = None,
    weight_decay: _Decay = None,
    momentum: _Momentum = None,
    schedule: _Schedule = None,
    warmup_epochs: _Warmup = None,
    decay_every: _DecayEvery = None,
    decay_factor: _DecayFactor = None,
    clip_norm: _Clip = None,
    patience: _Patience = None,
    eval_every: _Every = None,
    evaluation: _Evaluation = None,
    test_sizes: _TestSizes = None,
    evaluation_memory: _EvalMemory = None,
    scaling: _Scaling = None,
    metric: _Metric = "auto",
    split: _Split = None,
    all_splits: _AllSplits = False,
    rewire: _Rewire = False,
    random_seed: _Seed = 0,
    repeats: _Repeats = 1,
    as_json: _Json = False,
    config: Annotated[str | None, ConfigOption] = None,
    out: _Out = None,
    resume: _Resume = None,
    checkpoint_minutes: _Minutes = 10.0,
    checkpoint_batches: _Batches = 0,
    checkpoint_epochs: _CkptEpochs = 1,
    log_every: _LogEvery = 0,
    tensorboard: _TensorBoard = False,
    backend_comm: Backend = "auto",
    partitioned: Partitioned = True,
    replication: Replication = 1,
    algorithm: Algorithm = "column",
    replicate_hubs: Hubs = None,
    feature_dtype: FeatureType = None,
    partition: Partition = None,
) -> None:
    """Train a graph neural network on bulk-sampled minibatches.

    Settings not given come from the configuration file, then from the preset of the data set's name (of a file: its
    name without .npz). There are presets for digits, planted, tolokers, planetoid_cora and planetoid_citeseer, and a
    general one for all others; the settings used are printed. Accuracy is computed with all neighbours, of the weights
    that were best on the validation vertices.

    Under mpirun, srun, torchrun or `spsample launch` all ranks train one model, each step on a batch of each rank;
    graph and features are partitioned over them unless told otherwise. Data sets that are no stores are made one by
    rank 0, in a temporary folder. The options of ranks have no effect on one.
    """
    from spsample.comm import Recorder, init

    comm = Recorder(init(backend_comm))
    with ending_together(comm):
        _train(comm, dict(ctx.params))
    comm.close()


train.__doc__ = f"{getdoc(train)}\n{_EXAMPLES}"


def _train(comm: Communicator, given: dict[str, Any]) -> None:
    """The command, on these ranks."""
    from spsample.distributed.ranks import failing_together

    with failing_together(comm):
        _check_options(given)
        check_rank_options(RankOptions.of(given), comm.size)
    if comm.size == 1:
        say_what_one_rank_ignores(RankOptions.of(given))
    ranks = RanksData(comm, RankOptions.of(given)) if comm.size > 1 else None
    try:
        job = _Job.of(given, comm, ranks)
        with failing_together(comm):
            folder = _run_folder(given["out"], given["resume"], job)
        results: list[TrainResult] = []
        for name, data, seed in job.runs():
            below = folder if len(job) == 1 or folder is None else folder.below(name)
            results.append(_one_run(job, data, seed, below, results))
    finally:
        if ranks is not None:
            ranks.close()
    _report(job, folder, results)


def _report(job: _Job, folder: RunFolder | None, results: list[TrainResult]) -> None:
    """Write and print what came of all runs: rank 0."""
    from spsample.training.rank_summary import rank_summary
    from spsample.training.runs import summary

    phases = {phase: sum(result.seconds[phase] for result in results) for phase in results[0].seconds}
    ranks = rank_summary(job.comm, phases) if job.comm.size > 1 else None
    if job.comm.rank != 0:
        return
    if folder is not None and len(results) > 1:
        folder.finish(results)
    if folder is not None and not folder.has_figures:
        print("spsample: no figures without matplotlib: pip install matplotlib", file=sys.stderr)
    if job.given["as_json"]:
        told = summary(results) if ranks is None else {**summary(results), "ranks": ranks.as_dict()}
        print(json.dumps(told, indent=2))
        return
    if ranks is None:
        print_phases(results)
    else:
        print_ranks(ranks)
    print_results(results)


@dataclass(frozen=True)
class _Job:
    """What is to be trained: the options, and the preset with those that were given; on which ranks."""

    given: dict[str, Any]
    first: _Loaded
    preset: Preset
    comm: Communicator
    ranks: RanksData | None

    @classmethod
    def of(cls, given: dict[str, Any], comm: Communicator, ranks: RanksData | None) -> _Job:
        from spsample.training import preset_for

        first = _load(ranks, given["dataset"], given["split"] or 0, given["random_seed"])
        preset = preset_for(first.dataset.name)
        known = {
            **given,
            "fanouts": _sizes("fanouts", given["fanouts"]),
            "layer_sizes": _sizes("layer_sizes", given["layer_sizes"]),
            "test_sizes": _sizes("test_sizes", given["test_sizes"]),
            "bulk_size": _bulk_size(given["bulk_size"]),
        }
        return cls(
            given,
            first,
            replace(
                _overridden(preset, known),
                model=_overridden(preset.model, known),
                train=_overridden(preset.train, known),
            ),
            comm,
            ranks,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Options that would give the same runs again."""
        named = ("dataset", "metric", "split", "all_splits", "rewire", "repeats")
        settings = describe_settings(self.given["sampler"], self.preset)
        return {**settings, **{name: self.given[name] for name in named if self.given[name] not in (None, False)}}

    def __len__(self) -> int:
        return int(self.given["repeats"]) * (self.first.dataset.num_splits if self.given["all_splits"] else 1)

    def runs(self) -> Iterator[tuple[str, _Loaded, int]]:
        """Name, data set and random seed of each run."""
        start, path, first = self.given["random_seed"], self.given["dataset"], self.first.dataset
        splits = range(first.num_splits) if self.given["all_splits"] else [first.split]
        for split in splits:
            for seed in range(start, start + self.given["repeats"]):
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
            metric=self.given["metric"],
            rewire_seed=seed if self.given["rewire"] else None,
        )
        ready = prepare(data.dataset) if self.ranks is None else self.ranks.placed(data.dataset, data.path, prepare)
        sampler = sampling.build_sampler(self.given["sampler"], self.preset.fanouts, self.preset.layer_sizes)
        return Trainer(ready, sampler, self.preset.model, config)


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
    from spsample.distributed.ranks import from_first

    done = None if folder is None else from_first(job.comm, folder.result)
    quiet, speaks = job.given["as_json"], job.comm.rank == 0
    if done is not None and done.settings.get("epochs") == job.preset.train.epochs:
        if speaks and not quiet:
            print_progress(f"random seed {seed}: all {job.preset.train.epochs} epochs are trained")
        return done
    trainer = job.trainer(data, seed)
    if not before and not quiet and speaks:
        where = None if job.ranks is None else RankOptions.of(job.given).describe(job.comm)
        print_plan(trainer, job.settings, where)
    progress = EpochProgress(trainer.dataset, trainer.config.epochs, quiet=quiet or not speaks)
    with _going_on(job), progress:
        if speaks:
            trainer.callbacks.append(cast("Callback", progress))
        result = trainer.fit() if folder is None else folder.fit(trainer, _recording(job.given))
    trainer.close()
    return result


def _going_on(job: _Job) -> AbstractContextManager[None]:
    """Around a run: where it is ended, rank 0 says how to go on."""
    folder = job.given["resume"] or job.given["out"]
    launcher = detect().launcher if job.comm.size > 1 else ""
    return saying_how_to_go_on(folder, ranks=job.comm.size, launcher=launcher, speaks=job.comm.rank == 0)


def _run_folder(out: str | None, resume: str | None, job: _Job) -> RunFolder | None:
    """The folder of --out, which rank 0 makes, or of --resume."""
    from spsample.training.runs import RunFolder

    if resume is not None:
        theirs = _check_resumed(RunFolder(resume), job)
        epochs = job.preset.train.epochs
        if job.comm.rank == 0 and theirs.get("epochs") != epochs:
            write_config(RunFolder(resume).config, "train", {**theirs, "epochs": epochs})
        return RunFolder(resume)
    if out is None:
        return None
    folder = RunFolder(out)
    if job.comm.rank == 0:
        folder.create()
        recording = {name: value for name, value in vars(_recording(job.given)).items()}
        write_config(folder.config, "train", {**job.settings, **recording})
    return folder


def _check_resumed(folder: RunFolder, job: _Job) -> dict[str, Any]:
    """Refuse settings that the run did not have, but for more epochs; return those that it had."""
    from spsample.cli.config import read_config
    from spsample.training.optimisation import require_epochs

    theirs = read_config(folder.config, "train")
    mine = {name: value for name, value in job.settings.items() if value is not None}
    free = ("epochs", "bulk_size", "memory_budget", "prefetch", "backend", *vars(_recording(job.given)))
    names = [n for n in sorted({*theirs, *mine}) if n not in free and theirs.get(n) != mine.get(n)]
    if names:
        told = ", ".join(f"--{n.replace('_', '-')} {mine.get(n)} (there {theirs.get(n)})" for n in names)
        raise InputError(argument="--resume", given=f"other settings: {told}", expected="the settings of that run")
    epochs, planned = mine["epochs"], theirs.get("epochs", mine["epochs"])
    if epochs < planned:
        given = f"{epochs} for a run of {planned}"
        raise InputError(argument="epochs", given=given, expected=f"at least {planned}")
    require_epochs(epochs, planned, mine["schedule"])
    return theirs


def _recording(given: dict[str, Any]) -> Any:
    from spsample.training.runs import Recording

    return Recording(**{field.name: given[field.name] for field in fields(Recording)})


def _check_options(given: dict[str, Any]) -> None:
    """Refuse an unknown sampler, and options that would have no effect."""
    sampling.require_sampler_options(given["sampler"], given["fanouts"], given["layer_sizes"])
    if given["all_splits"] and given["split"] is not None:
        raise InputError(argument="split", given=f"{given['split']} with --all-splits", expected="one of the two")
    if given["resume"] is not None and (given["out"] or given["config"]):
        raise InputError(argument="--resume", given="it with --out or --config", expected="the folder of a run alone")
    if given["tensorboard"] and not (given["out"] or given["resume"]):
        raise InputError(argument="--tensorboard", given="it without --out", expected="a folder for the files")
    if given["tensorboard"]:
        from spsample.training.journal import require_tensorboard

        require_tensorboard()  # before there is a folder
    require_int("repeats", given["repeats"], minimum=1)


def _prepare(dataset: Dataset, *, scaling: str, metric: str, rewire_seed: int | None) -> Dataset:
    from spsample.data import rewire as rewired
    from spsample.data import scale_features

    dataset = scale_features(dataset, scaling)
    if metric != "auto":
        dataset = replace(dataset, metric=metric)
    return dataset if rewire_seed is None else rewired(dataset, rewire_seed)


def _sizes(name: str, text: str | None) -> tuple[int, ...] | None:
    return None if text is None else sampling.parse_sizes(name, text)


def _bulk_size(text: str | None) -> int | str | None:
    """A number, where it is one; the loader refuses other words than "auto"."""
    return text if text is None or not text.removeprefix("-").isdecimal() else int(text)


def _overridden(settings: _Settings, given: dict[str, Any]) -> _Settings:
    """Return the settings with those options that were given."""
    names = {field.name for field in fields(settings)}  # type: ignore[arg-type]
    known = {name: value for name, value in given.items() if name in names and value is not None}
    return replace(settings, **known)  # type: ignore[type-var]
