"""PyG's `Data` of a sampled batch, which keeps its hops where it is moved. Needs torch_geometric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch_geometric.data import Data

from spsample.sampling.hops import Hops


class SampledData(Data):  # type: ignore[misc]  # torch_geometric has no types
    """`torch_geometric.data.Data` whose ``edge_index`` has its `Hops` again after ``to``, ``apply`` and ``pin_memory``.

    Examples
    --------
    >>> data = SampledData(edge_index=torch.tensor([[1], [0]]))
    >>> data.edge_index = Hops.put_on(data.edge_index, [1, 1], [1])
    >>> data.apply(torch.clone).edge_index.hops.nodes
    (1, 2)
    >>> hasattr(data.apply(lambda tensor: tensor.flip(0)).edge_index, "hops")
    False
    """

    def apply(self, func: Callable[..., Any], *args: str) -> SampledData:
        """PyG's; edges that the function leaves as they are, of one device, keep their hops."""
        before = self._sampled_edges()
        super().apply(func, *args)
        after = self._store.get("edge_index")
        if before is not None and after.device == before.device and torch.equal(after, before):
            self._keep_hops(before)
        return self

    def to(self, device: Any, *args: str, non_blocking: bool = False) -> SampledData:
        """PyG's; edges keep their hops."""
        before = self._sampled_edges()
        super().to(device, *args, non_blocking=non_blocking)
        if before is not None:
            self._keep_hops(before)
        return self

    def _sampled_edges(self) -> Any:
        """The edges, where they have their hops; else None."""
        edge_index = self._store.get("edge_index")
        hops = getattr(edge_index, "hops", None)
        return edge_index if isinstance(hops, Hops) and hops.is_of(edge_index) else None

    def _keep_hops(self, before: Any) -> None:
        after = self._store.edge_index
        if after is not before and after.dtype == before.dtype:
            self._store.edge_index = before.hops.put_on_copy(after)

    def cpu(self, *args: str) -> SampledData:
        """``to("cpu")``."""
        return self.to("cpu", *args)

    def cuda(self, device: Any = None, *args: str, non_blocking: bool = False) -> SampledData:
        """``to("cuda")``."""
        return self.to("cuda" if device is None else device, *args, non_blocking=non_blocking)
