"""The options of `BulkLoader` in four groups, with their defaults and checks; `BulkLoader` documents them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spsample.backends import get_backend
from spsample.common.checks import require_bulk_size, require_choice, require_int, short
from spsample.common.stage_threads import StageThreads, require_stage_threads
from spsample.common.threads import get_num_threads
from spsample.common.units import require_bytes
from spsample.errors import DTypeError, InputError
from spsample.loading.fetching import FETCHES
from spsample.loading.order import Order
from spsample.planning.loader_plan import MAX_AHEAD, USUAL_BULK_SIZE
from spsample.sampling.sampler import require_bool

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from spsample.timeline import Timeline

_REMOVED = {"transform_workers": "Call the transform in the thread that gathers features: transform= alone."}


@dataclass(frozen=True)
class SamplingGroup:
    """Order of the seeds, and sampling."""

    shuffle: bool | Order = True
    drop_last: bool = False
    random_seed: int = 0
    edge_ids: bool = False
    backend: str | None = None

    def __post_init__(self) -> None:
        require_bool("drop_last", self.drop_last)
        require_bool("edge_ids", self.edge_ids)
        loaded = get_backend(self.backend)  # now: in a process forked while a thread loads it, it could never be loaded
        if self.backend is not None:
            object.__setattr__(self, "backend", loaded.name)


@dataclass(frozen=True)
class FeatureGroup:
    """Features, labels and device of batches."""

    features: Any = None
    labels: ArrayLike | None = None
    fetch: str = "batch"
    transform: Callable[[Any], Any] | None = None
    device: Any = None

    def __post_init__(self) -> None:
        require_choice("fetch", self.fetch, tuple(FETCHES))
        transform: Any = self.transform
        if transform is not None and not callable(transform):
            raise DTypeError(argument="transform", given=short(transform), expected="a function of a batch, or None")


@dataclass(frozen=True)
class AheadGroup:
    """Work at once and ahead, its memory and its threads."""

    bulk_size: int | str = USUAL_BULK_SIZE
    memory_budget: int | str | None = None
    prefetch: int = 1
    prefetch_budget: int | str | None = None
    stage_threads: StageThreads | str | Sequence[int] | None = None
    timeline: Timeline | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefetch", require_int("prefetch", self.prefetch, minimum=0, maximum=MAX_AHEAD))
        require_bulk_size("bulk_size", self.bulk_size)
        for name in ("memory_budget", "prefetch_budget"):
            if getattr(self, name) is not None:
                require_bytes(name, getattr(self, name))
        self._require_prefetch("stage_threads", "None: all is done in the thread of the loop, as set_num_threads says")
        self._require_prefetch("prefetch_budget", "None: nothing is prepared ahead")
        if self.stage_threads is not None:
            object.__setattr__(self, "stage_threads", require_stage_threads("stage_threads", self.stage_threads))

    def _require_prefetch(self, name: str, expected: str) -> None:
        value = getattr(self, name)
        if value is not None and self.prefetch == 0:
            raise InputError(argument=name, given=f"{value!r} with prefetch=0", expected=expected)

    @property
    def queue_bytes(self) -> int | None:
        """Bytes of bulks that wait, and as many of batches: half of the budget; None for no limit."""
        budget = self.memory_budget if self.prefetch_budget is None else self.prefetch_budget
        return None if budget is None else require_bytes("prefetch_budget", budget) // 2

    def threads_of(self, stage: str) -> int:
        """Return the threads of sampling or of features."""
        threads = self.stage_threads
        return int(getattr(threads, stage)) if isinstance(threads, StageThreads) else get_num_threads()


@dataclass(frozen=True)
class RankGroup:
    """Assignment of batches to ranks."""

    batches: str = "shuffled"
    parts: ArrayLike | None = None


def refuse_removed(name: str, options: Mapping[str, Any]) -> None:
    """Refuse arguments that a class once had, by their names; and others as Python does.

    Raises
    ------
    InputError, TypeError
    """
    for option, value in options.items():
        if option in _REMOVED:
            raise InputError(argument=option, given=short(value), expected="nothing: it is gone", hint=_REMOVED[option])
        raise TypeError(f"{name}() got an unexpected keyword argument {option!r}")
