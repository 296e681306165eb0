"""Weighted sums of rows by the compiled core: values, gradients, threads and instruction sets."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.autograd import forward_ad
from torch.nn import functional

import spsample as sp
from spsample.common.threads import compiled_core, kernel_threads
from spsample.errors import InputError
from spsample.training import Block, BlockMaker, aggregate


def block_of(counts: list[int], num_src: int, seed: int = 0) -> Block:
    """A block with that many entries in each row, repeats among them."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = rng.integers(0, max(num_src, 1), indptr[-1])
    values = rng.standard_normal(indptr[-1]).astype(np.float32)
    return Block(*(torch.from_numpy(array) for array in (indptr, indices, values)), num_src)


def matrix(block: Block) -> np.ndarray:
    """A, dense, in float64."""
    shape = block.num_dst, block.num_src
    arrays = block.values.double().numpy(), block.indices.numpy(), block.indptr.numpy()
    return sparse.csr_array(arrays, shape).toarray()


@pytest.mark.parametrize("dim", [1, 3, 8, 15, 16, 17, 63, 64, 100, 128, 129, 256, 300])
def test_sums_are_added_up_in_the_order_of_the_entries(instruction_set: str, dim: int) -> None:
    block = block_of([3, 0, 1, 40, 0], 30)
    h = torch.from_numpy(np.random.default_rng(1).standard_normal((30, dim)).astype(np.float32))
    expected = np.zeros((5, dim), np.float32)
    for row, entry in zip(block.rows.tolist(), range(len(block.indices)), strict=True):
        expected[row] += block.values[entry].numpy() * h[block.indices[entry]].numpy()
    np.testing.assert_array_equal(block.aggregate(h).numpy(), expected)


@pytest.mark.parametrize("counts", [[], [0], [0, 0, 0], [1], [5000, 1, 0]])
def test_forward_and_backward_of_empty_rows_and_hubs(instruction_set: str, counts: list[int]) -> None:
    block = block_of(counts, 7)
    h = torch.randn(7, 5, requires_grad=True)
    result = block.aggregate(h)
    gradient = torch.randn_like(result)
    (of_h,) = torch.autograd.grad(result, h, gradient)
    a = matrix(block)
    np.testing.assert_allclose(result.detach(), a @ h.detach().double().numpy(), atol=1e-3)
    np.testing.assert_allclose(of_h, a.T @ gradient.double().numpy(), atol=1e-3)


@pytest.mark.parametrize("counts", [[], [0], [0, 0, 0], [1], [5000, 1, 0], [2, 0, 3]])
@pytest.mark.parametrize("dim", [1, 17, 100])
def test_targets_beside_sums(instruction_set: str, counts: list[int], dim: int) -> None:
    block = block_of(counts, 7)
    h = torch.randn(7, dim, requires_grad=True)
    result, expected = block.with_targets(h), torch.cat([h[: block.num_dst], block.aggregate(h)], 1)
    assert torch.equal(result, expected)
    gradient = torch.randn_like(result)
    of_h, theirs = (torch.autograd.grad(one, h, gradient)[0] for one in (result, expected))
    torch.testing.assert_close(of_h, theirs, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"x": 6, "shape": (2, 3)}, "x: needs a row for every target"),
        ({"shape": (4, 3)}, "shape"),
        ({"values": 3}, "values"),
        ({"out": 9}, "out"),
        ({"indptr": [0, 2, 1, 2]}, "indptr"),
    ],
)
def test_wrong_sizes_of_targets_beside_sums_are_named(change: dict[str, Any], name: str) -> None:
    given = {"indptr": [0, 1, 2, 2], "values": 2, "x": 9, "shape": (3, 3), "out": 18} | change
    values, x, out = (np.zeros(given[one], np.float32) for one in ("values", "x", "out"))
    indptr, indices = np.array(given["indptr"]), np.array([0, 1])
    with pytest.raises(ValueError, match=f"^{name}"):
        compiled_core().aggregate_with_targets(indptr, indices, values, x, given["shape"], out)


def test_targets_beside_sums_of_rows_that_are_not_there() -> None:
    one, three, six = (np.ones(count, np.float32) for count in (1, 3, 6))
    with pytest.raises(IndexError, match="indices: outside the rows of x"):
        compiled_core().aggregate_with_targets(np.array([0, 1]), np.array([7]), one, three, (1, 3), six)


@pytest.mark.parametrize("threads", [1, 2])
def test_targets_beside_sums_of_many_rows(instruction_set: str, threads: int) -> None:
    """More than one chunk of rows."""
    block, h = block_of([2, 0, 3] * 1000, 4000), torch.randn(4000, 100)
    with kernel_threads(threads):
        assert torch.equal(block.with_targets(h), torch.cat([h[: block.num_dst], block.aggregate(h)], 1))


