"""Private names of torch: they stand in one module, and the public way is taken where a version lacks one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import spsample.nn
from spsample.nn import private, products
from spsample.nn.tensors import new_numbers, with_rounded_rows

FOLDER = Path(spsample.nn.__file__).parent
PRIVATE = re.compile(r"torch\._[A-Za-z]|torch\.ops\.\w+\._|torch\.\w+\._[a-z]")


def test_they_stand_in_one_module():
    assert PRIVATE.search((FOLDER / "private.py").read_text())
    for path in FOLDER.glob("*.py"):
        assert path.name == "private.py" or not PRIVATE.search(path.read_text()), path.name


@pytest.fixture
def few_names(monkeypatch):
    """A torch without them."""
    monkeypatch.setattr(products, "_LARGE", 0)
    monkeypatch.delattr(torch._C, "_len_torch_dispatch_stack")
    monkeypatch.delattr(torch._C._functorch, "is_functorch_wrapped_tensor")
    monkeypatch.setattr(torch.ops, "mkldnn", object())


def gradients(linear, x, weight, bias):
    return torch.autograd.grad(linear(x, weight, bias).square().sum(), (x, weight, bias))


def test_without_them(few_names):
    assert private.is_seen_by_a_mode()
    assert not private.is_untransformed(torch.ones(2))
    given = [torch.randn(shape, requires_grad=True) for shape in ((40, 5), (3, 5), (3,))]
    torch.testing.assert_close(private.onednn_linear(*given), functional.linear(*given))
    torch.testing.assert_close(products.linear(*given), functional.linear(*given))
    torch.testing.assert_close(gradients(products.linear, *given), gradients(functional.linear, *given))
    x = new_numbers((33, 2))
    assert with_rounded_rows(x) is x


def test_layers_without_them(few_names):
    from test_layer_rules import are_fast, assert_right, loader, sage

    theirs, mine = sage(2)
    for batch in loader():
        assert_right(theirs, mine, batch)
    assert are_fast(mine)


def test_with_them(monkeypatch):
    monkeypatch.setattr(products, "_LARGE", 0)
    assert not private.is_seen_by_a_mode()
    assert private.is_untransformed(torch.ones(2))
    given = [torch.randn(shape, requires_grad=True) for shape in ((40, 5), (3, 5), (3,))]
    torch.testing.assert_close(gradients(products.linear, *given), gradients(functional.linear, *given))
