"""The stage of a loader that copies batches to a device, between the features and the loop."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.backends.tensors import is_tensor
from spsample.common.checks import short
from spsample.errors import BackendError, DTypeError, InputError, require_module

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from spsample.loading.order import Delivered
    from spsample.store.base_graph import BaseGraph
    from spsample.timeline import Phases

COPIES = "copies"
"""The name of the stage, of its thread and of its phase."""

COPIES_AHEAD = 2
"""Batches, or chunks of small ones, that may be copied before they are asked for."""

COPIED_BATCHES = 4
"""Batches with features that the host holds for the copies: one that waits, one that is read, and two in pinned memory.
Where the device is the host itself: two that were copied ahead, the one in use, and the next."""

PINNED_BATCHES = 8
"""The same where the device is a GPU. Torch allocates pinned memory in powers of two bytes, so that the six batches on
the host (two of those of other loaders are on the GPU) may take the memory of twelve."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_EXPECTED_ARRAYS = "a Batch, PyG's Data, an array, a tensor, or a tuple, list or dictionary of such"

_NAMES = re.compile(r"cpu|meta|cuda(:\d{1,4})?")
_EXPECTED = "'cpu', 'cuda' or the number of a GPU, as in 'cuda:1'"


class _OnItsWay(NamedTuple):
    """A batch whose arrays are tensors, and the bytes of all of them, in the order of their copies."""

    batch: Any
    landed: list[Any]


class Copies:
    """The last stage of a batch that has its features: it is copied to a device, all of its arrays at once.

    Parameters
    ----------
    device : torch.device or None
        None: batches stay where they are made.
    transfer : Transfer, optional
        The way of the bytes; as the device needs it where None.

    Attributes
    ----------
    batches : int
        Batches that the host holds for the stage.
    phases : tuple of str
        Phases of its time.
    """

    def __init__(self, device: torch.device | None, transfer: Any = None) -> None:
        self.device, self._transfer = device, transfer
        self.batches = 0
        self.phases: tuple[str, ...] = ()
        if device is None:
            return
        self.batches = PINNED_BATCHES if device.type == "cuda" else COPIED_BATCHES
        self.phases = (COPIES,)
        if transfer is None:
            from spsample.loading.transfer import transfer_to

            self._transfer = transfer_to(device)

    def __reduce__(self) -> tuple[Any, ...]:
        return Copies, (self.device,)  # streams and pinned memory belong to a process

    def rows(self, count: int, dim: int) -> NDArray[np.float32] | None:
        """Return pinned memory for features, where the device is a GPU and there is much to copy; None: any will do."""
        return None if self.device is None else self._transfer.rows(count, dim)

    def sent(self, batch: Any) -> Any:
        """Begin to copy a batch, or the result of a transform of one.

        Its arrays may be freed afterwards, and all but those of `rows` may be changed.
        """
        if self.device is None:
            return batch
        from spsample.loading.transfer import PackedTensors

        arrays: list[Any] = []
        landed: list[Any] = []

        def note(array: Any) -> Any:
            arrays.append(array)
            return array

        def apart(values: NDArray[np.uint8]) -> Any:
            rows = self._transfer.send_rows(values)
            if rows is None:
                return None
            landed.append(rows)
            return rows.whole

        tree_map(batch, note)
        packed = PackedTensors(arrays, apart)
        landed.append(self._transfer.send(packed.nbytes, packed.write))
        tensors = iter(packed.tensors(landed[-1].whole))
        return _OnItsWay(tree_map(batch, lambda array: next(tensors)), landed)

    def arrived(self, batch: Any) -> Any:
        """Make a batch that was sent ready for use on the current stream of the thread that calls this."""
        if self.device is None:
            return batch
        for landed in batch.landed:
            self._transfer.receive(landed)
        return batch.batch

    def received(self, item: Delivered) -> Delivered:
        """Return an item with a batch that has arrived."""
        return item if self.device is None else item._replace(batch=self.arrived(item.batch))

    def over(self, items: Generator[Delivered, None, None], phases: Phases) -> Generator[Delivered, None, None]:
        """Yield the items, each sent as it comes; a GPU goes on to copy while the next one is waited for."""
        with closing(items):
            while (item := next(items, None)) is not None:
                with phases.timed(COPIES, item.batch_id):
                    sent = item._replace(batch=self.sent(item.batch))
                del item
                yield sent
                del sent


