"""The stage that copies batches to a device: what is copied, the order of streams and buffers, and what is refused."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
from collections import Counter, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import spsample as sp
from spsample.backends.cuda import cupy_device
from spsample.comm import run_threads
from spsample.data import planted
from spsample.distributed import ProcessGrid, ReplicatedGraph
from spsample.errors import BackendError, DTypeError, InputError
from spsample.features import CachedFeatures, DiskFeatures, FeatureStore, PartitionedFeatures
from spsample.loading import FactoredLoader
from spsample.loading.copies import Copies, copies_to, require_device, tree_map
from spsample.timeline import Phases, Timeline, stage_times

torch = pytest.importorskip("torch")

from spsample.loading import transfer as transfer_module  # noqa: E402
from spsample.loading.transfer import UNDER_WAY, PackedTensors, PinnedTransfer  # noqa: E402
from tests.unit.lazy_cuda import LazyCuda, PooledCuda  # noqa: E402

DATA = planted(600, degree=6, random_seed=1)
SEEDS = np.arange(0, 600, 2)
X = np.tile(DATA.x, (1, 8))
SAMPLERS = [
    sp.GraphSAGE([3, 2]),
    sp.GraphSAGE([3, 2], layout="subgraph"),
    sp.GraphSAGE([3, 2], include_targets=False),
    sp.LADIES([40, 30]),
]


def make(**changes: Any) -> sp.BulkLoader:
    options: dict[str, Any] = {"batch_size": 16, "bulk_size": 3, "features": X, "labels": DATA.y, **changes}
    graph, sampler = options.pop("graph", DATA.graph), options.pop("sampler", SAMPLERS[0])
    return sp.BulkLoader(graph, SEEDS, sampler, **options)


def arrays_of(value: Any) -> list[Any]:
    found: list[Any] = []

    def note(array: Any) -> Any:
        found.append(array)
        return array

    tree_map(value, note)
    return found


def assert_same(batch: Any, copied: Any) -> None:
    """Arrays as tensors, the same in type and shape and to the bit; all else as it is."""
    pairs = list(zip(arrays_of(batch), arrays_of(copied), strict=True))
    for array, tensor in pairs:
        assert type(tensor).__mro__[-3:] == torch.Tensor.__mro__[-3:]
        np.testing.assert_array_equal(np.asarray(array), tensor.as_subclass(torch.Tensor).numpy(), strict=True)
    assert batch.batch_id == copied.batch_id
    np.testing.assert_array_equal(batch.input_id, copied.input_id)
    np.testing.assert_array_equal(batch.minibatch.seed_inverse, copied.minibatch.seed_inverse)
    assert [layer.adj.shape for layer in batch.layers] == [layer.adj.shape for layer in copied.layers]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    gc.collect()
    assert not any(thread.name.startswith("spsample") for thread in threading.enumerate())


# ---- what is copied


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"prefetch": 0},
        {},
        {"fetch": "bulk", "bulk_size": 5},
        {"stage_threads": "1,2", "prefetch": 3},
        {"prefetch_budget": 1},
        {"features": None, "labels": None},
        {"graph": DATA.graph.normalized("row"), "labels": np.eye(4)[DATA.y]},
    ],
    ids=str,
)
def test_batches_are_those_of_a_loader_without_it(options: Any, sampler: Any) -> None:
    options = {"edge_ids": True, "sampler": sampler, **options}
    host, copied = make(**options), make(device="cpu", **options)
    for _ in range(2):
        for batch, other in zip(host, copied, strict=True):
            assert_same(batch, other)
    assert copied.device == torch.device("cpu")
    assert host.device is None


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_nothing_that_training_reads_is_left_on_the_host(sampler: Any) -> None:
    copied = make(device="meta", edge_ids=True, sampler=sampler)
    for batch in copied:
        arrays = [batch.x, batch.y, batch.seeds, batch.src_nodes]
        for layer in batch.layers:
            arrays += [layer.adj.indptr, layer.adj.indices, layer.src_nodes, layer.dst_nodes, layer.edge_ids]
            arrays += [] if layer.adj.data is None else [layer.adj.data]
        assert {array.device.type for array in arrays} == {"meta"}


def test_a_batch_keeps_no_bulk_and_owns_its_memory() -> None:
    copied = make(device="cpu", prefetch=0)
    batch = next(iter(copied))
    assert len(batch.minibatch._bulk) == 1
    wholes = {array.untyped_storage().data_ptr() for array in arrays_of(batch)}
    assert len(wholes) == 1


def test_memory_that_layers_share_is_copied_once() -> None:
    batch = next(iter(make(prefetch=0, sampler=SAMPLERS[1])))
    arrays = arrays_of(batch)
    distinct = {(one.ctypes.data, one.nbytes) for one in arrays}
    largest = sum(nbytes for _, nbytes in distinct)
    assert sum(one.nbytes for one in arrays) > largest > PackedTensors(arrays).nbytes  # some are parts of others
    assert next(iter(make(device="cpu", sampler=SAMPLERS[1]))).seeds.data_ptr() % 64 == 0


def views(draw: Any) -> list[Any]:
    base = np.arange(draw(st.integers(0, 40)), dtype="i8").astype(draw(st.sampled_from(["i4", "i8", "f4", "u1", "?"])))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        first, last = sorted(draw(st.tuples(st.integers(0, len(base)), st.integers(0, len(base)))))
        found.append(base[first : last : draw(st.sampled_from([1, 1, 2, -1]))])
    return found


@given(st.lists(st.composite(lambda draw: views(draw))(), max_size=4))
def test_any_arrays_come_out_as_they_went_in(groups: Any) -> None:
    arrays = [array for group in groups for array in group]
    arrays += [torch.tensor([1.5, -2.0], dtype=torch.bfloat16), np.array(3.0, np.float32), np.zeros((0, 3))]
    packed = PackedTensors(arrays)
    memory = np.full(packed.nbytes, 7, np.uint8)
    packed.write(memory)
    for array, tensor in zip(arrays, packed.tensors(torch.from_numpy(memory)), strict=True):
        expected = torch.from_numpy(array.copy()) if isinstance(array, np.ndarray) else array
        assert torch.equal(expected, tensor)
        assert tensor.shape == array.shape


def test_conversions_of_copied_minibatches() -> None:
    pytest.importorskip("torch_geometric")
    for sampler in (SAMPLERS[0], SAMPLERS[3]):
        one, other = (next(iter(make(edge_ids=True, sampler=sampler, device=d))).minibatch for d in (None, "cpu"))
        for first, second in zip(one.to_pyg()[2], other.to_pyg()[2], strict=True):
            assert torch.equal(first.edge_index, second.edge_index)
            assert torch.equal(first.e_id, second.e_id)
        assert torch.equal(one.to_pyg()[1], other.to_pyg()[1])
        for first, second in zip(one.to_torch_csr(), other.to_torch_csr(), strict=True):
            assert torch.equal(first.to_dense(), second.to_dense())
        for first, second in zip(one.to_scipy(), other.to_scipy(), strict=True):
            assert (first != second).nnz == 0
        for again in (other.copy(), pickle.loads(pickle.dumps(other)), copy.deepcopy(other)):
            assert torch.equal(again.src_nodes, other.src_nodes)
            assert again.src_nodes.data_ptr() != other.src_nodes.data_ptr()
            np.testing.assert_array_equal(again.seed_inverse, other.seed_inverse)


def test_pygs_data_is_copied() -> None:
    pytest.importorskip("torch_geometric")
    host, copied, meta = (make(sampler=SAMPLERS[1], edge_ids=True, device=d).pyg() for d in (None, "cpu", "meta"))
    for data, other, there in zip(host, copied, meta, strict=True):
        for key, value in data.to_dict().items():
            assert torch.equal(value, other[key]) if torch.is_tensor(value) else value == other[key]
            assert not torch.is_tensor(value) or there[key].device.type == "meta"


# ---- a transform comes before


Pair = namedtuple("Pair", "x y")


def test_what_a_transform_returns_is_copied() -> None:
    def transform(batch: Any) -> Any:
        assert isinstance(batch.x, np.ndarray)
        inner = {"seeds": batch.seeds, "id": batch.batch_id, "nothing": None}
        return Pair(torch.from_numpy(batch.x).bfloat16(), [(batch.y, "text"), inner, batch.minibatch])

    for prefetch in (0, 1):
        got = list(make(transform=transform, device="cpu", prefetch=prefetch))
        for batch, pair in zip(make(prefetch=0), got, strict=True):
            assert type(pair) is Pair
            assert torch.equal(pair.x, torch.from_numpy(batch.x).bfloat16())
            (y, text), inner, minibatch = pair.y
            assert (text, inner["id"], inner["nothing"]) == ("text", batch.batch_id, None)
            assert y.tolist() == batch.y.tolist()
            assert inner["seeds"].tolist() == batch.seeds.tolist() == minibatch.seeds.tolist()


def test_blocks_that_a_transform_makes_are_copied() -> None:
    from spsample.training import BlockMaker

    maker = BlockMaker(DATA.graph, SAMPLERS[0])
    host = make(transform=lambda batch: [maker(layer) for layer in batch.layers], prefetch=0)
    there = make(transform=lambda batch: [maker(layer) for layer in batch.layers], device="cpu")
    for blocks, others in zip(host, there, strict=True):
        for block, other in zip(blocks, others, strict=True):
            assert torch.equal(block.values, other.values)
            assert torch.equal(block.degrees, other.degrees)


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda batch: object(), r"transform: got .*object.* to be copied to a device"),
        (lambda batch: torch.eye(3).to_sparse(), r"transform: got a tensor of layout"),
        (lambda batch: torch.ones(3, requires_grad=True), r"transform: got a tensor of layout.*requires_grad=True"),
        (lambda batch: np.array(["a"]), r"array: got dtype <U1, to be copied"),
        (lambda batch: np.zeros(2, ">f4"), r"array: got dtype >f4, to be copied"),
    ],
)
def test_what_nobody_knows_to_copy_is_refused(made: Any, message: str, prefetch: int) -> None:
    with pytest.raises(DTypeError, match=message):
        next(iter(make(transform=made, device="cpu", prefetch=prefetch)))


# ---- streams and buffers


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> LazyCuda:
    """Loaders of the device "cpu" copy as those of a GPU do."""
    cuda = LazyCuda()
    monkeypatch.setattr(transfer_module, "transfer_to", lambda device: PinnedTransfer(cuda))
    return cuda


def read_late(cuda: LazyCuda, batches: Any) -> list[Any]:
    """What work of the loop's stream finds that is done long after the batches were let go."""
    found: list[Any] = []
    for batch in batches:
        arrays = [array.as_subclass(torch.Tensor) for array in arrays_of(batch)]
        cuda.loop.give(lambda arrays=arrays: found.append([array.clone() for array in arrays]))
    cuda.loop.run()
    return found


