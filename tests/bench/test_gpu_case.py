"""Cases on a GPU on the emulated device: all tasks run and count what they do; peers' code as far as the host can."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from emulated_backend import emulated, needs_compiler

import spsample as sp
from spsample.bench import gpu
from spsample.bench.case import declared
from spsample.bench.inputs import Inputs
from spsample.bench.peers._composition import Composition, Library
from spsample.errors import InputError

__all__ = ["emulated"]

SIZES = {"batches": 3, "batch_size": 20, "bulk_size": 2, "fanouts": "4,3", "dim": 5, "hidden": 8, "threads": 1}


class HostEvent:
    """Stands for an event of a GPU where the host does the work."""

    def record(self):
        self.seconds = time.perf_counter()

    def synchronize(self):
        """Nothing is under way."""

    def elapsed_time(self, later):
        return 1e3 * (later.seconds - self.seconds)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder, graph = tmp_path_factory.mktemp("store"), sp.load_dataset("rmat:9,6").graph
    for name in ("indptr", "indices"):
        np.save(folder / f"{name}.npy", getattr(graph, name))
    return folder


@pytest.fixture
def device(emulated, monkeypatch):
    monkeypatch.setattr(gpu, "event", HostEvent)
    return emulated


def figures_of(case, store, **values):
    """What all of our sides say, by name: what the case counts is given to them."""
    declares = declared("cases", case)
    values = {**SIZES, "times": "bulk", **values}
    if declares.count is not None:
        values |= declares.count(Inputs(store, values))()
    return {side.name: side.task(Inputs(store, {**values, **side.options}))() for side in declares.sides}, values


@needs_compiler
@pytest.mark.parametrize("sampling", ["sage:4,3", "weighted:4,3", "ladies:12,9"])
def test_bulks_are_the_same_wherever_they_are_sampled(device, store, sampling):
    said, counted = figures_of("gpu", store, sampling=sampling)
    assert len({one["edges"] for one in said.values()}) == 1
    assert {one["batches"] for one in said.values()} == {3}
    edges = counted["batch_bus_bytes"] / 32
    assert counted["batch_bytes"] > 8 * edges > 0


@needs_compiler
def test_each_launch_of_a_bulk_is_timed(device, store):
    bulk, said = sp.bench.cases.gpu.bulk, {}
    for by in ("kernel", "source"):
        work = bulk(Inputs(store, {**SIZES, "sampling": "weighted:4,3", "times": by}))
        before = device.launches
        figures = work()
        assert device.launches - before == figures["launches"] > 0
        said[by] = {name.removesuffix("_ms"): figures[name] for name in figures if name.endswith("_ms")}
        assert said[by].pop("host") > said[by]["kernels"] == figures["kernels_ms"] > 0
        assert said[by].pop("kernels") == pytest.approx(sum(said[by].values()))
    assert "launch" not in vars(device)  # as it was
    assert set(said["kernel"]) <= device.kernels
    assert len(said["source"]) < len(said["kernel"])


@needs_compiler
def test_rows_over_the_bus_are_those_that_the_kernel_reads_there(device, store):
    case = declared("cases", "gpu_features")
    said, counted = figures_of("gpu_features", store)
    shares = {side.options["hot"]: said[side.name] for side in case.sides if "hot" in side.options}
    hits = [shares[share]["hits"] for share in sorted(shares)]
    assert hits == sorted(hits)
    assert (hits[0], hits[-1]) == (0, 1)
    rows = {one["rows"] for one in said.values()}
    assert {4 * 5 * row / 3 for row in rows} == {counted["batch_bus_bytes"]}
    inputs = Inputs(store, {**SIZES, "hot": 0.2})
    source, read = gathering(case, inputs)
    places, cold = device.to_host(source._tiers.places), source._tiers.pinned
    begins = (places[read] - np.uint64(device.address(cold))).astype(np.int64)
    begins = begins[(begins >= 0) & (begins < cold.nbytes)]
    sectors = sum(len({byte // 32 for byte in range(begin, begin + 20)}) for begin in begins.tolist())
    assert shares[0.2]["bus_bytes"] == 32 * sectors
    assert shares[0.2]["hits"] == pytest.approx(1 - len(begins) / len(read))


def gathering(case, inputs):
    """The features of a tiered side, and the ids that it is asked for."""
    made, ids = [], []
    with pytest.MonkeyPatch.context() as patch:
        gather = sp.DeviceFeatures.gather
        patch.setattr(
            sp.DeviceFeatures, "gather", lambda self, some: (made.append(self), ids.append(some), gather(self, some))
        )
        next(side for side in case.sides if "hot" in side.options).task(inputs)()
    return made[0], np.concatenate([one.host for one in ids])


@needs_compiler
def test_ways_to_gather_give_the_same_rows(device, store, monkeypatch):
    torch = pytest.importorskip("torch")
    module, rows = sp.bench.cases.gpu_features, []
    monkeypatch.setattr(module, "_gathered", lambda batches, gather, figures: rows.append((batches, gather)))
    inputs = Inputs(store, {**SIZES, "hot": 0.2})
    module.tiered(inputs)
    module.by_torch(inputs)
    for batches, gather in rows:
        for ids in batches:
            there = torch.from_dlpack(gather(device.to_device(ids)))
            np.testing.assert_array_equal(there.numpy(), inputs.x[ids])


@needs_compiler
def test_epochs_by_phase_and_by_loaders(device, store):
    pytest.importorskip("torch")
    said, _ = figures_of("gpu_epoch", store)
    assert {one["batches"] for one in said.values()} == {3}
    phases = said["spsample, all on the GPU, by phase"]
    parts = [phases[f"{phase}_ms"] for phase in ("sampling", "features", "propagation")]
    assert min(parts) > 0
    assert sum(parts) <= 1e3 * phases["seconds"] / 3
    assert all(np.isfinite(one["loss"]) for one in said.values())


def test_a_host_without_a_gpu_lacks_it(store, monkeypatch):
    from spsample.errors import BackendError

    def fails(_):
        raise BackendError("CuPy finds none")

    monkeypatch.setattr("spsample.backends.get_backend", fails)
    inputs = Inputs(
        store, {**SIZES, "sampling": "sage:4,3", "times": "bulk", "place": "device", "prefetch": 0, "hot": 1.0}
    )
    for case in ("gpu", "gpu_features", "gpu_epoch"):
        for side in declared("cases", case).sides:
            if side.name != "spsample cpu":
                with pytest.raises(ImportError, match="CuPy finds none"):
                    side.task(inputs)


def test_samplings_that_are_unknown_are_named():
    for given in ("sages:4,3", "sage", "sage:a"):
        with pytest.raises(InputError, match="weighted:15,10,5"):
            declared("cases", "gpu").valid({"sampling": given, "times": "bulk"})
    with pytest.raises(InputError, match="Did you mean 'kernel'"):
        declared("cases", "gpu").valid({"sampling": "ladies:64,64", "times": "kernels"})
    assert declared("cases", "gpu").valid({"sampling": "ladies:64,64", "times": "kernel"})


# --- bytes that must move ---------------------------------------------------------------------------------------------


def layer_of(rows, sources, ends, positions, data=None):
    adj = SimpleNamespace(indptr=np.array(ends), nnz=len(positions), data=data)
    arrays = {"dst_nodes": np.array(rows, np.int32), "src_nodes": np.array(sources, np.int32)}
    return SimpleNamespace(adj=adj, edge_ids=np.array(positions, np.int64), **arrays)


def test_bytes_of_layers():
    case = sp.bench.cases.gpu
    layer = layer_of([0, 1], [0, 1, 2], [0, 2, 3], [1, 17, 20])
    sectors = 1 + 1 + 2 + 1  # the ends of both rows, two sectors of row 0, one of row 1
    assert case.node_wise_bytes(layer) == 32 * sectors + 4 * (2 + 3 * 3 + 3) + 8 * 3
    assert case.node_wise_bytes(layer, 4) == 32 * (sectors + 3) + 4 * 14 + 4 * 3 + 24
    layer = layer_of([0, 1], [0, 1, 2], [0, 1, 2], [1, 20], np.ones(2, np.float32))
    sectors = 2 * 2 + 1 + (3 + 1)
    assert case.layer_wise_bytes(layer, np.array([0, 20, 21, 21])) == 32 * sectors + 4 * 6 + 2 * 8 + 8 * 3


# --- the composition --------------------------------------------------------------------------------------------------


def composition(store, weighted=False):
    inputs = Inputs(store, {**SIZES, "sampling": "weighted:1" if weighted else "sage:1"})
    A = (inputs.indptr, inputs.indices, gpu.Sampling.of(inputs).weights(inputs))
    return inputs, Composition(Library(np, scipy.sparse), A, random_seed=1, most_entries=500)


def check_layer(inputs, layer, k):
    """Entries are distinct ones of A, in order; sources of each batch ascend, and hold its targets."""
    n, sources = len(inputs.indptr) - 1, sources_of(layer)
    entries = np.repeat(np.arange(n), np.diff(inputs.indptr)) * n + inputs.indices
    assert np.isin(layer.rows[layer.entry_rows] * n + sources, entries).all()
    assert (np.diff(layer.entry_rows) >= 0).all()
    assert len(np.unique(layer.entry_rows * n + sources)) == layer.nnz
    for i in range(k):
        of_batch = layer.sources[layer.source_ptr[i] : layer.source_ptr[i + 1]]
        assert (np.diff(of_batch) > 0).all()
        assert np.isin(layer.rows[layer.row_batch == i], of_batch).all()


def sources_of(layer):
    return layer.sources[layer.source_ptr[layer.row_batch[layer.entry_rows]] + layer.columns]


@pytest.mark.parametrize("weighted", [False, True])
def test_composed_graphsage(store, weighted):
    inputs, made = composition(store, weighted)
    for layer, fanout in zip(made.graphsage(inputs.seeds, [6, 4]), [6, 4], strict=True):
        check_layer(inputs, layer, 3)
        drawn = np.bincount(layer.entry_rows, minlength=len(layer.rows))
        np.testing.assert_array_equal(drawn, np.minimum(np.diff(inputs.indptr)[layer.rows], fanout))


def test_composed_ladies(store):
    inputs, made = composition(store)
    A = scipy.sparse.csr_array((np.ones(len(inputs.indices)), inputs.indices, inputs.indptr))
    for layer, size in zip(made.ladies(inputs.seeds, [12, 9]), [12, 9], strict=True):
        check_layer(inputs, layer, 3)
        for i in range(3):
            targets = layer.rows[layer.row_batch == i]
            sources = layer.sources[layer.source_ptr[i] : layer.source_ptr[i + 1]]
            of_batch = layer.row_batch[layer.entry_rows] == i
            assert of_batch.sum() == A[targets][:, sources].nnz  # every entry in these rows and columns
            counts, columns = np.asarray(A[targets].sum(axis=0)).ravel(), sources_of(layer)[of_batch]
            new = ~np.isin(columns, targets)
            expected = counts.sum() / (size * counts[columns])
            np.testing.assert_allclose(layer.values[of_batch][new], expected[new], rtol=1e-5)


def test_the_composition_draws_by_weight(store):
    """One draw of one row, many times, by inverse transform sampling and by the smallest variates alike."""
    _, made = composition(store)
    rows, many = np.arange(20_001) * 4, np.tile([1.0, 2.0, 3.0, 4.0], 20_000)
    draws = made._its(rows, many, 1), made._smallest(rows, many, np.zeros(0, np.int64), np.ones(20_000, np.int64))
    for drawn in draws:
        assert np.abs(np.bincount(drawn % 4, minlength=4) / 20_000 - np.arange(1, 5) / 10).max() < 0.015