def copies_to(device: Any, *, from_host: bool = True) -> Copies:
    """Return the copies for `device` of a loader.

    Parameters
    ----------
    device : str, torch.device or None
    from_host : bool
        True where batches are made in the memory of the host.

    Raises
    ------
    InputError, DTypeError
        If there is no such device, or batches are made on one.
    BackendError
        If torch finds no GPU.
    MissingDependencyError
        If torch is not installed.

    Examples
    --------
    >>> copies_to(None).batches, copies_to("cpu").device
    (0, device(type='cpu'))
    """
    if device is not None and not from_host:
        expected = "None: batches are made there, and nothing is to be copied"
        hint = "With backend='cpu' or none the host samples, and batches are copied."
        raise InputError(argument="device", given=f"{device!r} with a graph on a device", expected=expected, hint=hint)
    return Copies(None if device is None else require_device("device", device))


def samples_on_device(graph: BaseGraph, backend: str | None) -> bool:
    """Return whether bulks of a graph lie on a device: those of a partitioned graph are in the memory of the host.

    Examples
    --------
    >>> import spsample
    >>> samples_on_device(spsample.Graph([0, 0], []), None)
    False
    """
    return graph.is_on_device or (backend == "cuda" and graph.host is not None)


def require_device(argument: str, device: Any) -> torch.device:
    """Return a device by its name; ``"cuda"`` is the GPU of this rank.

    Raises
    ------
    InputError, DTypeError, BackendError, MissingDependencyError
        As of `copies_to`.

    Examples
    --------
    >>> require_device("device", "cpu")
    device(type='cpu')
    """
    torch: Any = require_module("torch", needed_for=f"{argument}=", extra="pyg")
    if not isinstance(device, (str, torch.device)):
        given = f"{short(device)} of type {type(device).__name__}"
        raise DTypeError(argument=argument, given=given, expected=_EXPECTED)
    name = str(device)
    if not _NAMES.fullmatch(name):
        raise InputError(argument=argument, given=short(name), expected=_EXPECTED)
    if not name.startswith("cuda"):
        return torch.device(name)  # type: ignore[no-any-return]  # torch is imported here
    if not torch.cuda.is_available():
        raise BackendError(
            f"{argument}={name!r} needs a GPU, and torch finds none (`spsample doctor` says what is there)."
        )
    count = torch.cuda.device_count()
    if name == "cuda":
        from spsample.backends.cuda.cupy_device import gpu_number

        torch.cuda.set_device(gpu_number(count))  # where torch has not chosen yet; else it is this one already
    number = int(name.partition(":")[2] or torch.cuda.current_device())
    if number >= count:
        last = f"'cuda:0' to 'cuda:{count - 1}'" if count > 1 else "'cuda:0', the only one"
        raise InputError(argument=argument, given=repr(name), expected=f"a GPU of this machine: {last}")
    return torch.device("cuda", number)  # type: ignore[no-any-return]


def tree_map(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a delivered batch with a function's results for each array and tensor, in a fixed order.

    Numbers and texts stay as they are, and so do arrays that are on a device.

    Raises
    ------
    DTypeError
        If it holds anything else.

    Examples
    --------
    >>> tree_map({"x": np.arange(2), "name": "a"}, lambda array: array + 1)
    {'x': array([1, 2]), 'name': 'a'}
    """
    if isinstance(value, np.ndarray):
        return function(value)
    if is_tensor(value):
        return function(value) if value.device.type == "cpu" else value
    if hasattr(value, "map_arrays"):
        return value.map_arrays(lambda array: tree_map(array, function))
    if isinstance(value, (tuple, list)):
        items = [tree_map(item, function) for item in value]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, dict):
        return {key: tree_map(item, function) for key, item in value.items()}
    if isinstance(value, _PLAIN) or hasattr(value, "__dlpack__"):
        return value
    pyg = sys.modules.get("torch_geometric.data.data")  # not imported for it
    if pyg is not None and isinstance(value, pyg.BaseData):
        return copy.copy(value).apply(lambda item: tree_map(item, function) if is_tensor(item) else item)
    given = f"{short(value)} of type {type(value).__name__}, to be copied to a device"
    hint = "Without device= a transform may return anything, on any device."
    raise DTypeError(argument="transform", given=given, expected=_EXPECTED_ARRAYS, hint=hint)
