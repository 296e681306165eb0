"""A function called on each batch: in the thread or in processes, in order, and nothing left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spsample as sp
from spsample.comm import run_threads
from spsample.data import planted
from spsample.distributed import ReplicatedGraph
from spsample.errors import BackendError, DTypeError, InputError
from tests.unit import transforms

DATA = planted(600, degree=6, random_seed=1)
SEEDS = np.arange(0, 600, 2)
X = np.tile(DATA.x, (1, 8))


def make(**changes: Any) -> sp.BulkLoader:
    options: dict[str, Any] = {"batch_size": 16, "bulk_size": 3, "features": X, "labels": DATA.y, **changes}
    sampler = options.pop("sampler", sp.GraphSAGE([3, 2]))
    return sp.BulkLoader(DATA.graph, SEEDS, sampler, **options)


def shared_blocks(pid: int) -> set[str]:
    """Of transforms of a process."""
    folder = Path("/dev/shm")
    return {one.name for one in folder.glob(f"spsample-{pid}-*")} if folder.is_dir() else set()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    gc.collect()
    assert not multiprocessing.active_children()
    assert not shared_blocks(os.getpid())
    assert not any(thread.name.startswith("spsample") for thread in threading.enumerate())


def expected() -> list[Any]:
    return [transforms.sums(batch)[:4] for batch in make(prefetch=0)]


def same(some: Any, others: Any) -> bool:
    pairs = list(zip(some, others, strict=True))
    return all(a[0] == b[0] and all(np.array_equal(*c) for c in zip(a[1:4], b[1:4], strict=True)) for a, b in pairs)


@pytest.mark.parametrize("options", [{"prefetch": 0}, {}, {"stage_threads": "auto"}, {"prefetch_budget": 1}])
def test_a_transform_in_the_thread(options: Any) -> None:
    assert same(make(transform=transforms.sums, **options), expected())


@pytest.mark.parametrize("workers", [1, 3])
def test_a_transform_in_processes(workers: int) -> None:
    loader = make(transform=transforms.sums, transform_workers=workers, stage_threads="auto", prefetch_budget="4KiB")
    try:
        for _ in range(2):
            made = list(loader)
            pids = {one[4] for one in made}
            assert os.getpid() not in pids
            assert len(pids) == workers
            loader.set_epoch(0)
            assert same(made, expected())
    finally:
        loader.close()


def test_order_is_kept_where_later_batches_are_done_sooner() -> None:
    loader = make(transform=transforms.slow_at_first, transform_workers=2)
    assert list(loader) == list(range(19))
    loader.close()


@pytest.mark.needs("shared memory")
def test_results_of_any_size_and_whole_batches() -> None:
    loader = make(transform=transforms.larger, transform_workers=2)
    for number, made in enumerate(loader):
        assert np.array_equal(made, transforms.larger(type("", (), {"batch_id": number})()))
    loader.close()
    loader = make(transform=transforms.doubled, transform_workers=1)
    for batch, one in zip(loader, make(), strict=True):
        assert np.array_equal(batch.x, 2 * one.x)
        assert batch.layers[1].adj.indices.tolist() == one.layers[1].adj.indices.tolist()
        batch.x[:] = 0  # it is the loop's own
    loader.close()


def test_a_state_counts_what_was_delivered() -> None:
    loader = make(transform=transforms.slow_at_first, transform_workers=2)
    batches = iter(loader)
    seen = [next(batches) for _ in range(5)]
    other = make(prefetch=0, transform=transforms.slow_at_first)
    other.load_state_dict(loader.state_dict())
    assert seen + list(other) == list(range(19))
    batches.close()
    assert next(iter(loader)) == 0  # the same processes, which know nothing of the batches before
    loader.close()


def test_two_passes_at_a_time() -> None:
    loader = make(transform=transforms.slow_at_first, transform_workers=1)
    one, other = iter(loader), iter(loader)
    assert [(next(one), next(other)) for _ in range(19)] == [(i, i) for i in range(19)]
    assert next(one, None) is next(other, None) is None
    loader.close()


def test_an_error_names_batch_and_worker() -> None:
    loader = make(transform=transforms.fails_on_batch_3, transform_workers=2)
    with pytest.raises(BackendError, match=r"batch 3, in worker [01]: ZeroDivisionError: of the transform") as caught:
        list(loader)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "in fails_on_batch_3" in str(caught.value.__cause__.__cause__)
    with pytest.raises(BackendError, match="batch 3"):  # again, with the same processes
        list(loader)
    loader.close()
    with pytest.raises(ZeroDivisionError):
        list(make(transform=transforms.fails_on_batch_3))


@pytest.mark.parametrize("name", ["fails_oddly", "gives_what_cannot_travel"])
def test_errors_and_results_that_cannot_travel(name: str) -> None:
    loader = make(transform=getattr(transforms, name), transform_workers=1)
    with pytest.raises(BackendError, match=r"batch 0, in worker 0"):
        list(loader)
    loader.close()


@pytest.mark.parametrize(("name", "how"), [("dies_on_batch_2", "signal SIGKILL"), ("exits_on_batch_2", "code 7")])
def test_a_lost_worker_is_named_and_the_next_pass_has_others(name: str, how: str) -> None:
    loader = make(transform=getattr(transforms, name), transform_workers=2)
    for _ in range(2):
        batches = iter(loader)
        assert [next(batches), next(batches)] == [0, 1]
        with pytest.raises(BackendError, match=rf"worker [01], which had batch 2 to transform, has ended with {how}"):
            next(batches)
        assert not multiprocessing.active_children()
    loader.set_epoch(0)
    assert next(iter(loader)) == 0
    loader.close()


def test_what_cannot_be_pickled_is_refused_before_work_begins() -> None:
    with pytest.raises(InputError, match=r"transform: got .*cannot be pickled"):
        make(transform=lambda batch: batch, transform_workers=1)
    assert len(list(make(transform=lambda batch: batch.batch_id))) == 19
    loader = make(transform=transforms.CannotBeLoaded(), transform_workers=1)
    with pytest.raises(BackendError, match="no way to load it"):
        list(loader)
    loader.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"transform": 3},
        {"transform": transforms.sums, "transform_workers": -1},
        {"transform": transforms.sums, "transform_workers": True},
        {"transform_workers": 1},
        {"transform": transforms.sums, "transform_workers": 1, "prefetch": 0},
        {"transform": transforms.sums, "transform_workers": 1, "batches": "cooperative"},
    ],
)
def test_other_arguments_are_refused(changes: Any) -> None:
    with pytest.raises((InputError, DTypeError), match="transform"):
        make(**changes)


def test_processes_end_with_the_loader_that_is_garbage() -> None:
    loader = make(transform=transforms.slow_at_first, transform_workers=2)
    next(iter(loader))
    assert len(multiprocessing.active_children()) == 2
    del loader


def test_ranks_have_processes_of_their_own() -> None:
    def epoch(comm: Any, **options: Any) -> Any:
        graph = ReplicatedGraph(DATA.graph, comm)
        loader = sp.BulkLoader(graph, SEEDS, sp.GraphSAGE([3, 2]), batch_size=8, features=X, **options)
        made = [one[:4] for one in loader]
        loader.close()
        return made

    plain = run_threads(2, lambda comm: epoch(comm, transform=transforms.sums))
    there = run_threads(2, lambda comm: epoch(comm, transform=transforms.sums, transform_workers=1))
    assert all(same(*pair) for pair in zip(plain, there, strict=True))


def test_tensors_and_pyg_travel() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    loader = make(transform=transforms.as_tensors, transform_workers=1)
    for made, batch in zip(loader, make(), strict=True):
        x = torch.from_numpy(batch.x)
        assert torch.equal(made["x"], x)
        assert torch.equal(made["half"], x.to(torch.bfloat16))
        assert torch.equal(made["every other"], x[::2])
        assert made["grad"].requires_grad
    loader.close()
    subgraph = sp.GraphSAGE([3, 2], layout="subgraph")
    loader = make(sampler=subgraph, transform=transforms.edges_of, transform_workers=1)
    for made, data in zip(loader.pyg(), make(sampler=subgraph).pyg(), strict=True):
        assert made.num_seen == data.edge_index.shape[1]
        assert torch.equal(made.edge_index, data.edge_index)
        assert torch.equal(made.x, data.x)
    loader.close()


CTRL_C = """
import os, sys
sys.path[:0] = {path!r}