@pytest.mark.parametrize("options", [{"prefetch": 0}, {}, {"prefetch": 2, "stage_threads": "1,1"}, {"fetch": "bulk"}])
def test_work_on_a_copied_batch_sees_all_of_it(lazy: LazyCuda, options: Any) -> None:
    read = read_late(lazy, make(device="cpu", **options))
    for batch, found in zip(make(prefetch=0), read, strict=True):
        for array, tensor in zip(arrays_of(batch), found, strict=True):
            np.testing.assert_array_equal(array, tensor.numpy())
    assert lazy.log == [("wait_event", "loop"), ("record_stream", "loop")] * len(read)  # before it is delivered
    assert len(lazy.events) == len(read)
    assert sum(event.waits for event in lazy.events) == len(read) - UNDER_WAY


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> LazyCuda:
    """The same, of features that are gathered into pinned memory however few they are."""
    cuda = LazyCuda()
    monkeypatch.setattr(transfer_module, "transfer_to", lambda device: PinnedTransfer(cuda, min_rows=1))
    return cuda


def with_views(batch: Any) -> Any:
    """Arrays that begin where the rows of features do, and are less or laid out otherwise."""
    x = batch.x
    made = {"all": x, "again": torch.from_numpy(x), "few": x[:3], "part": x[:, :2], "every": x[::2], "across": x.T}
    return {**made, "others": x[3:], "none": x[:0], "bytes": x.view(np.uint8)[:, 1:-1]}


