"""Loaders and training on all ranks of a job: `LAUNCHER python train_on_ranks.py BACKEND [CASE...]`; rank 0 prints.

Each case runs on all ranks in turn, each as a collective call: what fails on one rank is told by all.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from training_cases import DATA, MODELS, SAMPLERS, Seen, on_ranks, one_epoch

import spsample as sp
from spsample.comm import Recorder, collective, init
from spsample.distributed import PartitionedGraph, ProcessGrid
from spsample.errors import SpSampleError
from spsample.pipelines.gradients import CommunicatorGradients, DistributedGradients
from spsample.training import ModelConfig, TrainConfig, Trainer, rank_summary


def trainer_of(data, seen=(), **settings):
    config = TrainConfig(**{"epochs": 2, "batch_size": 32, "learning_rate": 0.02, "bulk_size": 8, **settings})
    return Trainer(data, sp.GraphSAGE([5, 3]), ModelConfig(hidden=16, dropout=0.2), config, list(seen))


def loader_of(data, seeds, **options):
    return sp.BulkLoader(data.graph, seeds, sp.GraphSAGE([4, 3]), features=data.x, **options)


def case_batches(comm):
    for seeds, batch_size in ((300, 16), (3, 1)):
        options = {"batch_size": batch_size, "bulk_size": 8, "random_seed": 7}
        expected = list(loader_of(DATA, np.arange(seeds), **options))
        for c in (c for c in (1, 2, 4) if comm.size % c == 0):
            loader = loader_of(on_ranks(comm, c), np.arange(seeds), **options)
            for stop in (1, 0):
                for step, _ in enumerate(loader):
                    if step == stop:
                        break
            loader.set_epoch(0)
            batches = list(loader)
            assert len(batches) == -(-len(expected) // comm.size)
            for batch in batches:
                if batch.batch_id >= len(expected):
                    assert len(batch.seeds) == 0
                    continue
                np.testing.assert_array_equal(batch.x, expected[batch.batch_id].x)
                np.testing.assert_array_equal(batch.src_nodes, expected[batch.batch_id].src_nodes)
            loader.close()


def case_local_batches(comm):
    """Every seed once, on a rank that has its part; what one rank finds wrong all refuse; training and resumption."""
    parts = np.arange(400) % 7 % comm.size
    graph = PartitionedGraph.from_graph(DATA.graph, ProcessGrid(comm), partition=parts)
    data = dataclasses.replace(on_ranks(comm), graph=graph)
    loader = loader_of(data, np.arange(300), batch_size=16, batches="local", bulk_size=8)
    batches = list(loader)
    seeds = np.concatenate([batch.seeds for batch in batches]).astype(np.int64)
    assert (parts[seeds] == comm.rank).all()
    assert len(batches) == len(loader) == comm.all_reduce(np.array([-(-len(seeds) // 16)]), "max").item()
    visits = np.bincount(seeds, minlength=300)
    assert (comm.all_reduce(visits) == 1).all()
    loader.close()
    with pytest.raises(SpSampleError, match="no seeds in block row 1"):
        loader_of(data, np.flatnonzero(parts != 1), batch_size=16, batches="local")
    replicated, wrong = on_ranks(comm, kind="replicated"), np.zeros(7, int) if comm.rank == 1 else parts
    with pytest.raises(SpSampleError, match="parts"):
        loader_of(replicated, np.arange(300), batch_size=16, batches="local", parts=wrong)
    seen, rest = Seen(save_at=2), Seen()
    whole = trainer_of(data, [seen], batches="local").fit()
    again = trainer_of(data, [rest], batches="local")
    again.load_state_dict(seen.state)
    assert again.fit().history == whole.history
    assert rest.losses == seen.losses[2:]


def case_algorithms(comm):
    """The published algorithm trains as owners that draw do, where ranks share block rows; more in threads."""
    for model, sampler, c in zip(MODELS, SAMPLERS, (2, comm.size, 2), strict=False):
        column, stages = (one_epoch(comm, c, algorithm, model, sampler) for algorithm in ("column", "stages"))
        assert stages == column, (model, sampler, c)


def case_sync_is_overlap(comm):
    """Sampling, fetching and training in turn, and side by side: the same losses, bit for bit."""
    runs = []
    for pipeline in ("sync", "overlap"):
        seen = Seen()
        trainer = trainer_of(on_ranks(comm), [seen], pipeline=pipeline)
        trainer.fit()
        trainer.close()
        runs.append(seen)
    assert runs[0].losses == runs[1].losses
    assert all(torch.equal(one, other) for one, other in zip(runs[0].gradient, runs[1].gradient, strict=True))


def case_cooperative(comm):
    """All ranks on one batch, which train as one process does; resumed in the middle; a rank that fails ends all."""
    settings = {"pipeline": "cooperative", "batch_size": 64 // comm.size}
    alone = Seen()
    trainer_of(DATA, [alone], **{**settings, "batch_size": 64 // comm.size * comm.size}).fit()
    for c in (c for c in (1, 2) if comm.size % c == 0):
        seen, rest = Seen(save_at=2), Seen()
        trainer = trainer_of(on_ranks(comm, c), [seen], **settings)
        trainer.fit()
        trainer.close()
        np.testing.assert_allclose(seen.losses, alone.losses, rtol=2e-4)
        assert (comm.all_gather(np.array(seen.losses)) == seen.losses).all()
        resumed = trainer_of(on_ranks(comm, c), [rest], **settings)
        resumed.load_state_dict(seen.state)
        resumed.fit()
        resumed.close()
        assert rest.losses == seen.losses[2:]
    failing = trainer_of(on_ranks(comm), [Seen(fail_at=3)] if comm.rank == 1 else [], **settings)
    with pytest.raises(Exception, match="no more"):
        failing.fit()


def case_factored(comm):
    """The losses of ranks that do both, bit for bit, whoever samples and trains; resumed; asynchronous in a bound."""

    def run(state=None, **settings):
        data = dataclasses.replace(DATA, graph=sp.ReplicatedGraph(DATA.graph, comm))
        trainer = trainer_of(data, [seen := Seen(save_at=2)], **settings)
        if state is not None:
            trainer.load_state_dict(state)
        result = trainer.fit()
        trainer.close()
        return seen, result

    expected, of_all = run(pipeline="sync")
    for samplers in (None, 1, comm.size - 1):
        factored = {"pipeline": "factored", "sampler_ranks": samplers, "step_batches": comm.size}
        seen, result = run(**factored)
        assert seen.losses == expected.losses
        assert result.history == of_all.history
        rest, result = run(seen.state, **factored)
        assert rest.losses == expected.losses[2:]
        assert result.history == of_all.history
    for bound in (0, 3):
        _, result = run(pipeline="factored", sampler_ranks=1, staleness=bound, step_batches=6)
        assert any(note.endswith(f"updates late, of at most {bound}") for note in result.notes)
        assert np.isfinite(result.history[-1].loss)


def case_one_rank_leaves(comm):
    loader = loader_of(on_ranks(comm), np.arange(400), batch_size=2, bulk_size=2 * comm.size)
    batches = iter(loader)
    next(batches)
    if comm.rank == 1:
        batches.close()
    else:
        with pytest.raises(SpSampleError, match="rank 1 failed: it left the loop"):
            list(batches)
    loader.close()


def case_gradient(comm):
    seen = Seen()
    trainer = trainer_of(on_ranks(comm), [seen], epochs=1)
    assert type(trainer.pipeline.gradients) is CommunicatorGradients  # DDP is for NCCL
    trainer.model.eval()  # no dropout
    trainer.fit()
    alone = trainer_of(DATA)
    alone.model.eval()
    alone.model.load_state_dict(seen.weights)
    losses, seeds = [], 0
    for batch in list(alone.loader)[: comm.size]:
        logits = alone.model(torch.from_numpy(batch.x), [alone.pipeline.setup.blocks(layer) for layer in batch.layers])
        y = torch.from_numpy(DATA.y[batch.seeds])
        losses.append(torch.nn.functional.cross_entropy(logits, y, reduction="sum"))
        seeds += len(y)
    (sum(losses) / seeds).backward()
    for mine, expected in zip(seen.gradient, alone.model.parameters(), strict=True):
        torch.testing.assert_close(mine, expected.grad, rtol=1e-5, atol=1e-6)


def case_resumption(comm):
    """On another grid, dropout included."""
    seen, rest = Seen(save_at=2), Seen()
    whole = trainer_of(on_ranks(comm), [seen]).fit()
    again = trainer_of(on_ranks(comm, comm.size), [rest])
    again.load_state_dict(seen.state)
    assert again.fit().history == whole.history
    assert rest.losses == seen.losses[2:]


def case_resumption_at_every_step(comm):
    """Of two epochs, bit for bit; `by_hand/resume_points.py` does so with other samplers and models.

    Over gloo by DDP, as over NCCL: its buckets must not be rebuilt after the first step.
    """

    def trainer_with(*seen):
        trainer = trainer_of(on_ranks(comm), seen, batch_size=16)
        if comm.name == "gloo":
            trainer.pipeline.gradients = DistributedGradients(trainer.model, comm)
        return trainer

    seen = Seen(save_at="every step")
    trainer = trainer_with(seen)
    whole = trainer.fit()
    unequal = []
    for step, state in enumerate(seen.states, 1):
        again = trainer_with(rest := Seen())
        again.load_state_dict(state)
        if again.fit().history != whole.history or rest.losses != seen.losses[step:]:
            unequal.append(step)
    assert len(seen.states) == len(seen.losses) == trainer.progress.step == 2 * -(-15 // comm.size)
    assert not unequal


def case_failure(comm):
    for prefetch in (0, 1):
        seen = Seen(fail_at=2 if comm.rank == 1 else None)
        with pytest.raises(SpSampleError, match="rank 1 failed: ZeroDivisionError: no more"):
            trainer_of(on_ranks(comm), [seen], prefetch=prefetch).fit()


def case_summary(comm):
    recorder = Recorder(comm)
    result = trainer_of(on_ranks(recorder), evaluation="both").fit()
    summary = rank_summary(recorder, result.seconds)
    assert {"features", "activations", "gradients", "rows"} <= set(summary.traffic)
    assert summary.seconds["training"]["max"] >= summary.seconds["training"]["mean"] > 0


def checked(case, comm):
    try:
        case(comm)
    except Exception:
        print(f"FAILED {case.__name__} on rank {comm.rank}\n{traceback.format_exc()}", flush=True)
        raise


def main(backend, *chosen):
    torch.set_num_threads(1)
    comm = init(backend, timeout=30)
    cases = chosen or [name for name in globals() if name.startswith("case_")]
    for name in cases:
        with collective(comm.duplicate()):
            checked(globals()[name], comm)
    if comm.rank == 0:
        print(f"{len(cases)} cases passed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
