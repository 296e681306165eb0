"""The backend `cuda` on a GPU: a backend's contract, and bulks equal to those of the backend `cpu`, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from backend_contract import BackendContract
from equality import assert_bulks_same, every_sampler, needs_cpu
from on_host import OnHost
from test_real_graphs import NAMES, weighted
from the_gpu import the_gpu

import spsample as sp
from spsample.backends.cuda.backend import CudaKernels

if isinstance(the_gpu(), str):
    pytest.skip(the_gpu(), allow_module_level=True)

pytestmark = pytest.mark.gpu

FORMS = {
    "unweighted": lambda graph: graph,
    "row": lambda graph: graph.normalized("row"),
    "sym": lambda graph: graph.normalized("sym"),
    "weighted": weighted,
}


class TestCudaOnGpu(BackendContract):
    @pytest.fixture
    def backend(self, gpu):
        return OnHost(CudaKernels(gpu))


def check(graph, sampler, seeds, batch_size, **options):
    """A bulk by `cuda`, which keeps it on the GPU, against the same by `cpu`."""
    options = {"batch_size": batch_size, "random_seed": 7, **options}
    expected = sp.bulk_sample(graph, seeds, sampler, backend="cpu", **options)
    bulk = sp.bulk_sample(graph, seeds, sampler, backend="cuda", **options)
    assert_bulks_same(expected, bulk.to_host())


def some_seeds(graph, batches, batch_size):
    return np.random.default_rng(0).integers(0, graph.num_nodes, batches * batch_size)


@pytest.fixture(scope="module", params=NAMES)
def graph(request, data_dir):
    path = data_dir / f"{request.param}.npz"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    with np.load(path) as arrays:
        return sp.Graph(arrays["indptr"], arrays["indices"])


@needs_cpu
@pytest.mark.realdata
@pytest.mark.parametrize("form", FORMS)
def test_real_graphs(gpu, graph, form):
    made = FORMS[form](graph)
    for sampler in every_sampler():
        check(made, sampler, some_seeds(graph, 5, 128), 128, edge_ids=True)


@needs_cpu
@pytest.mark.realdata
def test_real_graphs_in_one_bulk_of_many_batches(gpu, graph):
    for sampler in every_sampler():
        check(graph, sampler, some_seeds(graph, 64, 32), 32, epoch=3, first_batch=2**31)


@needs_cpu
@pytest.mark.realdata
def test_real_graphs_with_wide_ids(gpu, graph):
    wide = sp.Graph(graph.indptr, graph.indices.astype(np.int64))
    for sampler in every_sampler():
        check(wide, sampler, some_seeds(graph, 3, 48), 48, edge_ids=True)


@pytest.fixture(scope="module")
def large():
    """R-MAT of 2^21 vertices and some 120 million entries, as the benchmarks have it."""
    return sp.load_dataset("rmat:21,32").graph


@needs_cpu
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", range(len(every_sampler())))
def test_a_large_graph(large, form, number):
    made = FORMS[form](large)
    check(made, every_sampler(512)[number], some_seeds(large, 4, 512), 512)


@needs_cpu
@pytest.mark.slow
def test_a_large_graph_at_full_size(large):
    """The bulk of the benchmarks, in parts that the host has room for."""
    for first in (0, 98):
        seeds = some_seeds(large, 98, 1024)
        check(large, sp.GraphSAGE([15, 10, 5]), seeds, 1024, first_batch=first, edge_ids=True)
