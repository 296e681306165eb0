"""The memory that a session may count on, without asking the driver before every call of it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class FreeMemory:
    """Memory free when the session first asked, less what it took since; measured anew once that is half of it.

    What is given back meanwhile is not counted, so that it is rather too little. Each thread has its own session.

    Parameters
    ----------
    measure : callable
        Bytes that are free now: a call of the driver, which takes far longer than one of the pool.

    Examples
    --------
    >>> memory = FreeMemory(lambda: 1000)
    >>> memory.took(300)
    >>> memory.bytes(), memory.took(300), memory.bytes()
    (1000, None, 700)
    """

    def __init__(self, measure: Callable[[], int]) -> None:
        self._measure = measure
        self._here = threading.local()

    def forget(self) -> None:
        """A session begins: others may have taken or freed memory."""
        self._here.measured = self._here.left = 0

    def took(self, nbytes: int) -> None:
        """The session has taken so much."""
        self._here.left = getattr(self._here, "left", 0) - nbytes

    def bytes(self) -> int:
        """Bytes that are left."""
        measured: int = getattr(self._here, "measured", 0)
        left: int = getattr(self._here, "left", 0)
        if 2 * left <= measured:
            measured = left = self._measure()
            self._here.measured, self._here.left = measured, left
        return left
