"""Graphs, samplers and bulks."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse
from case import Case

import spsample as sp
from spsample.features import draw_shift
from spsample.planning import scratch_bytes
from spsample.sampling import LayerwiseSampler
from spsample.sparse import CSRMatrix, Draw, ProbabilityMatrix, its_sample, normalize_rows, select_rows, spgemm
from spsample.store import from_dgl, to_scipy


class DglGraph:
    """A graph of DGL's, as far as `from_dgl` asks."""

    is_homogeneous, is_block = True, False

    def __init__(self, make):
        n = make.integer(1, 9)
        self._edges = make.rng.integers(0, n, (2, 12))
        self.num_nodes = lambda: n
        self.edata = {"w": make.spoilt(make.rng.random(12))}

    def edges(self, order):
        return tuple(self._edges)


def fuzz_graph(make, folder):
    graph = make.graph()
    assert graph.num_edges == len(graph.indices)
    to_scipy(make.either(lambda: graph))
    repr(graph)
    from_dgl(make.either(lambda: DglGraph(make)), make.either(lambda: make.choice([None, "w"])))


def fuzz_bulk_sample(make, folder):
    graph = make.either(make.graph, 0.02)
    n = graph.num_nodes if isinstance(graph, sp.Graph) else 5
    sampler = make.either(make.sampler, 0.02)
    if n > 10**5:  # an absurd id made an absurd graph
        return
    seeds = make.rng.integers(0, n, make.integer(0, 40))
    seeds = make.either(lambda: make.spoilt(seeds) if make.chance(0.3) else seeds)
    options = {"batch_size": make.either(lambda: make.integer(1, 30))}
    for name, right in (
        ("random_seed", lambda: make.integer(0, 2**62)),
        ("epoch", lambda: make.integer(0, 2**62)),
        ("first_batch", lambda: make.choice([0, 5, 2**32 - 3, 2**32 - 1])),
        ("edge_ids", lambda: make.chance(0.5)),
        ("duplicates", lambda: make.choice(["merge", "error"])),
        ("backend", lambda: make.choice([None, "cpu", "reference"])),
    ):
        if make.chance(0.4):
            options[name] = make.either(right)
    bulk = sp.bulk_sample(graph, seeds, sampler, **options)
    for minibatch in bulk:
        minibatch.to_scipy()
        repr(minibatch)
    repr(bulk)


def fuzz_csr_matrix(make, folder):
    rows, columns = make.integer(0, 12), make.integer(1, 12)
    A = make.matrix(rows, columns)
    P = normalize_rows(make.either(lambda: A))
    P.to_scipy()
    size = make.either(lambda: make.integer(1, 9))
    draw = Draw((make.integer(0, 2**32), 1), make.either(lambda: 0, 0.02), size, make.chance(0.5))
    ids = make.either(lambda: np.arange(rows)) if make.chance(0.3) else None
    if not (isinstance(size, int) and size > 10**6):
        its_sample(P, draw, batch_ids=ids)


def fuzz_spgemm(make, folder):
    a, b, c = (make.integer(0 if i == 0 else 1, 12) for i in range(3))
    A = make.matrix(a, b)
    B = make.matrix(b if make.chance(0.95) else c, c)
    backend = make.either(lambda: make.choice([None, "cpu", "reference"]))
    spgemm(make.either(lambda: A, 0.02), make.either(lambda: B, 0.02), backend=backend)
    rows = make.either(lambda: make.rng.integers(0, max(a, 1), 5))
    select_rows(A, rows, backend=backend)


def fuzz_shuffle(make, folder):
    count = make.either(lambda: make.integer(0, 99), 0.3)
    if isinstance(count, (int, np.integer)) and 10**7 < count < 2**62:
        return
    sp.shuffle(count, make.either(lambda: 3, 0.3), make.either(lambda: 3, 0.3))


