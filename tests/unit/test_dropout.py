"""Dropout by the place of a number: the law, moments, gradients, threads, instruction sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from spsample.backends import get_backend
from spsample.common.threads import compiled_core, kernel_threads
from spsample.nn.dropout import DropoutKey, MaskedRows, RectifiedDropout
from spsample.training import VertexDropout

GROUP, COUNTERS = 128, 16


def bits(count: int, key: tuple[int, int]) -> np.ndarray:
    """The 32 bits of each number, by the law of kernels/cpu/dropout.h."""
    groups = -(-count // GROUP)
    counters = np.zeros((2, groups * COUNTERS, 4), np.uint32)
    counters[..., 0] = np.arange(groups * COUNTERS)
    counters[1, :, 2] = 1
    words = np.asarray(get_backend().philox(counters.reshape(-1, 4), key)).reshape(2, groups, COUNTERS, 4)
    halves = np.stack([words & 0xFFFF, words >> 16], -1).transpose(0, 1, 3, 4, 2).reshape(2, -1)[:, :count]
    return (halves[0] << 16) | halves[1]


@pytest.mark.parametrize("least", [2**30, 2**30 + 2**15, 2**31 + 1, 0, 2**32 - 1])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 127, 128, 129, 400, 70_001])
@pytest.mark.parametrize("call", ["drop_numbers", "drop_rectified"])
def test_masks_follow_the_law(instruction_set: str, count: int, least: int, call: str) -> None:
    x, out = np.random.default_rng(0).standard_normal(count).astype(np.float32), np.empty(count, np.float32)
    x[::7], x[3::11] = -0.0, np.nan
    getattr(compiled_core(), call)(x, (7, 9), least, 1 / 0.75, out)
    kept = bits(count, (7, 9)) >= least
    x = np.where(x <= 0, np.float32(0), x) if call == "drop_rectified" else x
    np.testing.assert_array_equal(out, np.where(kept, x * np.float32(1 / 0.75), np.float32(0)))


@pytest.mark.parametrize("call", ["drop_numbers", "drop_rectified"])
@pytest.mark.parametrize("place", [0, 17, 127, 128, 4000, 5119, 5120, 5222])
def test_all_bits_of_a_number_decide(instruction_set: str, call: str, place: int) -> None:
    """Thresholds at, above and below the bits of a number, in whole groups and in the last one."""
    drawn = bits(5223, (3, 4))
    for least in (int(drawn[place]) + change for change in (-1, 0, 1)):
        out = np.empty(len(drawn), np.float32)
        getattr(compiled_core(), call)(np.ones(len(drawn), np.float32), (3, 4), least, 2.0, out)
        np.testing.assert_array_equal(out, np.where(drawn >= least, np.float32(2), np.float32(0)))


def test_numbers_are_not_dropped_in_place() -> None:
    core, x = compiled_core(), np.ones(300, np.float32)
    if core is None:
        pytest.skip("needs the compiled core")
    with pytest.raises(ValueError, match=r"^out: must not be x"):
        core.drop_numbers(x, (3, 4), 2**30 + 1, 2.0, x)


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


def test_under_torchs_function_transforms() -> None:
    x, tangent = torch.randn(30, 5), torch.randn(30, 5)
    torch.manual_seed(3)
    mask = VertexDropout(0.5)(torch.ones(30, 5))
    torch.manual_seed(3)
    gradient = torch.func.grad(lambda h: VertexDropout(0.5)(h).square().sum())(x)
    torch.testing.assert_close(gradient, 2 * x * mask.square())
    torch.manual_seed(3)
    result = torch.func.jvp(VertexDropout(0.5), (x,), (tangent,))
    torch.testing.assert_close(result, (x * mask, tangent * mask))


@pytest.mark.parametrize("module", [VertexDropout(0.5), RectifiedDropout(0.5)])
def test_members_of_a_batch_share_masks_or_have_their_own(module: VertexDropout) -> None:
    x = torch.rand(3, 40, 5) + 1

    def loss(h: torch.Tensor) -> torch.Tensor:
        return module(h).square().sum()

    for randomness, is_shared in (("same", True), ("different", False)):
        torch.manual_seed(3)
        result = torch.vmap(module, 1, 1, randomness=randomness)(x.transpose(0, 1)).transpose(0, 1)
        torch.manual_seed(3)
        gradient = torch.vmap(torch.func.grad(loss), randomness=randomness)(x)
        assert torch.equal(result, torch.where(result == 0, 0.0, 2 * x))
        assert torch.equal(gradient, 4 * result)
        assert torch.equal(result[0] == 0, result[1] == 0) is is_shared
    with pytest.raises(RuntimeError, match="randomness error mode"):
        torch.vmap(module)(x)


@pytest.mark.parametrize("module", [VertexDropout(0.5), RectifiedDropout(0.5)])
def test_whole_jacobians(module: VertexDropout) -> None:
    x = torch.rand(3, 4) + 1
    torch.manual_seed(3)
    scale = module(x) / x
    expected = torch.diag(scale.reshape(-1)).reshape(3, 4, 3, 4)
    torch.manual_seed(3)
    torch.testing.assert_close(torch.func.jacrev(module)(x), expected)
    torch.manual_seed(3)
    torch.testing.assert_close(torch.func.jacfwd(module, randomness="same")(x), expected)


def test_the_key_is_drawn_on_the_processor_whatever_the_default_device() -> None:
    x = torch.ones(40, 40)
    torch.manual_seed(5)
    expected = VertexDropout(0.5)(x)
    torch.manual_seed(5)
    with torch.device("meta"):
        result = VertexDropout(0.5)(x)
    assert torch.equal(result, expected)


def test_a_second_derivative_and_checkpoints_have_the_same_masks() -> None:
    x = torch.randn(40, 7, requires_grad=True)
    model = torch.nn.Sequential(VertexDropout(0.3), torch.nn.Linear(7, 9), VertexDropout(0.5), VertexDropout(0.5))
    torch.manual_seed(1)
    result = VertexDropout(0.3)(x)
    (first,) = torch.autograd.grad((result**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach() * ((result.detach() != 0) / 0.7) ** 3)
    gradients = []
    for call in (model, lambda h: checkpoint(model, h, use_reentrant=False)):
        torch.manual_seed(2)
        gradients.append(torch.autograd.grad(call(x).square().sum(), x)[0])
    assert torch.equal(*gradients)


@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (33, 17), (500, 100)])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 1.0])
def test_rectified_dropout_is_relu_and_dropout_to_the_bit(shape: tuple[int, int], p: float) -> None:
    results = []
    for module in (RectifiedDropout(p), torch.nn.Sequential(torch.nn.ReLU(), VertexDropout(p))):
        torch.manual_seed(4)
        x = torch.randn(shape, requires_grad=True)
        result = module(x)
        gradient = torch.randn(shape[::-1]).t()  # not contiguous
        results.append([result, *torch.autograd.grad(result, x, gradient)])
        torch.testing.assert_close(module.eval()(x), torch.relu(x), rtol=0, atol=0)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_rectified_dropout_by_vertex_has_the_masks_of_dropout() -> None:
    h, rows = torch.randn(40, 9), MaskedRows(np.arange(40) * 3, DropoutKey(1, 2, 3))
    assert torch.equal(RectifiedDropout(0.4)(h, rows), VertexDropout(0.4)(torch.relu(h), rows))


def test_rectified_dropout_hides_no_nan() -> None:
    x = torch.full((200, 5), torch.nan, requires_grad=True)
    result = RectifiedDropout(0.5)(x)
    assert 300 < int(result.isnan().sum()) < 700
    (gradient,) = torch.autograd.grad(result, x, torch.ones_like(result))
    assert torch.equal(gradient == 2, result.isnan())


def test_rectified_dropout_differentiates_further() -> None:
    x = torch.randn(30, 5, requires_grad=True)
    torch.manual_seed(3)
    result = RectifiedDropout(0.3)(x)
    (first,) = torch.autograd.grad((result**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach().relu() * ((result.detach() != 0) / 0.7) ** 3)
    tangent, plain = torch.randn(30, 5), x.detach()
    torch.manual_seed(3)
    of_transform = torch.func.grad(lambda h: (RectifiedDropout(0.3)(h) ** 3).sum())(plain)
    torch.testing.assert_close(of_transform, first.detach())
    torch.manual_seed(3)
    primal, derivative = torch.func.jvp(RectifiedDropout(0.3), (plain,), (tangent,))
    torch.testing.assert_close((primal, derivative), (result.detach(), tangent * (result.detach() != 0) / 0.7))


def test_the_core_refuses_lengths_that_do_not_fit() -> None:
    core = compiled_core()
    if core is None:
        pytest.skip("needs the compiled core")
    x, short = np.ones(5, np.float32), np.ones(4, np.float32)
    for arguments in ((x, short, 2.0, x.copy()), (x, x, 2.0, short)):
        with pytest.raises(ValueError, match="one element per number"):
            core.scale_where_positive(*arguments)
