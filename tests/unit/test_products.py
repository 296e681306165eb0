"""Products of layers by oneDNN: values, gradients, and when torch's own product is taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from spsample.common.threads import compiled_core
from spsample.nn import products
from spsample.nn.products import linear
from spsample.nn.tensors import new_numbers, rounded_rows, with_rounded_rows

torch_only = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True)
def _small_products_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_LARGE", 0)


def is_ours(result: torch.Tensor) -> bool:
    return "_Linear" in type(result.grad_fn).__name__


def arguments(rows: int, dims: tuple[int, int] = (5, 3)) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = (rows, dims[0]), (dims[1], dims[0]), (dims[1],)
    return tuple(torch.randn(shape, generator=generator).requires_grad_() for shape in shapes)


@torch_only
@pytest.mark.parametrize("rows", [0, 1, 2, 33, 500])
@pytest.mark.parametrize("dims", [(5, 3), (1, 1), (100, 47), (16, 64)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_and_gradients_are_torchs(rows: int, dims: tuple[int, int], has_bias: bool) -> None:
    given = arguments(rows, dims)[: 3 if has_bias else 2]
    ours, torchs = linear(*given), functional.linear(*given)
    assert is_ours(ours)
    torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-5)
    g = torch.randn(rows, dims[1])
    for mine, theirs in zip(torch.autograd.grad(ours, given, g), torch.autograd.grad(torchs, given, g), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-4)


@torch_only
def test_rows_and_weights_that_are_not_contiguous() -> None:
    x, weight = torch.randn(5, 40).t(), torch.randn(5, 6).t()
    torch.testing.assert_close(linear(x, weight), functional.linear(x, weight))
    torch.testing.assert_close(linear(x[::2], weight[:3]), functional.linear(x[::2], weight[:3]))


@torch_only
def test_only_the_gradients_that_are_wanted() -> None:
    x, weight, bias = arguments(7)
    linear(x.detach(), weight, bias).sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weight.grad, x.detach().sum(0).expand(3, -1))
    assert bias.grad.tolist() == [7, 7, 7]


@torch_only
def test_second_derivatives_and_function_transforms() -> None:
    x, weight, bias = arguments(7)

    def second(product: object) -> list[torch.Tensor]:
        (first,) = torch.autograd.grad(product(x, weight, bias).pow(3).sum(), x, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), (x, weight, bias)))

    for mine, theirs in zip(second(linear), second(functional.linear), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3)
    gradient = torch.func.grad(lambda w: linear(x.detach(), w, bias.detach()).square().sum())(weight.detach())
    expected = torch.func.grad(lambda w: functional.linear(x.detach(), w, bias.detach()).square().sum())
    torch.testing.assert_close(gradient, expected(weight.detach()), rtol=1e-4, atol=1e-3)
    given = tuple(tensor.detach() for tensor in (x, weight, bias))
    tangents = tuple(torch.randn_like(tensor) for tensor in given)
    torch.testing.assert_close(
        torch.func.jvp(linear, given, tangents), torch.func.jvp(functional.linear, given, tangents)
    )


@torch_only
def test_a_bias_that_is_not_contiguous() -> None:
    x, weight = torch.randn(40, 5), torch.randn(3, 5)
    for bias in (torch.randn(6)[::2], torch.randn(1).expand(3)):
        torch.testing.assert_close(linear(x, weight, bias), functional.linear(x, weight, bias))


@torch_only
@pytest.mark.parametrize(
    "bias", [torch.ones(1), torch.ones(1, 3), torch.ones(2), torch.ones(7), torch.ones(3).double(), torch.ones(6)[::2]]
)
@pytest.mark.parametrize(
    "weight", [torch.ones(3, 5), torch.ones(5), torch.ones(6, 3), torch.ones(3, 5).to_sparse_csr(), torch.ones(0, 5)]
)
@pytest.mark.parametrize("x", [torch.ones(4, 5), torch.ones(4, 5).to_sparse_csr(), torch.ones(2, 4, 5)])
def test_what_fits_and_what_is_refused_is_as_torchs(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    try:
        expected = functional.linear(x, weight, bias)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=re.escape(str(error))):
            linear(x, weight, bias)
    else:
        torch.testing.assert_close(linear(x, weight, bias), expected)


@torch_only
@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd, torch.func.hessian])
def test_transforms_over_many_tangents_and_gradients(transform: Callable[..., Any]) -> None:
    x, weight, bias = (tensor.detach() for tensor in arguments(4))

    def derivative(product: Callable[..., torch.Tensor]) -> torch.Tensor:
        result: torch.Tensor = transform(lambda w: product(x, w, bias).pow(3).sum(1))(weight)
        return result

    torch.testing.assert_close(derivative(linear), derivative(functional.linear), rtol=1e-4, atol=1e-3)


@torch_only
def test_gradients_of_each_example_by_vmap() -> None:
    _, weight, bias = (tensor.detach() for tensor in arguments(4))
    many = torch.randn(4, 3, 5)

    def each(product: Callable[..., torch.Tensor]) -> torch.Tensor:
        gradient = torch.func.grad(lambda w, x: product(x, w, bias).square().sum())
        return torch.vmap(gradient, (None, 1))(weight, many)

    torch.testing.assert_close(each(linear), each(functional.linear), rtol=1e-4, atol=1e-4)


def mostly_zero(*shape: int) -> torch.Tensor:
    """Gradients as they are behind ReLU and dropout."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.25)