if __name__ == "__main__":
    from tests.unit.test_transforms import make, transforms
    loader = make(transform=transforms.slow, transform_workers=2)
    for batch in loader:
        print("ready", *(one.pid for one in __import__("multiprocessing").active_children()), flush=True)
"""


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_main_one(tmp_path: Path, which: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(CTRL_C.format(path=[str(Path(__file__).resolve().parents[2])]), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    children = [int(pid) for pid in process.stdout.readline().split()[1:]]
    assert len(children) == 2
    assert shared_blocks(process.pid)
    (os.killpg if which == signal.SIGINT else os.kill)(process.pid, which)  # a Ctrl-C is for the whole group
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    if which == signal.SIGINT:
        assert errors.count(b"KeyboardInterrupt") == 1
    waited = threading.Event()
    for _ in range(100):
        if not any(_runs(pid) for pid in children) and not shared_blocks(process.pid):
            break
        waited.wait(0.1)
    assert not any(_runs(pid) for pid in children)
    assert not shared_blocks(process.pid)


@pytest.mark.parametrize("pause", [0.0, 1.0])
def test_a_loader_that_is_closed_in_a_pass_ends_it(pause: float) -> None:
    loader = make(transform=transforms.slow, transform_workers=2)
    batches = iter(loader)
    next(batches)
    threading.Event().wait(pause)
    loader.close()
    with pytest.raises(BackendError, match="closed"):
        for _ in batches:
            pass
    del batches
    assert not multiprocessing.active_children()


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return False
