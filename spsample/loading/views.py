"""What the views of a loader that give batches of other libraries have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spsample.common.checks import short
from spsample.errors import DTypeError

if TYPE_CHECKING:
    from spsample.loading.loader import BulkLoader

__all__ = ["LoaderView"]


class LoaderView:
    """Order, epochs and state are those of ``loader``."""

    def __init__(self, loader: BulkLoader) -> None:
        if not hasattr(loader, "batches"):
            raise DTypeError(argument="loader", given=short(loader), expected="a BulkLoader")
        self.loader = loader

    def __len__(self) -> int:
        """Minibatches per epoch."""
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """`BulkLoader.set_epoch`."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """`BulkLoader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """`BulkLoader.load_state_dict`."""
        self.loader.load_state_dict(state)