def test_targets_beside_sums_of_other_numbers() -> None:
    block = block_of([2, 0, 3], 7)
    h = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(block.with_targets, h)
    assert torch.autograd.gradgradcheck(block.with_targets, h)
    values = block.values.clone().requires_grad_()
    asking = Block(block.indptr, block.indices, values, 7)
    (of_values,) = torch.autograd.grad(asking.with_targets(torch.ones(7, 2)).sum(), values)
    assert of_values.tolist() == [2.0] * 5


@pytest.mark.parametrize("call", ["aggregate", "with_targets"])
def test_under_torchs_function_transforms(call: str) -> None:
    block, h = block_of([2, 0, 3], 7), torch.randn(7, 4, dtype=torch.float64)
    a = torch.from_numpy(matrix(block))
    a = a if call == "aggregate" else torch.stack([torch.eye(3, 7, dtype=torch.float64), a], 1).view(6, 7)

    def ours(h: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = getattr(block, call)(h)
        return result

    def plain(h: torch.Tensor) -> torch.Tensor:
        return (a @ h).view(3, -1)

    def transformed(function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        many = torch.stack([h, 2 * h, h - 1], 2)
        gradient = torch.func.grad(lambda x: function(x).pow(3).sum())
        return [
            gradient(h),
            *torch.func.jvp(function, (h,), (h + 1,)),
            torch.vmap(function, 2)(many),
            torch.vmap(gradient, 2)(many),
            torch.func.grad(lambda x: torch.vmap(function, 2)(x).pow(3).sum())(many),
            torch.func.jacrev(function)(h),
            torch.func.jacfwd(function)(h),
            torch.func.hessian(lambda x: function(x).pow(3).sum())(h),
        ]

    for mine, theirs in zip(transformed(ours), transformed(plain), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("call", ["aggregate", "with_targets"])
def test_no_derivative_by_the_values_is_lost(call: str) -> None:
    block, h = block_of([2, 0, 3], 7), torch.ones(7, 4)

    def by_values(values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = getattr(Block(block.indptr, block.indices, values, 7), call)(h)
        return result

    assert torch.func.grad(lambda values: by_values(values).sum())(block.values).tolist() == [4.0] * 5
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward AD"):
        by_values(forward_ad.make_dual(block.values, torch.ones(5)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("counts", [[0, 0], [1, 0]])
def test_results_may_be_written_to(dtype: torch.dtype, counts: list[int]) -> None:
    block = block_of(counts, 7)
    for call in (block.aggregate, block.with_targets):
        h = torch.ones(7, 3, dtype=dtype, requires_grad=True)
        result = call(h)
        expected = result.detach().clone() + 1
        assert torch.equal(result.add_(1), expected)
        result.sum().backward()
        assert h.grad is not None


def test_whatever_the_default_device() -> None:
    block, h = block_of([2, 0, 3], 7), torch.randn(7, 4, requires_grad=True)
    expected = block.with_targets(h)
    with torch.device("meta"):
        result = block.with_targets(h)
        result.sum().backward()
    assert torch.equal(result, expected)


def test_what_comes_first_follows_from_the_counts() -> None:
    block = block_of([2, 2], 1000)
    assert block.sums_first(100, 10)  # 998,000 products of sources that are not targets, 5,760 of the sum
    assert not block_of([20, 20], 2).sums_first(100, 10)
    assert block_of([20, 20], 2).sums_first(10, 10)
    assert block_of([20, 20], 2).sums_first(10, 100)


def test_one_thread_and_two_give_equal_bits() -> None:
    block, h = block_of([20] * 3000, 9000), torch.randn(9000, 100, requires_grad=True)
    found = []
    for threads in (1, 2):
        with kernel_threads(threads):
            result = block.aggregate(h)
            found.append((result, *torch.autograd.grad(result.square().sum(), h)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_gradients_of_both_orders() -> None:
    block = block_of([2, 0, 4, 1], 6)
    h = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(block.aggregate, h)
    assert torch.autograd.gradgradcheck(block.aggregate, h)


def test_rows_that_are_not_contiguous() -> None:
    block, wide = block_of([2, 3], 6), torch.randn(4, 6)
    torch.testing.assert_close(block.aggregate(wide.t()), block.aggregate(wide.t().contiguous()), rtol=0, atol=0)


def test_values_that_need_a_gradient_get_one() -> None:
    block, h = block_of([2, 3], 6), torch.randn(6, 4)
    block.values.requires_grad_()
    block.aggregate(h).sum().backward()
    torch.testing.assert_close(block.values.grad, h[block.indices].sum(1))


def test_equal_to_embedding_bag() -> None:
    block, h = block_of([9] * 50, 99), torch.randn(99, 33)
    bag = functional.embedding_bag(
        block.indices, h, block.indptr, mode="sum", per_sample_weights=block.values, include_last_offset=True
    )
    torch.testing.assert_close(block.aggregate(h), bag)


def test_the_core_refuses_indices_outside() -> None:
    block = block_of([2], 3)
    with pytest.raises(IndexError):
        block.aggregate(torch.randn(int(block.indices.max()), 4))


class Sampled:
    """A layer of a small graph, by a sampler that takes few or all neighbours."""

    def __init__(self, fanout: int) -> None:
        self.graph = sp.load_dataset("rmat:8,8").graph
        sampler = sp.GraphSAGE([fanout])
        self.layer = sp.bulk_sample(self.graph, np.arange(60), sampler, batch_size=60)[0].layers[0]
        self.block = BlockMaker(self.graph, sampler)(self.layer)
        self.x = np.random.default_rng(0).standard_normal((self.graph.num_nodes, 20)).astype(np.float32)


@pytest.mark.parametrize("fanout", [1, 2, -1])
@pytest.mark.parametrize(
    "form", [np.asarray, sp.FeatureStore, np.asfortranarray, lambda x: x.astype(np.float16), sparse.csr_array]
)
def test_aggregate_of_a_source_is_that_of_gathered_rows(fanout: int, form: object) -> None:
    sampled = Sampled(fanout)
    source = form(sampled.x)  # type: ignore[operator]
    features = source if isinstance(source, sp.FeatureStore) else sp.FeatureStore(source)
    expected = sampled.block.aggregate(torch.from_numpy(features.gather(sampled.layer.src_nodes)))
    assert torch.equal(aggregate(sampled.block, source), expected)


def test_aggregate_copies_no_features_that_are_read_only() -> None:
    sampled = Sampled(2)
    expected = aggregate(sampled.block, sampled.x)
    many = np.zeros((2**20, 20), np.float32)  # 80 MiB
    many[: len(sampled.x)] = sampled.x
    many.flags.writeable = False
    aggregate(sampled.block, many)
    tracemalloc.start()
    result = aggregate(sampled.block, many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert torch.equal(result, expected)
    assert peak < 2**20


def test_aggregate_of_rows_that_are_not_aligned() -> None:
    sampled = Sampled(2)
    memory = np.zeros(sampled.x.nbytes + 1, np.uint8)
    rows = memory[1:].view(np.float32).reshape(sampled.x.shape)
    rows[:] = sampled.x
    assert not rows.flags.aligned
    assert torch.equal(aggregate(sampled.block, rows), aggregate(sampled.block, sampled.x))


def test_aggregate_with_other_values() -> None:
    sampled = Sampled(2)
    expected = aggregate(sampled.block, sampled.x)
    values = sampled.block.values.clone().requires_grad_()
    result = aggregate(replace(sampled.block, values=values), sampled.x)
    assert torch.equal(result, expected)
    result.sum().backward()
    torch.testing.assert_close(
        values.grad, torch.from_numpy(sampled.x[sampled.layer.src_nodes].sum(1))[sampled.block.indices]
    )
    assert torch.equal(aggregate(replace(sampled.block, values=sampled.block.values.double()), sampled.x), expected)


def test_aggregate_of_an_embedding_gives_it_a_gradient() -> None:
    sampled = Sampled(2)
    table = torch.from_numpy(sampled.x).requires_grad_()
    result = aggregate(sampled.block, table)
    result.sum().backward()
    expected = np.zeros(len(sampled.x))
    np.add.at(expected, sampled.layer.src_nodes, matrix(sampled.block).sum(0))
    np.testing.assert_allclose(table.grad.sum(1), 20 * expected, atol=1e-4)  # type: ignore[union-attr]


def test_aggregate_refuses_what_does_not_fit() -> None:
    sampled = Sampled(2)
    with pytest.raises(InputError, match="does not know its sources"):
        aggregate(block_of([1], 2), sampled.x)
    with pytest.raises(InputError, match="one row per vertex"):
        aggregate(sampled.block, sampled.x[:3])
    with pytest.raises(InputError, match="one row per vertex"):
        aggregate(sampled.block, torch.ones(3, 2))
    with pytest.raises(InputError, match="two"):
        aggregate(sampled.block, torch.ones(sampled.graph.num_nodes))