def dataset_arrays(make):
    n = make.integer(6, 30)
    indptr, indices, _ = make.csr_arrays(n)
    order = make.rng.permutation(n)
    arrays = {
        "indptr": indptr,
        "indices": indices,
        "x": make.rng.normal(size=(n, 3)).astype(np.float32),
        "y": make.rng.integers(-1, 3, n),
        "train_idx": order[: n // 2],
        "val_idx": order[n // 2 : n // 2 + 1],
        "test_idx": order[n // 2 + 1 :],
        "meta": np.array('{"name": "fuzz"}'),
    }
    if make.chance(0.3):
        x = scipy.sparse.random_array((n, 4), density=0.3, rng=make.rng, format="csr")
        del arrays["x"]
        parts = {"x_indptr": x.indptr, "x_indices": x.indices, "x_data": (x.data > 0).astype(np.uint8)}
        arrays |= {**parts, "x_shape": np.array(x.shape)}
    return arrays


def fuzz_load_dataset(make, folder):
    if make.chance(0.15):
        text = make.choice(
            ["rmat:", "planted:", "digits", "rmat:3,2", "planted:30,3,2,0.1", "x.npz", "rmat:-1,2", "planted:9"]
        )
        at = make.integer(0, len(text) + 1)
        junk = make.choice(["", ",", "a", "-", ".", ":", "0", "1e9", "nan", " "])
        spec = text[:at] + junk + text[at:]
        large = any(int(number) > 40 for number in re.findall(r"\d+", spec))  # legal, and slow
        if "digits" not in spec and not (large or re.match(r"rmat:[1-9]\d", spec)):
            sp.load_dataset(make.either(lambda: spec), split=make.either(lambda: 0), random_seed=make.either(lambda: 1))
        return
    arrays = dataset_arrays(make)
    for name in list(arrays):
        if make.chance(0.05):
            del arrays[name]
        elif make.chance(0.08) and arrays[name].dtype.kind in "if":
            arrays[name] = np.asarray(make.spoilt(arrays[name]))
        elif make.chance(0.03):
            garbage = make.garbage()
            arrays[name] = garbage if isinstance(garbage, np.ndarray) else np.array(make.choice([0, "{", 1.5, b"x"]))
    buffer = io.BytesIO()
    make.choice([np.savez, np.savez_compressed])(buffer, **arrays)
    raw = bytearray(buffer.getvalue())
    kind = make.integer(0, 5)
    if kind == 0:
        del raw[make.integer(0, len(raw)) :]
    elif kind == 1:
        for _ in range(make.integer(1, 9)):
            raw[make.integer(0, len(raw))] = make.integer(0, 256)
    elif kind == 2:
        raw = restored(raw, make)
    path = Path(folder) / "fuzz.npz"
    path.write_bytes(bytes(raw))
    sp.load_dataset(str(path), split=make.either(lambda: 0))


def restored(raw, make):
    """The same archive, intact, with bytes of one .npy changed: past the checksums of the zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(bytes(raw))) as source, zipfile.ZipFile(out, "w") as target:
        names = source.namelist()
        broken = make.choice(names)
        for name in names:
            content = bytearray(source.read(name))
            if name == broken:
                for _ in range(make.integer(1, 5)):
                    content[make.integer(0, min(len(content), 140))] = make.integer(0, 256)
            target.writestr(name, bytes(content))
    return bytearray(out.getvalue())


def fuzz_samplers(make, folder):
    sampler = make.sampler()
    repr(sampler), hash(sampler), sampler.options()
    sampler.__eq__(make.garbage())


def fuzz_biased(make, folder):
    graph = make.sound_graph()
    n = graph.num_nodes
    inner = make.either(lambda: sp.GraphSAGE(make.sizes(-1), replace=make.flag(), layout="blocks"), 0.1)
    members = make.either(
        lambda: make.choice([make.spoilt(make.rng.integers(0, n, 4)), make.rng.random(n) < 0.3, np.arange(0)]), 0.1
    )
    factor = make.either(lambda: make.choice([1, 2.0, 8, 0.5, 0, -1, 1e300, float("inf"), 10**400]), 0.1)
    sampler = sp.Biased(inner, members, factor, **make.options(importance_weights=lambda: make.chance(0.5)))
    repr(sampler), hash(sampler), sampler.options(), sampler.with_sizes(make.either(lambda: [2], 0.1))
    seeds = make.rng.integers(0, n, 6)
    if make.chance(0.5):
        sp.bulk_sample(graph, seeds, sampler, batch_size=3, backend=make.choice([None, "cpu", "reference"]))
        return
    options = make.options(0.3, random_seed=lambda: make.choice([0, 2**64]))
    if make.chance(0.3):
        options["epochs"] = make.few(lambda: make.choice([1, 2, 0]))
    batch_size = make.either(lambda: 3, 0.1)
    draw_shift(make.either(lambda: graph, 0.05), seeds, make.either(lambda: sampler, 0.1), batch_size, **options)


def fuzz_plan_bulk(make, folder):
    graph = make.sound_graph()
    seeds = make.either(lambda: make.rng.integers(0, graph.num_nodes, make.integer(0, 60)))
    plan = sp.plan_bulk(
        make.either(lambda: graph, 0.02),
        seeds,
        make.either(make.sound_sampler, 0.02),
        batch_size=make.either(lambda: make.integer(1, 20)),
        **make.options(
            memory_budget=lambda: make.choice([1 << 30, "1GiB", "64 MiB", "1", None]),
            prefetch=lambda: make.integer(0, 4),
            edge_ids=lambda: make.chance(0.5),
            features=lambda: (make.integer(0, 5), make.integer(0, 500)),
            shuffle=lambda: make.chance(0.5),
            backend=lambda: make.choice([None, "cpu", "reference"]),
        ),
    )
    size = make.either(lambda: make.integer(0, 10), 0.2)
    make.choice([plan.peak, plan.require, plan.largest, plan.most_entries, plan.scratch_bytes, plan.result_bytes])(size)


def fuzz_bulk(make, folder):
    """What a bulk is asked for."""
    graph = make.sound_graph()
    seeds = make.rng.integers(0, graph.num_nodes, make.integer(1, 30))
    bulk = sp.bulk_sample(graph, seeds, make.sound_sampler(), batch_size=4)
    index = make.either(lambda: make.integer(-len(bulk), len(bulk)), 0.2)
    try:
        found = bulk[index]
    except (TypeError, IndexError):  # as lists raise
        return
    for minibatch in found if isinstance(found, list) else [found]:
        minibatch.copy(), minibatch.seed_inverse, minibatch.src_nodes
        make.choice([minibatch.to_pyg, minibatch.to_torch_csr, minibatch.to_scipy])()
        getattr(minibatch, make.choice(["num_sampled_nodes", "num_sampled_edges"]))
    scratch_bytes(make.either(lambda: graph), make.either(lambda: bulk), make.either(lambda: make.integer(1, 9)))


def fuzz_device(make, folder):
    """Where there is no GPU, that is said, whatever else is wrong."""
    graph = make.either(make.sound_graph)
    make.choice(
        [
            lambda: sp.DeviceGraph(graph, make.either(lambda: make.choice(["auto", "device", "host", 0.5]))),
            lambda: sp.DeviceFeatures(
                make.features(9), **make.options(hot=lambda: 0.5, dtype=lambda: "float16", ranking=lambda: "posterior")
            ),
        ]
    )()


CASES = {
    "graph": Case(fuzz_graph, (sp.Graph, to_scipy, from_dgl)),
    "bulk_sample": Case(fuzz_bulk_sample, (sp.bulk_sample, sp.GraphSAGE, sp.LADIES, sp.FastGCN), 3),
    "samplers": Case(fuzz_samplers, (sp.Sampler, LayerwiseSampler)),
    "biased": Case(fuzz_biased, (sp.Biased, draw_shift)),
    "plan_bulk": Case(fuzz_plan_bulk, (sp.plan_bulk, sp.BulkPlan)),
    "bulk": Case(fuzz_bulk, (sp.BulkSample, sp.MiniBatch, scratch_bytes)),
    "csr_matrix": Case(fuzz_csr_matrix, (CSRMatrix, Draw, its_sample, normalize_rows, ProbabilityMatrix)),
    "spgemm": Case(fuzz_spgemm, (spgemm, select_rows)),
    "shuffle": Case(fuzz_shuffle, (sp.shuffle,)),
    "device": Case(fuzz_device, (sp.DeviceGraph, sp.DeviceFeatures)),
    "load_dataset": Case(fuzz_load_dataset, (sp.load_dataset,), 2),
}
