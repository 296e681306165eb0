"""Commands under mpirun, srun and torchrun: the ranks, what lies on which of them, and which one prints."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spsample.errors import CommunicationError, DataError, InputError, SpSampleError
from spsample.store.npy import map_npy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.data import Dataset
    from spsample.distributed import ProcessGrid
    from spsample.settings import RankOptions


class RanksData:
    """Data sets of a command: on several ranks, each opens the same store.

    What is no store yet becomes one in a temporary folder. On one rank data sets are loaded as they are.

    Parameters
    ----------
    comm
        The ranks.
    options
        How graph and features lie on them.
    """

    def __init__(self, comm: Communicator, options: RankOptions) -> None:
        self._comm = comm
        self._options = options
        self._folder: Path | None = None
        self._grid: ProcessGrid | None = None  # of all runs
        self._number = 0

    def load(self, spec: str, split: int, random_seed: int) -> tuple[Dataset, str]:
        """The data set, and the store whose maps it is; collective. Rank 0 alone generates, reads or fetches."""
        from spsample.comm import collective
        from spsample.comm.objects import broadcast_object
        from spsample.data import load_dataset
        from spsample.data.stored import is_store

        if self._comm.size == 1:
            return load_dataset(spec, split=split, random_seed=random_seed), spec

        def loaded() -> tuple[str, int, dict[str, Any]]:
            if is_store(spec):
                return spec, split, {}
            dataset = load_dataset(spec, split=split, random_seed=random_seed)
            own = {"name": dataset.name, "split": split, "num_splits": dataset.num_splits}
            return self._saved(dataset), 0, own

        if self._folder is None and self._comm.rank == 0:
            self._folder = Path(tempfile.mkdtemp(prefix="spsample-"))
        path, stored_split, own = broadcast_object(self._comm, loaded)
        with collective(self._comm):
            dataset = load_dataset(_visible(path), split=stored_split)
        return replace(dataset, **own), path

    def spread(self, dataset: Dataset, path: str, prepare: Callable[[Dataset], Dataset]) -> Dataset:
        """The data set prepared, with graph and features on the ranks; collective."""
        from spsample.comm import collective
        from spsample.comm.objects import broadcast_object
        from spsample.data import load_dataset

        if self._comm.size == 1:
            return prepare(dataset)

        def prepared() -> tuple[str | None, str, str]:
            ready = prepare(dataset)
            same = ready.x is dataset.x and ready.graph is dataset.graph
            return None if same else self._saved(ready), ready.name, ready.metric

        store, name, metric = broadcast_object(self._comm, prepared)
        if store is not None:
            with collective(self._comm):
                changed = load_dataset(_visible(store))
            dataset, path = replace(changed, split=dataset.split, num_splits=dataset.num_splits), store
        return self._spread(replace(dataset, name=name, metric=metric), path)

    def seed_parts(self) -> NDArray[Any] | None:
        """The part of each vertex, of a graph that every rank has: whose batches its seeds belong to."""
        return None if self._options.partitioned or self._comm.size == 1 else self._parts()

    def close(self) -> None:
        """Remove what was temporary."""
        if self._folder is not None and self._comm.rank == 0:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _saved(self, dataset: Dataset) -> str:
        from spsample.data import save_dataset

        self._number += 1
        path = Path(str(self._folder), str(self._number))
        save_dataset(dataset, path)
        return str(path)

    def _spread(self, dataset: Dataset, path: str) -> Dataset:
        from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
        from spsample.features import FeatureStore

        x: Any = dataset.x
        if not self._options.partitioned:
            graph: Any = ReplicatedGraph(dataset.graph, self._comm)
            return replace(dataset, graph=graph, x=None if x is None else FeatureStore.open(path))
        if self._grid is None:
            self._grid = ProcessGrid(self._comm, self._options.replication)
        grid, parts = self._grid, self._parts()
        algorithm, hubs = self._options.algorithm, self._options.replicate_hubs
        graph = PartitionedGraph.open(path, grid, algorithm=algorithm, replicate_hubs=hubs, partition=parts)
        if x is not None:
            x = FeatureStore.open(path, grid=grid, dtype=self._options.feature_dtype, partition=parts)
        return replace(dataset, graph=graph, x=x)

    def _parts(self) -> NDArray[Any] | None:
        """The block row of each vertex, where the user gives them."""
        from spsample.comm import collective

        if self._options.partition is None:
            return None
        with collective(self._comm):
            return integers_of(Path(self._options.partition))


def integers_of(path: Path) -> NDArray[Any]:
    """The array of a file."""
    expected = "a file (.npy) that `spsample partition` has written, which all machines see"
    array: NDArray[Any] = map_npy(path, expected, "--partition")
    if array.dtype.kind not in "iu":
        raise DataError(argument="--partition", given=f"an array of {array.dtype}", expected="integers, one per vertex")
    return array


def _visible(path: str) -> str:
    """The path, if there is something on this rank's machine."""
    if not Path(path).exists():
        raise DataError(
            argument="dataset",
            given=f"{path!r}, which rank 0 sees and another rank does not",
            expected="a folder that all machines see",
            hint="Make a store there first (Dataset.save or spsample convert), or set TMPDIR to such a folder.",
        )
    return path


@contextmanager
def abort_on_error(comm: Communicator) -> Iterator[None]:
    """Around a command on several ranks: an error that is one rank's alone ends the others too."""
    try:
        yield
    except Exception as error:
        if comm.size > 1 and getattr(error, "raised_by", None) is None:
            kind = "" if isinstance(error, (SpSampleError, OSError)) else f"{type(error).__name__}: "
            comm.abort(f"spsample: rank {comm.rank}: error: {kind}{error}")
        raise


def reports_error(error: BaseException, rank: int) -> bool:
    """Return whether this rank prints an error: it has it itself, or no rank is named in it."""
    raised_by = getattr(error, "raised_by", None)
    return raised_by is None or raised_by == rank or isinstance(error, CommunicationError)


def check_rank_options(options: RankOptions, ranks: int, batches: str | None = None) -> None:
    """Refuse options that contradict each other or do not fit the ranks, before anything is loaded."""
    if options.partitioned:
        if options.replication < 1 or (ranks > 1 and ranks % options.replication):
            given, expected = f"{options.replication} on {ranks} ranks", f"a divisor of {ranks}"
            raise InputError(argument="--replication", given=given, expected=expected)
        return
    for option in options.of_block_rows:
        if option == "--partition" and batches in ("local", "cooperative"):
            continue  # whose seeds, or whose vertices they are
        raise InputError(argument=option, given="it with --replicated", expected="it with --partitioned alone")
    if batches == "local" and options.partition is None and ranks > 1:
        expected = "--partition too: a file of `spsample partition` with as many parts as ranks"
        raise InputError(argument="--batches", given="local with --replicated", expected=expected)