def with_overlaps(batch: Any) -> Any:
    """Arrays that share rows of features, none of which has all."""
    return {"first": batch.x[:5], "last": batch.x[3:]}


@pytest.mark.parametrize("options", [{"prefetch": 0}, {}, {"prefetch": 2, "stage_threads": "1,1"}, {"fetch": "bulk"}])
def test_features_are_gathered_into_pinned_memory_and_copied_from_there(apart: LazyCuda, options: Any) -> None:
    read = read_late(apart, make(device="cpu", **options))
    batches = list(make(prefetch=0))
    for batch, found in zip(batches, read, strict=True):
        for array, tensor in zip(arrays_of(batch), found, strict=True):
            np.testing.assert_array_equal(array, tensor.numpy())
    assert apart.log == [("wait_event", "loop"), ("record_stream", "loop")] * 2 * len(read)
    rows = [batch.x.nbytes for batch in batches]
    assert not Counter(rows) - Counter(apart.buffers)


@pytest.mark.parametrize("transform", [with_views, with_overlaps])
def test_what_a_transform_makes_of_pinned_features(apart: LazyCuda, transform: Any) -> None:
    read = read_late(apart, make(device="cpu", transform=transform))
    for batch, found in zip(make(prefetch=0), read, strict=True):
        for array, tensor in zip(transform(batch).values(), found, strict=True):
            np.testing.assert_array_equal(np.asarray(array), tensor.numpy())
    assert len(apart.events) == 2 * len(read)  # the rows cross once, however many arrays share them


