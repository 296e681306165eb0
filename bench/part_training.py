"""Independent trainers on the stores of parts, beside ranks whose batches have seeds from everywhere.

    spsample launch -n 4 bench/part_training.py --dataset tolokers --method pagraph --method metis-seeds --seeds 5

Each rank is a process. On parts it samples and gathers from the store of its part alone, batches of its own train
vertices, and takes part in the mean of the gradients of each step, as PaGraph's trainers do. "shuffled" is the same
loop on the whole graph, each batch a share of one global order. Rank 0 evaluates on the whole graph
with all neighbours: the test score is of the epoch with the best validation score.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch.nn.functional import cross_entropy

import spsample as sp
from graphs import named_dataset
from spsample.comm import Communicator
from spsample.data import Dataset, partition_quality, partition_vertices, write_part_stores
from spsample.features import FeatureStore
from spsample.settings.presets import Preset, preset_for
from spsample.training import build_model, gradients_for
from spsample.training.blocks import BlockMaker
from spsample.training.evaluation import full_logits
from spsample.training.metrics import METRICS
from spsample.training.tensors import as_tensor

SHUFFLED = "shuffled"


@dataclass(frozen=True)
class Run:
    """What came of one training."""

    dataset: str
    method: str
    seed: int
    test: float
    best_epoch: int
    replication: float | None


def scaled(dataset: Dataset) -> Dataset:
    """Features as the data set's preset wants them."""
    scaling = preset_for(dataset.name).scaling
    return dataset if scaling == "none" else sp.data.scale_features(dataset, scaling)


class Trainer:
    """One rank: its graph, its batches, and the model that all have."""

    def __init__(self, comm: Communicator, data: Dataset, preset: Preset, seed: int) -> None:
        sampler = sp.GraphSAGE(list(preset.fanouts))
        batch_size = preset.train.batch_size // comm.size  # a step has the preset's number of seeds, on all ranks
        self.comm, self.data = comm, data
        self.blocks = BlockMaker(data.graph, sampler)
        self.labels = as_tensor(np.asarray(data.y))
        features = FeatureStore(data.x)
        order = seed if data.graph.is_distributed else seed * comm.size + comm.rank  # else parts would go in step by id
        self.loader = sp.BulkLoader(
            data.graph, data.train_idx, sampler, batch_size=batch_size, features=features, random_seed=order
        )
        torch.manual_seed(seed)  # the same first weights on every rank
        self.model = build_model(features.dim, data.num_classes, len(preset.fanouts), preset.model)
        torch.manual_seed(1000 * seed + comm.rank)  # dropout
        self.gradients = gradients_for(self.model, comm)
        settings = preset.train
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def epoch(self) -> None:
        """As many steps on every rank; one whose batches are over adds nothing to the gradients."""
        batches, steps = iter(self.loader), self.comm.all_reduce(np.array([len(self.loader)]), "max")[0]
        for _ in range(int(steps)):
            self.optimizer.zero_grad()
            loss, seeds = self._loss(next(batches, None))
            self.gradients.prepare(loss)
            self.gradients.finish(loss, seeds)
            self.optimizer.step()
        for _ in batches:  # lets the loader end its epoch
            pass

    def _loss(self, batch: Any) -> tuple[torch.Tensor, int]:
        if batch is None or len(batch.seeds) == 0:
            return sum((p.sum() for p in self.model.parameters()), torch.zeros(())) * 0.0, 0
        logits = self.gradients.model(*self.blocks.inputs(batch, self.model))
        return cross_entropy(logits, self.labels[as_tensor(batch.seeds).long()]), len(batch.seeds)


def scores(model: Any, whole: Dataset) -> tuple[float, float]:
    """Validation and test score of the model on the whole graph."""
    logits = full_logits(model, whole.graph, FeatureStore(whole.x))
    metric = METRICS[whole.metric]
    return tuple(float(metric(logits[ids], whole.y[ids])) for ids in (whole.val_idx, whole.test_idx))  # type: ignore[return-value]


