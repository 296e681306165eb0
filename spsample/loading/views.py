"""Batches of a loader as other libraries have them: PyG's `NeighborLoader`, DGL's `DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from spsample.common.checks import require_type, short
from spsample.errors import DTypeError, InputError, require_module
from spsample.loading.batch import Batch, first_positions
from spsample.sampling.adapters import as_tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.sampling import MiniBatch


class LoaderView:
    """A loader's batches as those of another library; order, epochs and state are those of ``loader``."""

    def __init__(self, loader: Any) -> None:
        if not hasattr(loader, "batches"):
            raise DTypeError(argument="loader", given=short(loader), expected="a BulkLoader")
        self.loader = loader

    def __len__(self) -> int:
        """Minibatches per epoch."""
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch: see `BulkLoader.set_epoch`."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state: see `BulkLoader.state_dict`."""
        state: dict[str, Any] = self.loader.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state: see `BulkLoader.load_state_dict`."""
        self.loader.load_state_dict(state)


class PygLoader(LoaderView):
    """A view of a `BulkLoader` that gives `torch_geometric.data.Data`; made by `BulkLoader.pyg`.

    Each batch has the attributes of PyG's NeighborLoader: ``x`` and ``y`` of all its vertices, the seeds first;
    ``edge_index``, ``n_id``, ``batch_size``, ``input_id``, ``num_sampled_nodes`` and ``num_sampled_edges``; ``e_id``
    where the loader has ``edge_ids=True``, and ``edge_weight`` where the graph has weights. Duplicate seeds of a batch
    are merged. Of a graph on a device all of it is there, but for ``input_id``, and for ``x`` of a store of features on
    the host. With ``device`` of the loader all of it is copied there.

    Order, epochs and state are those of ``loader``.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        if loader.sampler.layout != "subgraph":
            raise InputError(
                argument="sampler", given=repr(loader.sampler), expected="GraphSAGE(..., layout='subgraph') for pyg()"
            )
        self._torch = require_module("torch", needed_for="BulkLoader.pyg()", extra="pyg")
        require_module("torch_geometric", needed_for="BulkLoader.pyg()", extra="pyg")

    def __iter__(self) -> Iterator[Any]:
        """Iterate over one pass, as the loader does."""
        batches: Iterator[Any] = self.loader.batches(self._data, size_of=_bytes_of)
        return batches

    def _data(self, minibatch: MiniBatch, positions: NDArray[np.int64], x: NDArray[np.float32] | None) -> Any:
        data = minibatch.to_pyg()
        y = self.loader.collate.y_of(minibatch.src_nodes)
        if x is not None:
            data["x"] = as_tensor(self._torch, self.loader.collate.x_of(x))
        if y is not None:
            data["y"] = as_tensor(self._torch, y)
        data["input_id"] = self._torch.from_numpy(first_positions(minibatch, positions).copy())
        return data


def _bytes_of(data: Any) -> int:
    """Return the bytes of the tensors of a batch."""
    return sum(int(value.nbytes) for value in data.stores[0].values() if hasattr(value, "nbytes"))


class DglLoader(LoaderView):
    """A view of a `BulkLoader` that gives ``(input_nodes, output_nodes, blocks)``; made by `BulkLoader.dgl`.

    ``input_nodes`` are the sources of the first block and ``output_nodes`` the seeds, int64; ``blocks`` are as of
    `MiniBatch.to_dgl`. Features of the loader are in ``blocks[0].srcdata[feature_name]``, labels in
    ``blocks[-1].dstdata[label_name]``. Duplicate seeds of a batch are merged. With ``device`` all of it is there.

    Order, epochs and state are those of ``loader``.
    """

    def __init__(self, loader: Any, feature_name: str = "feat", label_name: str = "label") -> None:
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
        """Iterate over one pass, as the loader does."""
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
