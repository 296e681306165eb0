"""Dropout by the place of a number: the law, moments, gradients, threads, instruction sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from spsample.backends import get_backend
from spsample.common.threads import compiled_core, kernel_threads
from spsample.training import VertexDropout

GROUP, COUNTERS = 64, 16


def words(count: int, key: tuple[int, int]) -> np.ndarray:
    """The word of each number, by the law of kernels/cpu/dropout.h."""
    groups = -(-count // GROUP)
    counters = np.zeros((groups * COUNTERS, 4), np.uint32)
    counters[:, 0] = np.arange(groups * COUNTERS)
    of_counters = np.asarray(get_backend().philox(counters, key)).reshape(groups, COUNTERS, 4)
    return of_counters.transpose(0, 2, 1).reshape(-1)[:count]


@pytest.mark.parametrize("name", ["portable", "avx2", "avx512"])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 63, 64, 65, 200, 70_001])
def test_masks_follow_the_law(name: str, count: int) -> None:
    core = compiled_core()
    if core is None:
        pytest.skip("needs the compiled core")
    before = core.instruction_set()
    if not core.set_instruction_set(name):
        pytest.skip(f"this machine lacks {name}")
    try:
        x, out = np.random.default_rng(0).standard_normal(count).astype(np.float32), np.empty(count, np.float32)
        core.drop_numbers(x, (7, 9), 2**30, 1 / 0.75, out)
    finally:
        core.set_instruction_set(before)
    kept = words(count, (7, 9)) >= 2**30
    np.testing.assert_array_equal(out, np.where(kept, x * np.float32(1 / 0.75), np.float32(0)))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_as_many_are_dropped_as_expected(p: float) -> None:
    torch.manual_seed(0)
    result = VertexDropout(p)(torch.ones(1000, 1000))
    share = float((result == 0).float().mean())
    assert abs(share - p) < 4 * (p * (1 - p)) ** 0.5 / 1000
    assert torch.allclose(result[result != 0], torch.tensor(1 / (1 - p)))


def test_masks_follow_from_torchs_seed_and_differ_from_call_to_call() -> None:
    dropout, x = VertexDropout(0.5), torch.ones(40, 40)
    torch.manual_seed(5)
    first = dropout(x), dropout(x)
    torch.manual_seed(5)
    with kernel_threads(1):
        again = dropout(x), dropout(x)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1])


def test_the_gradient_has_the_mask_of_the_result() -> None:
    x = torch.randn(33, 17, requires_grad=True)
    result = VertexDropout(0.3)(x)
    gradient = torch.randn_like(result).t().contiguous().t()  # not contiguous
    (of_x,) = torch.autograd.grad(result, x, gradient)
    torch.testing.assert_close(of_x, torch.where(result == 0, 0.0, gradient * (1 / 0.7)))


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_or_all_is_dropped(p: float) -> None:
    x = torch.ones(3, 4)
    assert torch.equal(VertexDropout(p)(x), x * (1 - p))
    assert VertexDropout(p).eval()(x) is x


@pytest.mark.parametrize("x", [torch.ones(50, 60, dtype=torch.float64), torch.ones(60, 50).t(), torch.ones(0, 4)])
def test_other_numbers_and_layouts(x: torch.Tensor) -> None:
    result = VertexDropout(0.5)(x)
    assert result.dtype == x.dtype
    assert set(result.unique().tolist()) <= {0.0, 2.0}
