"""Products with gradients that are mostly zero: values, threads and instruction sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from spsample.common.threads import compiled_core, kernel_threads
from spsample.nn.products import is_mostly_zero, outer_sums, times

SETS = ("portable", "avx2", "avx512")
SHAPES = [(1, 1, 1), (3, 17, 5), (64, 16, 16), (65, 64, 100), (63, 65, 127), (1100, 40, 129), (2500, 300, 20)]

pytestmark = pytest.mark.skipif(compiled_core() is None, reason="needs the compiled core")


def drawn(rows: int, width: int, share: float) -> torch.Tensor:
    """A gradient of which that share is not 0."""
    generator = torch.Generator().manual_seed(rows + width)
    numbers = torch.randn(rows, width, generator=generator)
    return numbers * (torch.rand(rows, width, generator=generator) < share)


def outer_and_column_sums(gradient: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    of_columns = torch.empty(gradient.shape[1])
    return outer_sums(gradient, x, of_columns), of_columns


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_products_are_torchs(instruction_set: str, shape: tuple[int, int, int], share: float) -> None:
    rows, width, dim = shape
    gradient, weight, x = drawn(rows, width, share), torch.randn(width, dim), torch.randn(rows, dim)
    dense = gradient.double()
    torch.testing.assert_close(times(gradient, weight).double(), dense @ weight.double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outer_sums(gradient, x).double(), dense.t() @ x.double(), rtol=1e-4, atol=1e-3)


def test_products_are_added_up_in_the_order_of_the_numbers(instruction_set: str) -> None:
    gradient, weight, x = drawn(64, 20, 0.3), torch.randn(20, 33), torch.randn(64, 33)
    expected, sums = np.zeros((64, 33), np.float32), np.zeros((20, 33), np.float32)
    for row, column in torch.nonzero(gradient).tolist():
        value = gradient[row, column].numpy()
        expected[row] += value * weight[column].numpy()
        sums[column] += value * x[row].numpy()
    np.testing.assert_array_equal(times(gradient, weight).numpy(), expected)
    np.testing.assert_array_equal(outer_sums(gradient, x).numpy(), sums)


@pytest.mark.parametrize("dim", [1, 15, 16, 127, 128, 200, 256])
@pytest.mark.parametrize(("rows", "width"), [(0, 20), (1, 20), (64, 20), (128, 64), (256, 256), (384, 256), (1000, 20)])
def test_sums_of_columns_beside_outer_sums(instruction_set: str, rows: int, width: int, dim: int) -> None:
    """They are one more column of x, of ones; the others stay as they are, to the bit."""
    gradient, x = drawn(rows, width, 0.3), torch.randn(rows, dim)
    if rows > 1:
        gradient[1], x[1] = 0.0, torch.inf
    outer, of_columns = outer_and_column_sums(gradient, x)
    assert torch.equal(outer, outer_sums(gradient, x))
    torch.testing.assert_close(of_columns.double(), gradient.double().sum(0), rtol=1e-5, atol=1e-4)


def test_instruction_sets_and_threads_give_equal_bits() -> None:
    gradient, core, found = drawn(5000, 100, 0.3), compiled_core(), []
    weight, x = torch.randn(100, 200), torch.randn(5000, 200)
    before = core.instruction_set()
    try:
        for threads in (1, 2):
            for _ in filter(core.set_instruction_set, SETS):
                with kernel_threads(threads):
                    found.append((times(gradient, weight), *outer_and_column_sums(gradient, x)))
    finally:
        core.set_instruction_set(before)
    assert all(torch.equal(a, b) for other in found for a, b in zip(found[0], other, strict=True))


def test_numbers_that_are_none_and_those_beside_zeros(instruction_set: str) -> None:
    assert times(torch.tensor([[0.0, -0.0, float("nan")]]), torch.eye(3)).isnan().all()
    assert times(torch.tensor([[0.0, -0.0, float("inf")]]), torch.ones(3, 1)).isinf().all()
    assert times(torch.tensor([[0.0, 2.0]]), torch.tensor([[float("inf")], [1.0]])).item() == 2
    assert outer_sums(torch.tensor([[0.0], [3.0]]), torch.tensor([[float("nan")], [1.0]])).item() == 3


def test_no_rows() -> None:
    none = torch.empty(0, 3)
    assert not is_mostly_zero(none)
    assert times(none, torch.ones(3, 2)).shape == (0, 2)
    assert torch.equal(outer_sums(none, torch.empty(0, 2)), torch.zeros(3, 2))


def test_few_rows_and_wide_ones() -> None:
    """The room for sums is bounded by that of the arguments, or by one piece's."""
    gradient, x = drawn(70, 3000, 0.2), torch.randn(70, 2000)
    torch.testing.assert_close(outer_sums(gradient, x), gradient.t() @ x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("share", "expected"), [(0.0, True), (0.25, True), (0.5, False), (1.0, False)])
def test_what_is_mostly_zero(share: float, expected: bool) -> None:
    assert is_mostly_zero(drawn(3000, 30, share)) == expected


def test_tensors_that_are_not_contiguous() -> None:
    gradient, weight, x = drawn(30, 40, 0.2).t(), torch.randn(7, 30).t(), torch.randn(7, 40).t()
    torch.testing.assert_close(times(gradient, weight), gradient @ weight)
    torch.testing.assert_close(outer_sums(gradient, x), gradient.t() @ x)


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ((6, 4, (2, 3), 6), "x"),
        ((5, 9, (2, 3), 6), "g"),
        ((6, 9, (2, 3), 5), "shape"),
        ((6, 0, (0, 3), 0), "shape"),
    ],
)
def test_wrong_sizes_of_outer_sums_are_named(sizes: tuple[Any, ...], name: str) -> None:
    g, x, shape, out = sizes
    g, x, out = (np.zeros(one, np.float32) for one in (g, x, out))
    with pytest.raises(ValueError, match=f"^{name}:"):
        compiled_core().sum_outer_products(g, x, shape, out)


def test_wrong_sizes_of_sums_of_columns_are_named() -> None:
    g, x, out, of_columns = (np.zeros(one, np.float32) for one in (6, 9, 6, 3))
    with pytest.raises(ValueError, match=r"^of_columns: needs one element per column of g"):
        compiled_core().sum_outer_products(g, x, (2, 3), out, of_columns)


@pytest.mark.parametrize(
    ("sizes", "name"), [((5, 6, (2, 3), 9), "g"), ((6, 5, (2, 3), 9), "shape"), ((6, 6, (2, 3), 8), "out")]
)
def test_wrong_sizes_of_products_are_named(sizes: tuple[Any, ...], name: str) -> None:
    g, w, shape, out = sizes
    g, w, out = (np.zeros(one, np.float32) for one in (g, w, out))
    with pytest.raises(ValueError, match=f"^{name}:"):
        compiled_core().multiply_sparse(g, w, shape, out)


def test_results_are_float32_on_the_host_whatever_torchs_defaults() -> None:
    gradient, weight, x = drawn(3, 17, 0.25), torch.ones(17, 2), torch.ones(3, 2)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            found = times(gradient, weight), outer_sums(gradient, x)
    finally:
        torch.set_default_dtype(torch.float32)
    for one, expected in zip(found, (gradient @ weight, gradient.t() @ x), strict=True):
        torch.testing.assert_close(one, expected)
