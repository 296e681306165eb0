"""The compiled core: internal, used by `spsample.backends.cpu` only."""

from typing import Any

__version__: str

def build_info() -> dict[str, Any]: ...

# The kernels: their arguments are checked at run time, and in Python by spsample.backends.cpu.
def __getattr__(name: str) -> Any: ...
