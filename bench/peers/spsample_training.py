"""spsample's loader, layers and kept memory, in the loop that all peers have."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import torch

import spsample as sp
from peers.task import Inputs, Options, Task, Work
from peers.training import Batches, Side, epochs, read_data
from spsample.training import BlockMaker, ModelConfig, build_model, keep_memory

PACKAGES = ("spsample", "torch")

_KEPT = ExitStack()
"""As in `Trainer.fit`, memory is kept for all epochs: here for as long as the process lives."""


def sage(inputs: Inputs, options: Options) -> Work:
    """`BulkLoader` with `prefetch` bulks of as many batches as `bulk`, and the library's own GraphSAGE."""
    graph, data = sp.Graph(inputs.indptr, inputs.indices, validate=False), read_data(inputs)
    sampler = sp.GraphSAGE(options["fanouts"])
    blocks = BlockMaker(graph, sampler)
    torch.manual_seed(options["seed"])
    config = ModelConfig(hidden=options["hidden"], dropout=options["dropout"])
    model = build_model(data.x.shape[1], data.classes, len(options["fanouts"]), config)
    store, passes = sp.FeatureStore(data.x.numpy()), iter(range(1 << 30))

    def batches(seeds: np.ndarray, shuffle: bool) -> Batches:
        loader = sp.BulkLoader(
            graph,
            seeds,
            sampler,
            batch_size=options["batch_size"],
            bulk_size=options["bulk"],
            features=store,
            labels=data.y.numpy(),
            shuffle=shuffle,
            prefetch=options["prefetch"],
            random_seed=options["seed"],
        )
        loader.set_epoch(next(passes))
        for batch in loader:
            yield blocks.inputs(batch, model), torch.from_numpy(batch.y)

    if options["keep"]:
        _KEPT.enter_context(keep_memory())
    return epochs(Side(model, batches), inputs, options)


TASKS: dict[str, Task] = {"sage": sage}
