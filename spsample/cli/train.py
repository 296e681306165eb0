"""``spsample train``: data set, sampler and settings from the command line to a trained model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from spsample.cli.naming import as_typed
from spsample.cli.report import EpochProgress, describe_settings, print_plan, print_results
from spsample.errors import InputError

if TYPE_CHECKING:
    from spsample.data import Dataset
    from spsample.sampling import Sampler
    from spsample.training import Preset, Trainer, TrainResult

__all__ = ["train"]

_Settings = TypeVar("_Settings")
_SAMPLERS = ("graphsage", "ladies", "fastgcn")

_EXAMPLES = """
Examples:

* `spsample train digits`
* `spsample train planetoid_cora.npz --sampler ladies --layer-sizes 256,256`
* `spsample train tolokers.npz --all-splits --json`
* `spsample train planted:20000 --rewire` (control: no model can learn this one)
"""


def _option(panel: str, help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


_DATASET = "digits, a path ending in .npz, rmat:SCALE,EDGE_FACTOR or planted:NODES[,DEGREE[,CLASSES[,NOISE]]]"
_Sampler = Annotated[str, _option("Sampling", "One of graphsage, ladies, fastgcn.")]
_Fanouts = Annotated[
    str | None, _option("Sampling", "GraphSAGE: in-neighbours per layer, nearest the seeds first; -1 = all.")
]
_LayerSizes = Annotated[
    str | None, _option("Sampling", "LADIES, FastGCN: vertices per layer, nearest the seeds first.")
]
_BatchSize = Annotated[int | None, _option("Sampling", "Seeds per minibatch.")]
_BulkSize = Annotated[int | None, _option("Sampling", "Minibatches sampled at once, at most.")]
_Backend = Annotated[str | None, _option("Sampling", "cpu or reference; the fastest one by default.")]
_Model = Annotated[str | None, _option("Model", "sage or residual.", "--model")]
_Hidden = Annotated[int | None, _option("Model", "Width of the hidden layers.")]
_Dropout = Annotated[float | None, _option("Model", "Probability of a dropped unit.")]
_Epochs = Annotated[int | None, _option("Optimisation", "Passes over the training vertices.")]
_Rate = Annotated[float | None, _option("Optimisation", "Learning rate of Adam.", "--lr")]
_Decay = Annotated[float | None, _option("Optimisation", "Weight decay of Adam.")]
_Every = Annotated[int | None, _option("Optimisation", "Epochs between two evaluations.")]
_Scaling = Annotated[str | None, _option("Data", "Of the features: none, rows or standard.")]
_Metric = Annotated[str, _option("Data", "accuracy, roc_auc, or auto: what the data set says.")]
_Split = Annotated[int | None, _option("Data", "Which published split, from 0 on; the first one by default.")]
_AllSplits = Annotated[bool, _option("Data", "Train on every published split.", "--all-splits")]
_Rewire = Annotated[bool, _option("Data", "Control: permute the edges' sources first.", "--rewire")]
_Seed = Annotated[int, typer.Option(help="Decides generated data, rewiring, weights, orders and samples.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")]


@as_typed()
def train(
    dataset: Annotated[str, typer.Argument(help=_DATASET)] = "digits",
    sampler: _Sampler = "graphsage",
    fanouts: _Fanouts = None,
    layer_sizes: _LayerSizes = None,
    batch_size: _BatchSize = None,
    bulk_size: _BulkSize = None,
    backend: _Backend = None,
    architecture: _Model = None,
    hidden: _Hidden = None,
    dropout: _Dropout = None,
    epochs: _Epochs = None,
    learning_rate: _Rate = None,
    weight_decay: _Decay = None,
    eval_every: _Every = None,
    scaling: _Scaling = None,
    metric: _Metric = "auto",
    split: _Split = None,
    all_splits: _AllSplits = False,
    rewire: _Rewire = False,
    random_seed: _Seed = 0,
    as_json: _Json = False,
) -> None:
    """Train a graph neural network on bulk-sampled minibatches.

    Settings not given come from the preset of the data set's name (of a file: its name without .npz). There are
    presets for digits, planted, tolokers, planetoid_cora and planetoid_citeseer, and a general one for all others; the
    settings used are printed. Accuracy is computed with all neighbours, of the weights that were best on the
    validation vertices.
    """
    from spsample.data import load_dataset
    from spsample.training import preset_for

    _check_options(sampler, fanouts, layer_sizes, split, all_splits)
    first = load_dataset(dataset, split=split or 0, random_seed=random_seed)
    preset = preset_for(first.name)
    preset = replace(
        preset,
        fanouts=_sizes("fanouts", fanouts, preset.fanouts),
        layer_sizes=_sizes("layer_sizes", layer_sizes, preset.layer_sizes),
        scaling=scaling or preset.scaling,
        model=_override(preset.model, architecture=architecture, hidden=hidden, dropout=dropout),
        train=_override(
            preset.train,
            epochs=epochs,
            batch_size=batch_size,
            bulk_size=bulk_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            eval_every=eval_every,
            random_seed=random_seed,
            backend=backend,
        ),
    )
    settings = describe_settings(sampler, preset)
    results: list[TrainResult] = []
    for number in range(first.num_splits) if all_splits else [first.split]:
        data = first if number == first.split else load_dataset(dataset, split=number, random_seed=random_seed)
        prepared = _prepare(data, preset, metric, rewire=rewire)
        trainer = _trainer(prepared, _make_sampler(sampler, preset), preset)
        if not results and not as_json:
            print_plan(trainer, settings)
        results.append(_fit(trainer, quiet=as_json))
    if as_json:
        print(json.dumps([{**result.as_dict(), "settings": settings} for result in results], indent=2))
    else:
        print_results(results)


train.__doc__ = f"{train.__doc__}{_EXAMPLES}"


def _check_options(
    sampler: str, fanouts: str | None, layer_sizes: str | None, split: int | None, all_splits: bool
) -> None:
    """Refuse an unknown sampler, and options that would have no effect."""
    if sampler not in _SAMPLERS:
        raise InputError(argument="sampler", given=repr(sampler), expected="one of " + ", ".join(_SAMPLERS))
    node_wise = sampler == "graphsage"
    name, text, instead = (
        ("layer_sizes", layer_sizes, "--fanouts") if node_wise else ("fanouts", fanouts, "--layer-sizes")
    )
    if text is not None:
        raise InputError(
            argument=name, given=f"{text!r} with --sampler {sampler}", expected=f"{instead} with that sampler"
        )
    if all_splits and split is not None:
        raise InputError(argument="split", given=f"{split} with --all-splits", expected="one of the two")


def _prepare(dataset: Dataset, preset: Preset, metric: str, *, rewire: bool) -> Dataset:
    from spsample.data import rewire as rewired
    from spsample.data import scale_features

    dataset = scale_features(dataset, preset.scaling)
    if metric != "auto":
        dataset = replace(dataset, metric=metric)
    return rewired(dataset, preset.train.random_seed) if rewire else dataset


def _trainer(dataset: Dataset, sampler: Sampler, preset: Preset) -> Trainer:
    from spsample.training import Trainer

    return Trainer(dataset, sampler, preset.model, preset.train)


def _fit(trainer: Trainer, *, quiet: bool) -> TrainResult:
    with EpochProgress(trainer.dataset, trainer.config.epochs, quiet=quiet) as progress:
        trainer.on_epoch = progress.update
        return trainer.fit()


def _make_sampler(name: str, preset: Preset) -> Sampler:
    from spsample.sampling import LADIES, FastGCN, GraphSAGE

    if name == "graphsage":
        return GraphSAGE(list(preset.fanouts))
    return (LADIES if name == "ladies" else FastGCN)(list(preset.layer_sizes))


def _sizes(name: str, text: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """Parse "15,10"."""
    if text is None:
        return default
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        expected = "integers with commas, as in 15,10"
        raise InputError(argument=name, given=repr(text), expected=expected) from None


def _override(settings: _Settings, **given: Any) -> _Settings:
    """Return the settings with those options that were given."""
    known = {name: value for name, value in given.items() if value is not None}
    return replace(settings, **known)  # type: ignore[type-var]