@torch_only
@pytest.mark.parametrize("wanted", [(0, 1, 2), (0,), (1,), (2,), (0, 2), (1, 2)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_gradients_that_are_mostly_zero(wanted: tuple[int, ...], has_bias: bool) -> None:
    given = [one.detach() for one in arguments(400)[: 3 if has_bias else 2]]
    asked = [given[i].requires_grad_() for i in wanted if i < len(given)]
    if asked:
        ours, torchs = linear(*given), functional.linear(*given)
        found, expected = (torch.autograd.grad(one, asked, mostly_zero(400, 3)) for one in (ours, torchs))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@torch_only
@pytest.mark.skipif(compiled_core() is None, reason="needs the compiled core")
def test_zeros_are_left_out_where_numbers_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Tensor] = []
    monkeypatch.setattr(products, "times", lambda g, weight: calls.append(g))
    x, weight, bias = arguments(40)
    for g, expected in ((mostly_zero(40, 3), 1), (torch.ones(40, 3), 0), (torch.zeros(()).expand(40, 3), 1)):
        calls.clear()
        linear(x, weight, bias).backward(g)
        assert len(calls) == expected
    calls.clear()
    torch.autograd.grad(linear(x, weight, bias), x, mostly_zero(40, 3), create_graph=True)
    torch.autograd.grad(linear(x, weight, bias), x, mostly_zero(2, 40, 3), is_grads_batched=True)
    assert not calls


@torch_only
def test_many_gradients_at_once_that_are_mostly_zero() -> None:
    given, many = arguments(40), mostly_zero(4, 40, 3)

    def both(product: Callable[..., torch.Tensor]) -> list[Any]:
        batched = torch.autograd.grad(product(*given), given, many, is_grads_batched=True)
        with torch.no_grad():
            _, back = torch.func.vjp(product, *(one.detach() for one in given))
            return [*batched, *torch.vmap(back)(many), *back(many[0])]

    torch.testing.assert_close(both(linear), both(functional.linear), rtol=1e-4, atol=1e-4)


@torch_only
def test_torchs_product_is_traced() -> None:
    x, weight, bias = (tensor.detach() for tensor in arguments(7))
    traced = torch.jit.trace(linear, (x, weight, bias))
    torch.testing.assert_close(traced(x[:2], weight, bias), functional.linear(x[:2], weight, bias))


def test_a_graph_of_a_product_takes_other_numbers_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_LARGE", 0)
    _, weight, bias = arguments(1)
    graph = make_fx(lambda x: linear(x, weight, bias))(torch.zeros(40, 5)[:33])
    for rows in (33, 70):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(graph(x), functional.linear(x, weight, bias))


@torch_only
def test_a_graph_of_the_way_back_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of its numbers are 0 is not known where it becomes a graph."""
    monkeypatch.setattr(products, "_LARGE", 0)
    x, weight, _ = arguments(33)
    y = linear(x, weight)

    def back(gradient: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(y, weight, gradient, retain_graph=True)[0]

    graph, gradient = make_fx(back)(torch.zeros_like(y)), torch.randn(y.shape)
    torch.testing.assert_close(graph(gradient), gradient.t() @ x)


@torch_only
def test_torchs_product_where_ours_does_not_fit() -> None:
    x, weight, bias = arguments(7)
    assert linear(x.double(), weight.double()).dtype == torch.float64
    assert not is_ours(linear(x[0], weight))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight, bias).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        assert not is_ours(linear(x, weight))


def test_small_products_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_LARGE", 7 * 15 + 1)
    x, weight, _ = arguments(7)
    assert not is_ours(linear(x, weight))


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 1), (15, 1), (29_301, 256)])
def test_results_of_the_core_take_room_of_few_sizes(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, empty = [], torch.empty
    monkeypatch.setattr(torch, "empty", lambda size, **options: sizes.append(size) or empty(size, **options))
    numbers = new_numbers(shape)
    assert numbers.shape == shape
    assert numbers.dtype == torch.float32
    assert numbers.is_contiguous()
    assert numbers.numel() <= sizes[0] <= numbers.numel() * 1.13
    new_numbers((29_400, 256)), new_numbers((29_250, 256))
    assert sizes[1] == sizes[2]


def test_rounded_rows_are_few_and_little_more() -> None:
    rounded = [rounded_rows(rows) for rows in range(4097)]
    assert all(rows <= more <= rows * 17 / 16 for rows, more in enumerate(rounded))
    assert len(set(rounded[2048:4097])) == 17
    assert rounded_rows(2**40 + 1) == 2**40 + 2**36


@pytest.mark.parametrize("rows", [0, 1, 33, 4097])
def test_rows_are_rounded_where_room_is_behind(rows: int) -> None:
    x = new_numbers((rows, 3))
    assert len(with_rounded_rows(x)) == rounded_rows(rows)
    assert with_rounded_rows(x).data_ptr() == x.data_ptr()


def test_rows_are_not_rounded_where_none_is_behind() -> None:
    table = torch.zeros(34, 3)
    assert len(with_rounded_rows(table[:33])) == 34
    for x in (table[1:], torch.zeros(33, 3), torch.zeros(68, 3)[::2][:33], torch.zeros(3, 40).t()[:33]):
        assert with_rounded_rows(x) is x


@torch_only
def test_what_lies_behind_the_rows_is_neither_used_nor_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_LARGE", 0)
    plain, weight, bias = arguments(33)
    table = torch.full((40, 5), torch.nan)
    table[:33] = plain.detach()
    x = table[:33].requires_grad_()
    result, expected = linear(x, weight, bias), functional.linear(plain, weight, bias)
    assert is_ours(result)
    assert result.shape == (33, 3)
    torch.testing.assert_close(result, expected)
    of_x, of_plain = (
        torch.autograd.grad(one.square().sum(), (rows, weight, bias)) for one, rows in ((result, x), (expected, plain))
    )
    torch.testing.assert_close(of_x, of_plain)
    assert table[33:].isnan().all()


@torch_only
def test_products_of_about_as_many_rows_take_as_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_LARGE", 0)
    _, weight, bias = arguments(1)
    results = [linear(new_numbers((rows, 5)).zero_(), weight, bias) for rows in (4100, 4200, 4351)]
    assert {result.untyped_storage().nbytes() for result in results} == {4352 * 3 * 4}
    assert [result._is_view() for result in results] == [False] * 3
