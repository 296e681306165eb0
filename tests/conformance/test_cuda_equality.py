"""Random graphs, samplers and calls: the backend `cuda`, on the emulated device, equals `cpu` bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_backend import EmulatedBackend, needs_compiler
from equality import KINDS, assert_bulks_same, calls, edge_lists, examples, make_graph, needs_cpu, samplers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.backends import registry

pytestmark = [needs_compiler, needs_cpu]


@pytest.fixture(scope="module", autouse=True)
def emulated():
    """`backend="cuda"` means the emulated device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._CLASSES, "cuda", ("emulated_backend", EmulatedBackend.__name__))
        registry._load.cache_clear()
        yield
    registry._load.cache_clear()


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])
@given(edges=edge_lists(), kind=st.sampled_from(KINDS), wide=st.booleans(), data=st.data())
def test_equals_cpu(edges, kind, wide, data):
    graph = make_graph(edges, kind, np.int64 if wide else np.int32)
    call, sampler = data.draw(calls(edges.num_nodes)), data.draw(samplers)
    expected = sp.bulk_sample(graph, sampler=sampler, backend="cpu", **call)
    entries = data.draw(st.sampled_from(["device", "host", 0.4]))
    bulk = sp.bulk_sample(sp.DeviceGraph(graph, entries), sampler=sampler, **call)
    assert_bulks_same(expected, bulk.to_host())
