"""``spsample train``: data set, sampler and settings from the command line to a trained model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from spsample.cli.report import EpochProgress, print_results
from spsample.errors import InputError

if TYPE_CHECKING:
    from spsample.data import Dataset
    from spsample.training import Preset, TrainResult

__all__ = ["train"]

_Settings = TypeVar("_Settings")
_SAMPLERS = ("graphsage", "ladies", "fastgcn")

_EXAMPLES = """
Examples:

* `spsample train digits`
* `spsample train cora.npz --sampler ladies --layer-sizes 256,256`
* `spsample train tolokers.npz --all-splits --json`
* `spsample train planted:20000 --rewire` (control: no model can learn this one)
"""


def _option(panel: str, help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


_DATASET = "digits, a path ending in .npz, rmat:SCALE,EDGE_FACTOR or planted:NODES[,DEGREE[,CLASSES[,NOISE]]]"
_Sampler = Annotated[str, _option("Sampling", "One of graphsage, ladies, fastgcn.")]
_Fanouts = Annotated[
    str | None, _option("Sampling", "GraphSAGE: neighbours per layer, nearest the seeds first; -1 = all.")
]
_LayerSizes = Annotated[
    str | None, _option("Sampling", "LADIES, FastGCN: vertices per layer, nearest the seeds first.")
]
_BatchSize = Annotated[int | None, _option("Sampling", "Seeds per minibatch.")]
_BulkSize = Annotated[int | None, _option("Sampling", "Minibatches sampled at once.")]
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
_Split = Annotated[int, _option("Data", "Which published split.")]
_AllSplits = Annotated[bool, _option("Data", "Train on every published split.", "--all-splits")]
_Rewire = Annotated[bool, _option("Data", "Control: permute the edges' sources first.", "--rewire")]
_Seed = Annotated[int, typer.Option(help="Decides data, weights, orders and samples.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")]


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
    split: _Split = 0,
    all_splits: _AllSplits = False,
    rewire: _Rewire = False,
    random_seed: _Seed = 0,
    as_json: _Json = False,
) -> None:
    """Train a graph neural network on bulk-sampled minibatches.

    Settings not given come from the data set's preset. Accuracy is computed with all neighbours, of the
    weights that were best on the validation vertices.
    """
    from spsample.data import load_dataset
    from spsample.training import preset_for

    first = load_dataset(dataset, split=split, random_seed=random_seed)
    preset = preset_for(first.name)
    preset = replace(
        preset,
        fanouts=_sizes("fanouts", fanouts, preset.fanouts),
        layer_sizes=_sizes("layer-sizes", layer_sizes, preset.layer_sizes),
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
    chosen = _make_sampler(sampler, preset)
    results = []
    for number in range(first.num_splits) if all_splits else [split]:
        data = first if number == split else load_dataset(dataset, split=number, random_seed=random_seed)
        prepared = _prepare(data, preset.scaling, metric, rewire=rewire)
        results.append(_run(prepared, chosen, preset, quiet=as_json))
    if as_json:
        print(json.dumps([result.as_dict() for result in results], indent=2))
    else:
        print_results(results)


train.__doc__ = f"{train.__doc__}{_EXAMPLES}"


def _prepare(dataset: Dataset, scaling: str, metric: str, *, rewire: bool) -> Dataset:
    from spsample.data import rewire as rewired
    from spsample.data import scale_features

    dataset = scale_features(dataset, scaling)
    if metric != "auto":
        dataset = replace(dataset, metric=metric)
    return rewired(dataset) if rewire else dataset


def _run(dataset: Dataset, sampler: Any, preset: Preset, *, quiet: bool) -> TrainResult:
    from spsample.training import Trainer

    with EpochProgress(dataset, preset.train.epochs, quiet=quiet) as progress:
        return Trainer(dataset, sampler, preset.model, preset.train, on_epoch=progress.update).fit()


def _make_sampler(name: str, preset: Preset) -> Any:
    from spsample.sampling import LADIES, FastGCN, GraphSAGE

    if name not in _SAMPLERS:
        raise InputError(argument="sampler", given=repr(name), expected="one of " + ", ".join(_SAMPLERS))
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
