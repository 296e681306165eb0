"""Products with gradients that are mostly zero: values, masks, threads and instruction sets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from spsample.common.threads import compiled_core, kernel_threads
from spsample.training.dropout import RectifiedDropout, scaled_where_positive
from spsample.training.products import linear, linear_rectified
from spsample.training.sparse_products import SparseGradient

SETS = ("portable", "avx2", "avx512")
SHAPES = [(1, 1, 1), (3, 17, 5), (64, 16, 16), (65, 64, 100), (63, 65, 127), (1100, 40, 129), (2500, 300, 20)]

pytestmark = pytest.mark.skipif(compiled_core() is None, reason="needs the compiled core")


@pytest.fixture(params=SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    core = compiled_core()
    before = core.instruction_set()
    if not core.set_instruction_set(request.param):
        pytest.skip(f"this machine lacks {request.param}")
    yield request.param
    core.set_instruction_set(before)


def drawn(rows: int, width: int, share: float, is_masked: bool) -> tuple[SparseGradient, torch.Tensor]:
    """A gradient of which that share is not 0, and the same as a dense tensor."""
    generator = torch.Generator().manual_seed(rows + width)
    numbers = torch.randn(rows, width, generator=generator)
    kept = torch.rand(rows, width, generator=generator) < share
    if not is_masked:
        return SparseGradient(numbers * kept), numbers * kept
    where = torch.where(kept, 0.5, -1.0)
    return SparseGradient(numbers, where, 2.0), 2 * numbers * kept


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("is_masked", [True, False])
def test_products_are_those_of_the_dense_gradient(
    instruction_set: str, shape: tuple[int, int, int], share: float, is_masked: bool
) -> None:
    rows, width, dim = shape
    sparse, dense = drawn(rows, width, share, is_masked)
    weight, x = torch.randn(width, dim), torch.randn(rows, dim)
    torch.testing.assert_close(sparse.times(weight).double(), dense.double() @ weight.double(), rtol=1e-4, atol=1e-4)
    of_weight, of_bias = sparse.outer_sums(x, has_bias=True)
    torch.testing.assert_close(of_weight.double(), dense.double().t() @ x.double(), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(of_bias.double(), dense.double().sum(0), rtol=1e-4, atol=1e-3)
    alone, none = sparse.outer_sums(x, has_bias=False)
    assert none is None
    assert torch.equal(alone, of_weight)


def test_products_are_added_up_in_the_order_of_the_numbers(instruction_set: str) -> None:
    sparse, dense = drawn(64, 20, 0.3, is_masked=True)
    weight, x = torch.randn(20, 33), torch.randn(64, 33)
    expected, sums = np.zeros((64, 33), np.float32), np.zeros((20, 33), np.float32)
    for row, column in torch.nonzero(dense).tolist():
        value = dense[row, column].numpy()
        expected[row] += value * weight[column].numpy()
        sums[column] += value * x[row].numpy()
    np.testing.assert_array_equal(sparse.times(weight).numpy(), expected)
    np.testing.assert_array_equal(sparse.outer_sums(x, has_bias=False)[0].numpy(), sums)


def test_instruction_sets_and_threads_give_equal_bits() -> None:
    sparse, _ = drawn(5000, 100, 0.3, is_masked=True)
    weight, x, core, found = torch.randn(100, 200), torch.randn(5000, 200), compiled_core(), []
    before = core.instruction_set()
    try:
        for name in filter(core.set_instruction_set, SETS):
            for threads in (1, 2):
                core.set_instruction_set(name)
                with kernel_threads(threads):
                    found.append((sparse.times(weight), *sparse.outer_sums(x, has_bias=True)))
    finally:
        core.set_instruction_set(before)
    assert all(torch.equal(a, b) for other in found for a, b in zip(found[0], other, strict=True))


def test_numbers_beside_zeros_and_those_that_are_none(instruction_set: str) -> None:
    where = torch.tensor([[1.0, float("nan"), 0.0, -0.0, -1.0]])
    sparse = SparseGradient(torch.tensor([[1.0, 2.0, float("inf"), float("nan"), 4.0]]), where, 3.0)
    assert torch.equal(sparse.times(torch.eye(5)), torch.tensor([[3.0, 6.0, 0.0, 0.0, 0.0]]))
    plain = SparseGradient(torch.tensor([[0.0, -0.0, float("nan")]]))
    assert plain.times(torch.eye(3)).isnan().all()
    assert SparseGradient(torch.tensor([[0.0, 2.0]])).times(torch.tensor([[float("inf")], [1.0]])).item() == 2


def test_no_rows() -> None:
    sparse = SparseGradient(torch.empty(0, 3))
    assert not sparse.is_sparse()
    assert sparse.times(torch.ones(3, 2)).shape == (0, 2)
    of_weight, of_bias = sparse.outer_sums(torch.empty(0, 2), has_bias=True)
    assert torch.equal(of_weight, torch.zeros(3, 2))
    assert torch.equal(of_bias, torch.zeros(3))


def test_what_is_sparse() -> None:
    for share, expected in ((0.0, True), (0.25, True), (0.5, False), (1.0, False)):
        for is_masked in (True, False):
            assert drawn(3000, 30, share, is_masked)[0].is_sparse() == expected


def test_tensors_that_are_not_contiguous() -> None:
    _, dense = drawn(40, 30, 0.2, is_masked=False)
    weight, x = torch.randn(7, 30).t(), torch.randn(7, 40).t()
    sparse = SparseGradient(dense.t().contiguous().t())
    torch.testing.assert_close(sparse.times(weight), dense @ weight)
    torch.testing.assert_close(sparse.outer_sums(x, has_bias=False)[0], dense.t() @ x)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (((6,), None, 1.0, (4,), (2, 3), (6,), None), "x"),
        (((6,), (5,), 1.0, (9,), (2, 3), (6,), None), "where"),
        (((5,), None, 1.0, (9,), (2, 3), (6,), None), "g"),
        (((6,), None, 1.0, (9,), (2, 3), (5,), None), "shape"),
        (((6,), None, 1.0, (9,), (2, 3), (6,), (3,)), "column_sums"),
        (((6,), None, 1.0, (0,), (0, 3), (0,), None), "shape"),
    ],
)
def test_wrong_sizes_are_named(arguments: tuple[object, ...], name: str) -> None:
    g, where, scale, x, shape, out, sums = arguments
    g, where, x, out, sums = (None if one is None else np.zeros(one, np.float32) for one in (g, where, x, out, sums))
    with pytest.raises(ValueError, match=f"^{name}:"):
        compiled_core().sum_outer_products(g, where, scale, x, shape, out, sums)
    if name in ("g", "where"):
        with pytest.raises(ValueError, match=f"^{name}:"):
            compiled_core().multiply_sparse(g, where, scale, np.zeros(6, np.float32), (2, 3), np.zeros(9, np.float32))


@pytest.fixture
def small_products_too(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr("spsample.training.products._LARGE", 0)


def arguments(rows: int) -> tuple[torch.Tensor, ...]:
    shapes = (rows, 20), (30, 20), (30,)
    return tuple(torch.randn(shape).requires_grad_() for shape in shapes)


def separate(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, after: RectifiedDropout) -> torch.Tensor:
    """The layer as three operations of torch, with the mask that `linear_rectified` draws."""
    product = x @ weight.t() + bias
    mask = after(torch.ones_like(product))
    return product.relu() * mask


@pytest.mark.usefixtures("small_products_too")
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("rows", [0, 1, 700])
def test_rectified_products_and_their_gradients(p: float, rows: int) -> None:
    given, after = arguments(rows), RectifiedDropout(p)
    torch.manual_seed(3)
    ours = linear_rectified(*given, after)
    torch.manual_seed(3)
    assert torch.equal(ours, after(linear(*given)))
    torch.manual_seed(3)
    expected = separate(*given, after)
    assert "_LinearRectified" in type(ours.grad_fn).__name__
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
    g = torch.randn(rows, 30)
    for mine, theirs in zip(torch.autograd.grad(ours, given, g), torch.autograd.grad(expected, given, g), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("small_products_too")
def test_rectified_products_twice_and_forward() -> None:
    given, after = arguments(50), RectifiedDropout(0.5)

    def second(function: object) -> list[torch.Tensor]:
        torch.manual_seed(3)
        (first,) = torch.autograd.grad(function(*given, after).pow(3).sum(), given[0], create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), given))

    for mine, theirs in zip(second(linear_rectified), second(separate), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-1)
    values, tangents = tuple(one.detach() for one in given), tuple(torch.randn_like(one) for one in given)
    found = []
    for function in (linear_rectified, separate):
        torch.manual_seed(3)
        found.append(torch.func.jvp(lambda *some, function=function: function(*some, after), values, tangents))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("small_products_too")
def test_only_the_gradients_that_are_wanted() -> None:
    x, weight, bias = arguments(400)
    _, dense = drawn(400, 30, 0.2, is_masked=False)
    for wanted in ((x,), (weight,), (bias,), (x, bias)):
        given = [one if any(one is other for other in wanted) else one.detach() for one in (x, weight, bias)]
        found = torch.autograd.grad(linear(*given), wanted, dense)
        expected = {id(x): dense @ weight, id(weight): dense.t() @ x, id(bias): dense.sum(0)}
        for one, gradient in zip(wanted, found, strict=True):
            torch.testing.assert_close(gradient, expected[id(one)].detach(), rtol=1e-4, atol=1e-3)
    assert linear(x, weight).sum().item() == pytest.approx((x @ weight.t()).sum().item(), rel=1e-2, abs=1e-2)


@pytest.mark.usefixtures("small_products_too")
def test_other_ways_are_left_as_they_were() -> None:
    x, weight, bias = (one.detach() for one in arguments(20))
    product = torch.nn.functional.linear(x, weight, bias)
    for after in (RectifiedDropout(0.0), RectifiedDropout(0.5).eval()):
        torch.testing.assert_close(linear_rectified(x, weight, bias, after), product.relu())
    assert not linear_rectified(x, weight, bias, RectifiedDropout(1.0)).any()
    assert torch.equal(scaled_where_positive(product, product, 1.0), product.relu())
