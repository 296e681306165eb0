"""Torch's tensors: there are no kernels for them, but minibatches whose arrays they are can be converted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from numpy.typing import NDArray

from spsample.backends.arithmetic import coordinates_by_parts
from spsample.backends.on_host import OnHost


def is_tensor(value: Any) -> bool:
    """Return whether it is one of torch's tensors; torch is not imported for it.

    Examples
    --------
    >>> is_tensor([1.0])
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """Around work that goes to a stream of torch's, on its GPU.

    ``torch.cuda.stream`` alone goes back to a stream of the GPU that the thread was on, which is the first one in a new
    thread: a context would be opened there, in memory that another rank trains with.
    """
    torch = sys.modules["torch"]
    with torch.cuda.device(stream.device), torch.cuda.stream(stream):
        yield


def on_this_stream() -> AbstractContextManager[Any]:
    """Around the work of another thread: it goes to the stream of this one, for each thread of torch's has its own.

    What is made on another stream could be read before it is done, and its memory be given away while it is read.
    Without torch, and where torch has not begun to use a GPU, nothing is changed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return nullcontext()
    return on_stream(torch.cuda.current_stream())


class Tensors(OnHost):
    """The backend that conversions of minibatches ask, for tensors wherever they are.

    Work goes to the stream that is torch's current one.

    Examples
    --------
    >>> import torch
    >>> Tensors().edge_index(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 0, 2])).tolist()
    [[1, 0, 2], [0, 0, 2]]
    """

    def on_host(self, array: Any) -> NDArray[Any]:
        """The tensor as a NumPy array: a copy of one on a device, for which it waits."""
        values: NDArray[Any] = array.detach().cpu().numpy()
        return values

    def copied(self, array: Any) -> Any:
        """A copy of the tensor, where it is."""
        return array.clone()

    def edge_index(self, indptr: Any, indices: Any) -> Any:
        """(2, entries) int64 column and row of each entry of a CSR matrix."""
        torch = sys.modules["torch"]
        counts = indptr.diff()
        rows = torch.arange(len(counts), device=counts.device)
        return torch.stack([indices.long(), rows.repeat_interleave(counts, output_size=len(indices))])

    def widened(self, ids: Any) -> Any:
        """The ids as int64, in memory of their own."""
        return ids.to(sys.modules["torch"].int64, copy=True)

    coordinates = coordinates_by_parts