def test_arrays_that_share_pinned_features_share_them_on_the_device(apart: LazyCuda) -> None:
    batch = next(iter(make(device="cpu", transform=with_views, prefetch=0)))
    wholes = [array.untyped_storage().data_ptr() for array in batch.values()]
    assert len(set(wholes)) == 2
    assert wholes[0] == wholes[1] == wholes[2] == wholes[6]


class WithoutPinnedRows:
    """Calls of a GPU whose host has pinned memory for all but rows."""

    def __init__(self, calls: LazyCuda) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)

    def pinned(self, nbytes: int) -> Any:
        if sys._getframe(1).f_code.co_name == "rows":
            raise MemoryError
        return self._calls.pinned(nbytes)


def test_without_pinned_memory_features_are_copied_with_the_rest(
    apart: LazyCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = WithoutPinnedRows(apart)
    monkeypatch.setattr(transfer_module, "transfer_to", lambda device: PinnedTransfer(calls, min_rows=1))
    read = read_late(apart, make(device="cpu"))
    for batch, found in zip(make(prefetch=0), read, strict=True):
        for array, tensor in zip(arrays_of(batch), found, strict=True):
            np.testing.assert_array_equal(array, tensor.numpy())


def test_factored_loaders_gather_into_pinned_memory(apart: LazyCuda) -> None:
    def body(comm: Any) -> Any:
        options = {"batch_size": 16, "sampler_ranks": 1, "features": X, "device": "cpu"}
        loader = FactoredLoader(ReplicatedGraph(DATA.graph, comm), SEEDS, SAMPLERS[0], **options)
        batches = list(loader)
        loader.close()
        return {batch.batch_id: batch.x for batch in batches}

    first, second = run_threads(2, body)
    found = first | second
    apart.loop.run()
    batches = list(make(prefetch=0))
    for batch in batches:
        np.testing.assert_array_equal(batch.x, found.pop(batch.batch_id).as_subclass(torch.Tensor).numpy())
    assert not found
    assert {batch.x.nbytes for batch in batches} <= set(apart.buffers)


def sources(folder: Any) -> dict[str, Any]:
    """Features of each kind."""
    np.save(folder / "x.npy", X)
    half = FeatureStore(X.astype(np.float16))
    return {
        "float16": half,
        "float64": X.astype(np.float64),
        "int8": FeatureStore(np.round(X).astype(np.int8)),
        "sparse": sparse.csr_matrix(X),
        "cached": CachedFeatures(half, "12KiB", np.arange(len(X))),
        "ahead": CachedFeatures(FeatureStore(X), "12KiB", np.arange(len(X)), replacement="lookahead"),
        "disk": DiskFeatures(folder / "x.npy", "1MiB"),
    }


@pytest.mark.parametrize("kind", ["float16", "float64", "int8", "sparse", "cached", "ahead", "disk"])
@pytest.mark.parametrize("options", [{}, {"fetch": "bulk"}], ids=str)
def test_features_of_any_kind_go_to_pinned_memory(apart: LazyCuda, tmp_path: Any, kind: str, options: Any) -> None:
    read = read_late(apart, make(device="cpu", features=sources(tmp_path)[kind], **options))
    batches = list(make(prefetch=0, features=sources(tmp_path)[kind]))
    for batch, found in zip(batches, read, strict=True):
        for array, tensor in zip(arrays_of(batch), found, strict=True):
            np.testing.assert_array_equal(array, tensor.numpy())
    assert not Counter(batch.x.nbytes for batch in batches) - Counter(apart.buffers)


@pytest.mark.parametrize("batches", ["shuffled", "cooperative"])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_ranks_gather_into_pinned_memory(apart: LazyCuda, batches: str, prefetch: int) -> None:
    """Also where one of them has none."""

    def body(comm: Any) -> Any:
        grid = ProcessGrid(comm)
        features = PartitionedFeatures.of(X, grid)
        options = {"graph": ReplicatedGraph(DATA.graph, comm), "batches": batches, "features": features}
        expected = list(make(**options, prefetch=0))
        loader = make(**options, prefetch=prefetch, device="cpu")
        if comm.rank:
            loader._copies._transfer._calls = WithoutPinnedRows(apart)
        found = list(loader)
        loader.close()
        return expected, found

    for expected, found in run_threads(2, body, 60):
        apart.loop.run()
        for batch, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(batch.x, other.x.as_subclass(torch.Tensor).numpy())


def test_plans_count_what_pinned_memory_of_a_gpu_may_take() -> None:
    on_host, on_gpu = (Copies(torch.device(name), transfer=object()) for name in ("cpu", "cuda:0"))
    assert on_gpu.batches == 2 * on_host.batches


class Untold(PinnedTransfer):
    """Copies pinned memory as another tensor than that of its pool."""

    def send_rows(self, values: Any) -> Any:
        memory = self._rows.get(transfer_module.address_of(values))
        return None if memory is None else self._copied(torch.from_numpy(memory)[: values.nbytes])


@pytest.mark.parametrize("transform", [None, with_views, with_overlaps])
@pytest.mark.parametrize("options", [{"prefetch": 0}, {}, {"prefetch": 2, "stage_threads": "1,1"}, {"fetch": "bulk"}])
@pytest.mark.parametrize("kind", [PinnedTransfer, Untold])
def test_pinned_memory_is_given_out_again_after_its_copies(
    monkeypatch: pytest.MonkeyPatch, kind: Any, options: Any, transform: Any
) -> None:
    cuda = PooledCuda()
    monkeypatch.setattr(transfer_module, "transfer_to", lambda device: kind(cuda, min_rows=1))
    read = read_late(cuda, make(device="cpu", transform=transform, **options))
    made = [arrays_of(batch if transform is None else transform(batch)) for batch in make(prefetch=0)]
    is_right = [
        all(np.array_equal(np.asarray(array), tensor.numpy()) for array, tensor in zip(arrays, found, strict=True))
        for arrays, found in zip(made, read, strict=True)
    ]
    assert all(is_right) == (kind is PinnedTransfer)
    assert len(cuda.blocks) < len(cuda.buffers)  # some has been given out again


def test_pinned_features_are_let_go_of(apart: LazyCuda) -> None:
    transfer = PinnedTransfer(apart, min_rows=8)
    assert transfer.rows(1, 1) is None
    assert transfer.rows(0, 4) is None
    rows = transfer.rows(2, 3)
    assert rows.shape == (2, 3)
    assert rows.dtype == np.float32
    assert transfer.send_rows(rows.copy().reshape(-1).view(np.uint8)) is None
    bytes_ = rows.reshape(-1).view(np.uint8)
    del rows
    assert len(transfer.send_rows(bytes_).whole) == 24
    del bytes_
    gc.collect()
    apart.loop.run()
    transfer._stream.run()
    assert not len(transfer._rows)


def test_what_is_staged_is_on_the_host_whatever_the_default_device() -> None:
    with torch.device("meta"):
        copied = list(make(device="cpu", prefetch=0))
    for batch, other in zip(make(prefetch=0), copied, strict=True):
        assert_same(batch, other)


def test_copies_under_way_are_few(lazy: LazyCuda) -> None:
    transfer = PinnedTransfer(lazy)
    sizes = [10, 1 << 20, 0, 20, 2 << 20]
    landed = [transfer.send(size, lambda memory, fill=fill: memory.fill(fill)) for fill, size in enumerate(sizes)]
    for one in landed:
        transfer.receive(one)
    lazy.loop.run()
    assert [one.whole.unique().tolist() for one in landed] == [[fill] if n else [] for fill, n in enumerate(sizes)]
    assert lazy.buffers == sizes
    assert [event.waits for event in lazy.events] == [1, 1, 1, 0, 0]


def test_two_passes_at_once(lazy: LazyCuda) -> None:
    loader = make(device="cpu")
    expected = [batch.batch_id for batch in make(prefetch=0)]
    assert [(one.batch_id, other.batch_id) for one, other in zip(loader, loader, strict=True)] == [
        (i, i) for i in expected
    ]


class Careless(PinnedTransfer):
    """Lets batches be used before they are there."""

    def receive(self, landed: Any) -> None:
        pass


def test_the_stand_in_finds_haste(lazy: LazyCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_module, "transfer_to", lambda device: Careless(lazy))
    read = read_late(lazy, make(device="cpu"))
    xs = [found[-2] for found in read]
    assert not all(np.array_equal(batch.x, x.numpy()) for batch, x in zip(make(prefetch=0), xs, strict=True))


def test_a_failure_leaves_nothing_under_way(lazy: LazyCuda) -> None:
    transfer = PinnedTransfer(lazy)

    def failing(memory: Any) -> None:
        raise MemoryError

    for _ in range(3):
        with pytest.raises(MemoryError):
            transfer.send(5, failing)
    assert transfer.send(5, lambda memory: memory.fill(1)).whole.shape == (5,)
    assert len(lazy.events) == 1


# ---- as a stage


def test_its_thread_seconds_and_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    names, full, timed = set(), threading.Event(), Phases.timed

    def noted(self: Phases, phase: str, batch: int | None = None) -> Any:
        if phase == "copies waiting for room":
            full.set()
        return timed(self, phase, batch)

    monkeypatch.setattr(Phases, "timed", noted)

    def transform(batch: Any) -> Any:
        names.update(thread.name for thread in threading.enumerate())
        return batch

    loader = make(device="cpu", transform=transform)
    assert list(loader.seconds) == ["sampling", "features", "copies", "waiting"]
    assert list(make().seconds) == ["sampling", "features", "waiting"]
    for _ in loader:
        assert full.wait(60)  # until copies wait for room
    assert "spsample copies" in names
    stages = {one.stage: one for one in stage_times({**loader.seconds, "training": 1.0})}
    assert list(stages) == ["sampling", "features", "copies", "training"]
    assert stages["copies"].worked > 0
    assert set(stages["copies"].waited) == {"input", "room"}
    in_turn = make(device="cpu", prefetch=0)
    list(in_turn)
    assert in_turn.seconds["copies"] > 0


def test_its_spans_are_in_the_timeline(tmp_path: Any) -> None:
    import json

    with Timeline(tmp_path / "trace.json") as timeline:
        batches = [batch.batch_id for batch in make(device="cpu", timeline=timeline)]
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    copied = [one["args"]["batch"] for one in events if one.get("name") == "copies"]
    assert copied == batches


def test_it_is_ahead_of_the_loop_by_no_more_than_its_queue() -> None:
    copied: list[int] = []
    loader = make(device="cpu", prefetch_budget="1GiB", bulk_size=64)
    original = loader._copies.sent
    loader._copies.sent = lambda batch: copied.append(batch.batch_id) or original(batch)
    event = threading.Event()
    for number, batch in enumerate(loader):
        event.wait(0.02)
        assert batch.batch_id == number
        assert number < len(copied) <= number + 3


def test_passes_that_are_left_resumed_and_repeated() -> None:
    host, copied = make(), make(device="cpu")
    for loader in (host, copied):
        batches = iter(loader)
        for _ in range(5):
            next(batches)
    state = copied.state_dict()
    assert state == host.state_dict()
    again = make(device="cpu")
    again.load_state_dict(state)
    host.load_state_dict(state)
    for batch, other in zip(host, again, strict=True):
        assert_same(batch, other)


def test_an_error_comes_after_the_batches_before_it() -> None:
    for options in ({}, {"stage_threads": "1,1"}, {"prefetch": 0}):
        seen = []

        def transform(batch: Any) -> Any:
            if batch.batch_id == 7:
                raise RuntimeError("batch 7")
            return batch

        with pytest.raises(RuntimeError, match="batch 7"):
            seen.extend(batch.batch_id for batch in make(device="cpu", transform=transform, **options))
        assert seen == list(range(7))
        loader = make(device="cpu", **options)
        original = loader._copies.sent
        loader._copies.sent = lambda batch, sent=original: sent(batch if batch.batch_id < 6 else object())
        seen.clear()
        with pytest.raises(DTypeError, match="transform"):
            seen.extend(batch.batch_id for batch in loader)
        assert seen == list(range(6))


def test_loaders_are_copied_and_pickled() -> None:
    loader = make(device="cpu")
    for again in (copy.deepcopy(loader), pickle.loads(pickle.dumps(make(device="cpu", prefetch=0)))):
        for batch, other in zip(make(prefetch=0), again, strict=True):
            assert_same(batch, other)


def test_memory_is_planned_for_more_batches() -> None:
    plans = [make(device=device, memory_budget="64MiB").plan for device in (None, "cpu")]
    assert plans[1].feature_bytes > 1.5 * plans[0].feature_bytes


# ---- ranks


@pytest.mark.parametrize("batches", ["shuffled", "cooperative"])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_ranks_copy_each_their_own(batches: str, prefetch: int) -> None:
    def body(comm: Any) -> Any:
        graph = ReplicatedGraph(DATA.graph, comm)
        found = []
        for device in (None, "cpu", "meta"):
            loader = make(graph=graph, batches=batches, prefetch=prefetch, device=device)
            found.append(list(loader))
            loader.close()
        return found

    for host, copied, meta in run_threads(2, body):
        for batch, other, there in zip(host, copied, meta, strict=True):
            for array, tensor in zip(arrays_of(batch), arrays_of(other), strict=True):
                np.testing.assert_array_equal(array, tensor.numpy(), strict=True)
            assert there.x.device.type == there.layers[0].adj.indices.device.type == "meta"
            assert batch.num_seeds == other.num_seeds


@pytest.mark.parametrize("prefetch", [1, 2])
def test_all_ranks_end_where_one_cannot_copy(prefetch: int) -> None:
    def body(comm: Any) -> Any:
        loader = make(graph=ReplicatedGraph(DATA.graph, comm), prefetch=prefetch, device="cpu")
        original = loader._copies.sent
        if comm.rank == 1:
            loader._copies.sent = lambda batch: original(batch if batch.batch_id < 5 else object())
        try:
            list(loader)
        except Exception as error:
            return str(error)
        finally:
            loader.close()
        return "no error"

    first, second = run_threads(2, body)
    assert "to be copied to a device" in second
    assert "rank 1" in first


def test_factored_trainers_copy() -> None:
    def body(comm: Any) -> Any:
        graph = ReplicatedGraph(DATA.graph, comm)
        options = {"batch_size": 16, "sampler_ranks": 1, "features": X, "labels": DATA.y, "edge_ids": True}
        loader = FactoredLoader(graph, SEEDS, SAMPLERS[0], device="cpu", **options)
        batches = {batch.batch_id: batch for batch in loader}
        trial = loader.trial_batch(loader.trial_bulk()[0])
        assert torch.is_tensor(trial.x)
        seconds = loader.seconds
        loader.close()
        return batches, seconds

    found = run_threads(3, body)
    batches = {number: batch for part, _ in found for number, batch in part.items()}
    for batch in make(prefetch=0, edge_ids=True):
        assert_same(batch, batches[batch.batch_id])
    assert all(seconds["copies"] > 0 for part, seconds in found if part)


# ---- training


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sampler", [sp.GraphSAGE([3, 2]), sp.LADIES([40, 30])], ids=str)
def test_losses_are_the_same_to_the_bit(sampler: Any, weighted: bool) -> None:
    pytest.importorskip("torch_geometric")
    from dataclasses import replace

    from spsample.training import ModelConfig, TrainConfig, Trainer

    data = DATA
    if weighted:
        weights = np.random.default_rng(0).exponential(size=data.graph.num_edges).astype(np.float32)
        data = replace(data, graph=sp.Graph(data.graph.indptr, data.graph.indices, weights))
    results = []
    for device in (None, "cpu", "auto"):
        config = TrainConfig(epochs=2, batch_size=64, device=device, evaluation="both")
        trainer = Trainer(data, sampler, ModelConfig(hidden=8), config)
        result = trainer.fit()
        assert ("copies" in result.seconds) == (trainer.loader.device is not None)
        results.append(([record.loss for record in result.history], result.test, result.sampled))
        trainer.close()
    assert results[0] == results[1]
    if not torch.cuda.is_available():
        assert results[2] == results[0]


@pytest.mark.parametrize("pipeline", ["cooperative", "factored"])
def test_losses_of_ranks_are_the_same_to_the_bit(pipeline: str) -> None:
    pytest.importorskip("torch_geometric")
    from dataclasses import replace

    from spsample.training import ModelConfig, TrainConfig, Trainer

    def body(comm: Any) -> Any:
        data = replace(DATA, graph=ReplicatedGraph(DATA.graph, comm))
        losses = []
        for device in (None, "cpu"):
            ranks = {"sampler_ranks": 1} if pipeline == "factored" else {}
            config = TrainConfig(epochs=2, batch_size=64, device=device, pipeline=pipeline, **ranks)
            trainer = Trainer(data, sp.GraphSAGE([3, 2]), ModelConfig(hidden=8), config)
            losses.append([record.loss for record in trainer.fit().history])
            trainer.close()
        return losses

    for host, copied in run_threads(2, body):
        assert host == copied


def test_the_command_says_what_copying_took(tmp_path: Any) -> None:
    pytest.importorskip("torch_geometric")
    import json

    from typer.testing import CliRunner

    from spsample.cli.main import app

    options = ["planted:400,5", "--epochs", "2", "--fanouts", "5", "--hidden", "8", "--batch-size", "64"]
    found = []
    for device in ([], ["--device", "cpu"], ["--device", "auto"]):
        out = tmp_path / str(len(found))
        result = CliRunner().invoke(app, ["train", *options, *device, "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert ("copies" in result.output) == ("cpu" in device)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        found.append([line["loss"] for line in lines if "loss" in line])
    assert found[0] == found[1]
    resumed = ["train", "--resume", str(tmp_path / "1"), "--epochs", "3", "--device", "auto"]
    assert CliRunner().invoke(app, resumed).exit_code == 0
    for device, message in (("gpu", "--device: got 'gpu'"), ("cuda:77", "cuda:77")):
        refused = CliRunner().invoke(app, ["train", *options, "--device", device])
        assert refused.exit_code != 0
        assert message in " ".join(refused.output.split())


# ---- what is refused


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "cuda:x", "CPU", "", "mps", "cpu:0"])
def test_names_of_no_device(device: Any) -> None:
    with pytest.raises(InputError, match=r"device: got .*expected 'cpu', 'cuda' or the number of a GPU"):
        make(device=device)


@pytest.mark.parametrize("device", [0, True, 1.5, ["cpu"]])
def test_no_names_at_all(device: Any) -> None:
    with pytest.raises(DTypeError, match="device"):
        make(device=device)


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for loader in (make, lambda **options: FactoredLoader(DATA.graph, SEEDS, SAMPLERS[0], batch_size=4, **options)):
        with pytest.raises((BackendError, InputError), match=r"device='cuda:1' needs a GPU|one rank|1 rank"):
            loader(device="cuda:1")


def test_which_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the rank, or the one that is named."""
    chosen: list[int] = []
    state = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "is_initialized": lambda: bool(chosen),
        "current_device": lambda: (chosen or [0])[-1],
        "set_device": chosen.append,
    }
    for name, function in state.items():
        monkeypatch.setattr(torch.cuda, name, function)
    for name in cupy_device.LOCAL_RANKS:
        monkeypatch.delenv(name, raising=False)
    assert require_device("device", "cuda:1") == torch.device("cuda", 1)
    assert not chosen
    monkeypatch.setenv("LOCAL_RANK", "3")
    for name in ("cuda", torch.device("cuda"), "cuda"):  # the rank's: torch has it from then on
        assert require_device("device", name) == torch.device("cuda", 1)
    assert require_device("device", "cuda:0") == torch.device("cuda", 0)
    chosen.append(0)
    assert require_device("device", "cuda") == torch.device("cuda", 0)
    with pytest.raises(InputError, match=r"device: got 'cuda:2'; expected a GPU of this machine: 'cuda:0' to 'cuda:1'"):
        require_device("device", "cuda:2")


def test_batches_that_are_made_on_a_device() -> None:
    with pytest.raises(InputError, match=r"device: got 'cuda' with a graph on a device; expected None"):
        copies_to("cuda", from_host=False)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "meta", "AUTO"])
def test_settings_of_no_device(device: Any) -> None:
    from spsample.settings import TrainConfig

    with pytest.raises(InputError, match="device"):
        TrainConfig(device=device)
    assert "device" not in TrainConfig(device="cpu").decisive()