def train(comm: Communicator, mine: Dataset, whole: Dataset, seed: int, epochs: int | None) -> tuple[float, int]:
    """Test score at the best validation score, and its epoch; on rank 0."""
    preset = preset_for(whole.name)
    trainer = Trainer(comm, mine, preset, seed)
    best = (-1.0, -1.0, -1)
    count = epochs or preset.train.epochs
    for epoch in range(count):
        trainer.epoch()
        if epoch % preset.train.eval_every and epoch + 1 < count:
            continue
        if comm.rank == 0:
            best = max(best, (*scores(trainer.model, whole), epoch))
        comm.barrier()
    return best[1], best[2]


def data_of_ranks(
    comm: Communicator, whole: Dataset, method: str, hops: int, folder: Path, seed: int
) -> tuple[Dataset, float | None]:
    """What this rank trains on, and the replication of the parts."""
    if method == SHUFFLED:
        return replace(whole, graph=sp.ReplicatedGraph(whole.graph, comm)), None
    stores, told = folder / f"{whole.name}-{method}-{seed}", np.zeros(1)
    if comm.rank == 0:
        train, size = whole.train_idx, comm.size
        parts = partition_vertices(whole.graph, size, method, seeds=train, hops=hops, random_seed=seed)
        write_part_stores(whole, parts, size, stores, hops=hops)
        told[0] = partition_quality(whole.graph, parts, size, seeds=train, hops=hops).replication or 0.0
    replication = float(comm.all_reduce(told)[0])
    return sp.load_dataset(str(stores / f"part-{comm.rank}")), replication


def runs_of(
    comm: Communicator, name: str, methods: list[str], seeds: int, epochs: int | None, folder: Path
) -> Iterator[Run]:
    """Every method, with every seed in turn."""
    whole = scaled(named_dataset(name))
    hops = len(preset_for(whole.name).fanouts)
    for seed in range(seeds):
        for method in methods:
            mine, replication = data_of_ranks(comm, whole, method, hops, folder, seed)
            test, epoch = train(comm, mine, whole, seed, epochs)
            yield Run(name, method, seed, test, epoch, replication)


def main(
    dataset: Annotated[list[str], typer.Option(help="With features and labels; may be repeated.")],
    method: Annotated[list[str], typer.Option(help="Of partition_vertices; may be repeated.")],
    seeds: Annotated[int, typer.Option(help="Runs of each method: random seeds from 0 on.")] = 5,
    epochs: Annotated[int | None, typer.Option(help="Instead of those of the preset.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of part_training.jsonl.")] = Path("bench/results"),
) -> None:
    """Print test scores; one JSON line each."""
    comm = sp.init()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(
            bytes(comm.broadcast(np.frombuffer(scratch.ljust(256).encode(), np.uint8).copy())).decode().strip()
        )
        for name in dataset:
            runs = []
            for run in runs_of(comm, name, [SHUFFLED, *method], seeds, epochs, folder):
                runs.append(run)
                if comm.rank == 0:
                    print(json.dumps(asdict(run)), flush=True)
            if comm.rank == 0:
                summarise(runs, out)
        comm.barrier()


def summarise(runs: list[Run], out: Path) -> None:
    """Mean and deviation of each method, and its difference from "shuffled", run by run."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "part_training.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(run)) + "\n" for run in runs)
    plain = [run.test for run in runs if run.method == SHUFFLED]
    for method in dict.fromkeys(run.method for run in runs):
        tests = [run.test for run in runs if run.method == method]
        apart = [test - other for test, other in zip(tests, plain, strict=True)]
        spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
        print(
            f"{runs[0].dataset} {method}: {statistics.mean(tests):.4f} +- {spread:.4f}, "
            f"from shuffled {statistics.mean(apart):+.4f}"
        )


if __name__ == "__main__":
    typer.run(main)
