"""Batches as PyG's NeighborLoader gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spsample.errors import InputError, require_module
from spsample.loading.base import LoaderView
from spsample.loading.batch import first_positions
from spsample.sampling.adapters import as_tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.loading.loader import BulkLoader
    from spsample.sampling import MiniBatch

__all__ = ["PygLoader"]


class PygLoader(LoaderView):
    """A view of a `BulkLoader` that gives `torch_geometric.data.Data`; made by `BulkLoader.pyg`.

    Each batch has what PyG's NeighborLoader puts there: ``x`` and ``y`` of all its vertices, the seeds first;
    ``edge_index``, ``n_id``, ``batch_size``, ``input_id``, ``num_sampled_nodes`` and ``num_sampled_edges``; ``e_id``
    where the loader has ``edge_ids=True``, and ``edge_weight`` where the graph has weights. Duplicate seeds of a batch
    are merged. Of a graph on a device all of it is there, but for ``input_id``, and for ``x`` of a store of features on
    the host. With ``device`` of the loader all of it is copied there.

    Order, epochs and state are those of ``loader``.
    """

    def __init__(self, loader: BulkLoader) -> None:
        super().__init__(loader)
        if loader.sampler.layout != "subgraph":
            raise InputError(
                argument="sampler", given=repr(loader.sampler), expected="GraphSAGE(..., layout='subgraph') for pyg()"
            )
        self._torch = require_module("torch", needed_for="BulkLoader.pyg()", extra="pyg")
        require_module("torch_geometric", needed_for="BulkLoader.pyg()", extra="pyg")

    def __iter__(self) -> Iterator[Any]:
        """One pass, as the loader's own."""
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
    """Bytes of the tensors of a batch."""
    return sum(int(value.nbytes) for value in data.stores[0].values() if hasattr(value, "nbytes"))
