"""Training: settings, models, blocks, evaluation, checkpoints, journals, plots."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from case import Case

import spsample as sp
from spsample import training
from spsample.data import planted
from spsample.features import FeatureStore
from spsample.training import ModelConfig, TrainConfig, Trainer

NUMBERS = [0, 1, -1, 0.5, 1.0, 10**400, float("nan"), float("inf"), "1", None, True]


def train_config(make, p=0.3):
    number = lambda: make.choice(NUMBERS)  # noqa: E731
    return TrainConfig(
        **make.options(
            p,
            epochs=lambda: 1,
            batch_size=lambda: make.choice([10, 10**400]),
            bulk_size=lambda: make.choice([2, "auto", np.array(2)]),
            memory_budget=lambda: make.choice([None, "1GiB"]),
            prefetch=lambda: make.choice([0, 1]),
            stage_threads=lambda: make.choice([None, "auto", "2,1", "1,1,1", (1, 1), "0,1", "1,1,auto"]),
            prefetch_budget=lambda: make.choice([None, "1MiB", 1, "x"]),
            optimizer=lambda: make.choice(["adam", "adamw", "sgd", "x"]),
            learning_rate=number,
            weight_decay=number,
            momentum=number,
            schedule=lambda: make.choice(["constant", "cosine", "step", "plateau"]),
            warmup_epochs=lambda: make.integer(0, 3),
            decay_every=lambda: make.integer(0, 3),
            decay_factor=number,
            clip_norm=number,
            patience=lambda: make.choice([None, 1, 0]),
            eval_every=lambda: make.integer(0, 3),
            evaluation=lambda: make.choice(["full", "sampled", "both"]),
            test_sizes=lambda: make.choice([None, (2,), [2], (2, 2), (0,), "2"]),
            evaluation_memory=lambda: make.choice(["1GiB", 1 << 20]),
            random_seed=lambda: make.choice([0, 2**64 - 1]),
            device=lambda: make.choice([None, None, "cpu", "auto", "cuda:7", "gpu", 0]),
            backend=lambda: make.choice([None, "cpu", "reference"]),
        )
    )


def model_config(make, p=0.4):
    return ModelConfig(
        **make.options(
            p,
            architecture=lambda: make.choice(["sage", "gcn", "gat", "residual"]),
            hidden=lambda: make.choice([4, 8, 7]),
            dropout=lambda: make.choice(NUMBERS),
            residual=lambda: make.chance(0.5),
            layer_norm=lambda: make.chance(0.5),
            heads=lambda: make.choice([1, 2, 4]),
        )
    )


def small_model(make):
    return ModelConfig(make.choice(["sage", "gcn", "gat", "residual"]), hidden=8)


def fuzz_train_config(make, folder):
    made = train_config(make)
    made.decisive(), repr(made), dataclasses.asdict(made)


def fuzz_model_config(make, folder):
    config = make.either(lambda: model_config(make), 0.05)
    sizes = [make.either(lambda: make.integer(1, 9), 0.05) for _ in range(3)]
    if not any(isinstance(size, (int, np.integer)) and size > 9999 for size in sizes):  # legal, and slow
        training.build_model(*sizes, config)


def fuzz_convolutions(make, folder):
    kind = make.choice([training.BlockSAGEConv, training.BlockGCNConv, training.BlockGATConv])
    size = lambda: make.either(lambda: make.integer(1, 9), 0.1)  # noqa: E731
    sizes = [size() for _ in range(3 if kind is training.BlockGATConv else 2)]
    if not any(isinstance(n, (int, np.integer)) and n > 9999 for n in sizes):
        kind(*sizes)


def fuzz_trainer(make, folder):
    dataset = planted(60, degree=3, num_classes=2)
    if make.chance(0.2):
        name = make.choice(["x", "y", "train_idx", "val_idx", "graph", "metric", "num_classes"])
        dataset = dataclasses.replace(dataset, **{name: make.garbage()})
    calls = [training.Journal(folder / "journal.jsonl")] if make.chance(0.3) else []
    trainer = Trainer(
        make.either(lambda: dataset, 0.05),
        make.either(lambda: sp.GraphSAGE([2]), 0.05),
        make.either(lambda: model_config(make, 0.05), 0.05),
        make.either(lambda: dataclasses.replace(train_config(make, 0.03), epochs=1), 0.05),
        make.either(lambda: calls, 0.05),
    )
    trainer.fit()
    trainer.evaluate(make.either(lambda: make.choice([None, "full", "sampled"]), 0.2))
    state = trainer.state_dict()
    if make.chance(0.5):
        state[make.choice(list(state))] = make.garbage()
    trainer.load_state_dict(make.either(lambda: state, 0.1))


def fuzz_blocks(make, folder):
    graph = make.sound_graph()
    sampler = sp.GraphSAGE([2])
    maker = training.BlockMaker(make.either(lambda: graph), make.either(lambda: sampler))
    batch = sp.bulk_sample(graph, [0], sampler, batch_size=1)[0]
    block = maker(make.either(lambda: batch.layers[0]))
    block.aggregate(torch.ones(block.num_src, 2))


def fuzz_evaluation(make, folder):
    dataset = planted(60, degree=3, num_classes=2)
    model = make.either(lambda: training.build_model(dataset.x.shape[1], 2, 1, small_model(make)), 0.1)
    features = make.either(lambda: FeatureStore(dataset.x), 0.1)
    graph = make.either(lambda: dataset.graph, 0.1)
    if make.chance(0.5):
        training.full_logits(model, graph, features, **make.options(memory_budget=lambda: make.choice(["1MiB", 1])))
        return
    sampler = sp.GraphSAGE([2])
    training.sampled_logits(
        model,
        graph,
        make.either(lambda: np.arange(9)),
        make.either(lambda: sampler),
        features,
        blocks=make.either(lambda: training.BlockMaker(dataset.graph, sampler)),
        **make.options(batch_size=lambda: 4, random_seed=lambda: 3, backend=lambda: "cpu"),
    )


def fuzz_checkpoints(make, folder):
    path = make.choice([folder / "checkpoint.pt", make.path(folder)])
    training.write_checkpoint(path, make.either(lambda: {"a": torch.arange(3), "b": [1, "x", None, 2.5]}, 0.3))
    training.read_checkpoint(make.choice([path, make.path(folder)]))


def fuzz_callbacks(make, folder):
    path = make.path(folder)
    every = make.options(
        every_minutes=lambda: make.choice(NUMBERS),
        every_batches=lambda: make.choice([None, 0, 3]),
        every_epochs=lambda: make.choice([None, 0, 3]),
    )
    make.choice(
        [
            lambda: training.Checkpointer(path, **every),
            lambda: training.Journal(path, **make.options(every_batches=lambda: make.integer(0, 3))),
            lambda: training.TensorBoard(path),
        ]
    )()


def fuzz_plots(make, folder):
    record = training.EpochRecord(0, 1.0, 0.5)
    result = training.TrainResult("d", "s", "accuracy", 0.5, 0.5, 0, 3, {"sampling": 1.0}, history=[record])
    draw = make.choice([training.plot_curves, training.plot_phases])
    draw(make.either(lambda: [result], 0.3), make.choice([folder / "plot.png", make.path(folder)]))


def fuzz_names(make, folder):
    training.preset_for(make.either(lambda: "cora", 0.5))
    training.register_model(make.either(lambda: "fuzz", 0.5))
    training.model_names()


def fuzz_rank_summary(make, folder):
    seconds = make.either(lambda: {"sampling": 1.0}, 0.3)
    training.rank_summary(make.either(sp.comm.LocalCommunicator, 0.3), seconds).as_dict()


def fuzz_gradients(make, folder):
    model, comm = make.either(lambda: torch.nn.Linear(2, 2), 0.3), make.either(sp.comm.LocalCommunicator, 0.3)
    made = make.choice([training.gradients_for, training.CooperativeGradients, training.FactoredGradients])
    gradients = made(model, comm)
    if made is training.FactoredGradients and make.chance(0.5):
        gradients.drop()
        gradients.finish_step()


def fuzz_dropout(make, folder):
    dropout = training.VertexDropout(make.either(lambda: 0.5, 0.5), **make.options(site=lambda: make.integer(0, 2**16)))
    dropout(torch.ones(2, 3))


def fuzz_aggregate(make, folder):
    graph, sampler = sp.Graph.from_edge_index([[1, 2, 0], [0, 0, 2]], num_nodes=3), sp.GraphSAGE([2])
    block = training.BlockMaker(graph, sampler)(sp.bulk_sample(graph, [0, 2], sampler, batch_size=2)[0].layers[0])
    source = make.either(lambda: make.choice([np.ones((3, 2)), torch.ones(3, 2), torch.ones(3)]), 0.5)
    with training.keep_memory():
        training.aggregate(make.either(lambda: block, 0.3), source)


CASES = {
    "aggregate": Case(fuzz_aggregate, (training.aggregate, training.keep_memory)),
    "train_config": Case(fuzz_train_config, (TrainConfig,), 2),
    "model_config": Case(fuzz_model_config, (ModelConfig, training.build_model, training.stack, training.GNN), 2),
    "convolutions": Case(fuzz_convolutions, (training.BlockSAGEConv, training.BlockGCNConv, training.BlockGATConv)),
    "trainer": Case(fuzz_trainer, (Trainer,), 2),
    "blocks": Case(fuzz_blocks, (training.BlockMaker,)),
    "evaluation": Case(fuzz_evaluation, (training.full_logits, training.sampled_logits)),
    "checkpoints": Case(fuzz_checkpoints, (training.write_checkpoint, training.read_checkpoint)),
    "callbacks": Case(fuzz_callbacks, (training.Checkpointer, training.Journal, training.TensorBoard)),
    "plots": Case(fuzz_plots, (training.plot_curves, training.plot_phases)),
    "names": Case(fuzz_names, (training.preset_for, training.register_model, training.model_names)),
    "gradients": Case(
        fuzz_gradients, (training.gradients_for, training.CooperativeGradients, training.FactoredGradients)
    ),
    "dropout": Case(fuzz_dropout, (training.VertexDropout,)),
    "rank_summary": Case(fuzz_rank_summary, (training.rank_summary,)),
}
