"""Batches as DGL's DataLoader gives them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from spsample.common.checks import require_type
from spsample.errors import InputError, require_module
from spsample.loading.base import LoaderView
from spsample.loading.batch import Batch
from spsample.sampling.adapters import as_tensor

if TYPE_CHECKING:
    from spsample.loading.loader import BulkLoader

__all__ = ["DglLoader"]


class DglLoader(LoaderView):
    """A view of a `BulkLoader` that gives ``(input_nodes, output_nodes, blocks)``; made by `BulkLoader.dgl`.

    ``input_nodes`` are the sources of the first block and ``output_nodes`` the seeds, int64; ``blocks`` are as of
    `MiniBatch.to_dgl`. Features of the loader are in ``blocks[0].srcdata[feature_name]``, labels in
    ``blocks[-1].dstdata[label_name]``. Duplicate seeds of a batch are merged. With ``device`` all of it is there.

    Order, epochs and state are those of ``loader``.
    """

    def __init__(self, loader: BulkLoader, feature_name: str = "feat", label_name: str = "label") -> None:
        super().__init__(loader)
        if not getattr(loader.sampler, "include_targets", True):
            expected = "include_targets=True: a block of DGL has its dst vertices among its src vertices"
            raise InputError(argument="sampler", given=repr(loader.sampler), expected=expected)
        require_type("feature_name", feature_name, str, "a name in srcdata")
        require_type("label_name", label_name, str, "a name in dstdata")
        self.feature_name, self.label_name = feature_name, label_name
        self._torch = require_module("torch", needed_for="BulkLoader.dgl()", extra="pyg")
        self._dgl = require_module("dgl", needed_for="BulkLoader.dgl()")

    def __iter__(self) -> Iterator[tuple[Any, Any, list[Any]]]:
        """One pass, as the loader's own."""
        with closing(iter(self.loader)) as batches:
            yield from map(self._triple, batches)

    def _triple(self, batch: Batch) -> tuple[Any, Any, list[Any]]:
        require_type("transform", batch, Batch, "one that returns the Batch, of which dgl() makes blocks")
        blocks = batch.minibatch.to_dgl()
        first, last = blocks[0], blocks[-1]
        input_nodes, output_nodes = first.srcdata[self._dgl.NID], last.dstdata[self._dgl.NID]
        if batch.x is not None:
            first.srcdata[self.feature_name] = as_tensor(self._torch, batch.x)
        if batch.y is not None:
            last.dstdata[self.label_name] = as_tensor(self._torch, batch.y)
        return input_nodes, output_nodes, blocks
