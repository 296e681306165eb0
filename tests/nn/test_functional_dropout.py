"""`spsample.nn.Dropout` and `functional.dropout`: torch's law, scale, gradient, repetition and special cases."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import spsample.nn as ours
from spsample.common.threads import compiled_core
from spsample.nn import functional

needs_core = pytest.mark.skipif(compiled_core() is None, reason="needs the compiled core")
LEAST = 1e-4
"""Of a correct law a test with a fixed seed fails with this probability, once."""


def dropped(x, p=0.5, **options):
    return functional.dropout(x, p, **options)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_number_is_dropped_with_the_probability(p, dtype):
    x = torch.ones(200, 97, dtype=dtype)
    kept = torch.stack([dropped(x, p) != 0 for _ in range(40)]).numpy()
    test = stats.binomtest(int(kept.sum()), kept.size, 1 - p)
    assert test.pvalue > LEAST
    # of each place, and of neighbours in a row: no pattern of a counter
    counts = kept.sum(0).ravel()
    spread = (counts - 40 * (1 - p)) ** 2 / (40 * p * (1 - p))
    assert abs(spread.mean() - 1) < 5 * np.sqrt(2 / counts.size)
    for step in (1, 4, 16, 97, 128):
        flat = kept.reshape(40, -1) - (1 - p)
        both = (flat[:, step:] * flat[:, :-step]).ravel()
        assert abs(both.mean()) < 5 * p * (1 - p) / np.sqrt(both.size)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_left_is_scaled(p, dtype):
    x = torch.randn(300, 5, dtype=dtype)
    out = dropped(x, p)
    torch.testing.assert_close(out, torch.where(out == 0, 0, x / (1 - p)))
    assert out.dtype == dtype


@pytest.mark.parametrize("shape", [(1000,), (10, 100), (5, 20, 10)])
def test_the_gradient_has_the_same_mask(shape):
    x, g = torch.randn(shape, requires_grad=True), torch.randn(shape)
    out = dropped(x, 0.4)
    out.backward(g)
    torch.testing.assert_close(x.grad, torch.where(out == 0, 0, g / 0.6))
    assert torch.autograd.gradcheck(
        lambda x: (torch.manual_seed(3), dropped(x, 0.4))[1], torch.randn(20, requires_grad=True).double()
    )


def test_each_call_has_a_mask_of_its_own_and_the_seed_repeats_it():
    x = torch.ones(1000)
    torch.manual_seed(5)
    first, second = dropped(x), dropped(x)
    torch.manual_seed(5)
    assert torch.equal(ours.Dropout()(x), first)
    assert torch.equal(ours.Dropout()(x), second)
    both = (first != 0) & (second != 0)
    assert stats.binomtest(int(both.sum()), 1000, 0.25).pvalue > LEAST


@needs_core
def test_masks_do_not_depend_on_the_number_of_threads():
    x, outs = torch.ones(2000, 130), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        outs.append(dropped(x))
    assert torch.equal(*outs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_none_and_all(dtype):
    x = torch.randn(50, 4).to(dtype).requires_grad_()
    assert torch.equal(dropped(x, 0.0), x)
    assert torch.equal(dropped(x, 0.7, training=False), x)
    out = dropped(x, 1.0)
    out.sum().backward()
    assert not out.any()
    assert not x.grad.any()


def test_evaluation_draws_nothing():
    before = torch.get_rng_state()
    x = torch.ones(10)
    dropped(x, training=False)
    ours.Dropout().eval()(x)
    dropped(x, 0.0)
    assert torch.equal(torch.get_rng_state(), before)


def test_in_place():
    x = torch.ones(1000)
    out = dropped(x, 0.5, inplace=True)
    assert out is x
    assert sorted(set(x.tolist())) == [0.0, 2.0]
    y = torch.ones(1000)
    assert ours.Dropout(0.5, inplace=True)(y) is y
    z = torch.ones(1000)
    dropped(z)
    assert z.all()


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_no_probability(p):
    with pytest.raises(ValueError, match="probability"):
        dropped(torch.ones(2), p)
    with pytest.raises(ValueError, match="probability"):
        ours.Dropout(p)


def test_what_has_no_numbers_and_what_is_not_contiguous():
    assert dropped(torch.ones(0, 3)).shape == (0, 3)
    x = torch.ones(30, 40).t()
    out = dropped(x)
    assert out.shape == x.shape
    assert sorted(set(out.flatten().tolist())) == [0.0, 2.0]


def test_it_takes_the_place_of_torchs():
    assert (
        inspect.signature(functional.dropout).parameters.keys()
        == inspect.signature(nn.functional.dropout).parameters.keys()
    )
    assert isinstance(ours.Dropout(0.2), nn.Dropout)
    assert repr(ours.Dropout(0.2)) == repr(nn.Dropout(0.2))


def test_within_transforms_and_autocast():
    x = torch.ones(40, 10)
    with torch.autocast("cpu", torch.bfloat16):
        assert dropped(x).dtype == torch.float32
    gradient = torch.func.grad(lambda x: dropped(x).sum())(x)
    assert sorted(set(gradient.flatten().tolist())) == [0.0, 2.0]
    each = torch.vmap(dropped, randomness="different")(torch.ones(2, 500))
    assert not torch.equal(*each)
