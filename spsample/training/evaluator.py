"""`Evaluator`: the metric of a model on the vertices of a split."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spsample.comm import collective
from spsample.comm.objects import require_same
from spsample.common.units import require_bytes
from spsample.distributed import ProcessGrid
from spsample.errors import InputError
from spsample.pipelines import Pipeline, TrainingSetup
from spsample.sampling import Sampler
from spsample.training.evaluation import Vertices, VerticesHere, VerticesOnRanks, layer_by_layer, sampled_logits
from spsample.training.metrics import METRICS
from spsample.training.models import GNN


class Evaluator:
    """Evaluates a model with all neighbours, layer by layer, or with sampled ones. Calls are collective.

    Parameters
    ----------
    setup : TrainingSetup

    Raises
    ------
    InputError
        If ranks have different splits or labels, the labels do not allow the metric, or there are not as many test
        sizes as layers.
    """

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup, self._dataset, self._graph = setup, setup.dataset, setup.dataset.graph
        self._comm = self._graph.comm
        self._require_same_split()
        self.sampler = _test_sampler(setup.sampler, setup.config.test_sizes)
        self._check_metric()
        self._rows: ProcessGrid | None = None  # of logits on ranks, once they are computed

    def close(self) -> None:
        """Free the communicators that were made for it."""
        if self._rows is not None:
            self._rows.close()

    def scores(self, model: GNN, pipeline: Pipeline, subsets: Sequence[str], kind: str) -> dict[str, float]:
        """Return the metric of each subset of the split.

        Parameters
        ----------
        model
        pipeline
            That trains it.
        subsets
            Among "train", "val" and "test".
        kind
            "full" or "sampled".
        """
        metric = METRICS[self._dataset.metric]
        ids = {subset: getattr(self._dataset, f"{subset}_idx") for subset in subsets}
        with self._setup.phases.timed("evaluation"):
            logits = self.logits(model, pipeline, kind, np.concatenate(list(ids.values())))
            if not np.isfinite(logits).all():
                raise divergence(self._setup.config.learning_rate, "logits that are not finite")
            ends = np.cumsum([len(vertices) for vertices in ids.values()])[:-1]
            rows = np.split(logits, ends)
            return {
                subset: metric(part, self._dataset.y[ids[subset]]) for subset, part in zip(subsets, rows, strict=True)
            }

    def logits(self, model: GNN, pipeline: Pipeline, kind: str, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return logits of vertices, on every rank; each computes its share. Parameters are those of `scores`."""
        setup, config = self._setup, self._setup.config
        if kind == "full":
            budget = require_bytes("evaluation_memory", config.evaluation_memory)
            vertices: Vertices = VerticesHere(self._graph)
            if self._graph.is_distributed:
                self._rows = ProcessGrid(self._comm) if self._rows is None else self._rows
                vertices = VerticesOnRanks(self._graph, self._rows)
            on_host = model if pipeline.devices.model.type == "cpu" else copy.deepcopy(model).cpu()
            return layer_by_layer(on_host, vertices, setup.features, setup.blocks.whole_rows(), budget).gather(ids)
        features = pipeline.loader.features
        return sampled_logits(
            model,
            setup.graph,
            ids,
            self.sampler,
            setup.features if features is None else features,
            blocks=setup.blocks,
            batch_size=config.batch_size,
            random_seed=config.random_seed,
            backend=config.backend,
            device=pipeline.devices.batches,
        )

    def _require_same_split(self) -> None:
        """Refuse vertices or labels that differ between ranks."""
        if self._comm.size == 1:
            return
        ids = {f"{name}_idx": np.asarray(getattr(self._dataset, f"{name}_idx")) for name in ("train", "val", "test")}
        with collective(self._comm, call="a look at the labels"):
            labels = np.asarray(self._dataset.y)[np.concatenate(list(ids.values()))]
        require_same(self._comm, **ids, labels=labels)

    def _check_metric(self) -> None:
        """Refuse a metric that the labels do not allow before anything is trained."""
        metric, outputs = METRICS[self._dataset.metric], self._dataset.num_outputs
        for subset in ("val", "test"):
            y = self._dataset.y[getattr(self._dataset, f"{subset}_idx")]
            metric(np.zeros((len(y), outputs), dtype=np.float32), y)


def divergence(learning_rate: float, given: str) -> InputError:
    """Return the error of a run whose numbers are no longer finite."""
    return InputError(
        argument="learning_rate",
        given=f"{learning_rate}, and {given}",
        expected="one small enough for the loss to stay finite",
        hint="Features that are not finite do this too.",
    )


def _test_sampler(sampler: Sampler, sizes: Sequence[int] | None) -> Sampler:
    """The sampler with other sizes."""
    if sizes is None:
        return sampler
    if len(sizes) != len(sampler.sizes):
        given, expected = f"{len(sizes)} sizes", f"as many as the model has layers: {len(sampler.sizes)}"
        raise InputError(argument="test_sizes", given=given, expected=expected)
    return sampler.with_sizes(sizes)
