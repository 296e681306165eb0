"""Measures of parts, and the stores that independent trainers open."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.common.checks import require_int, require_path, require_type
from spsample.data.dataset import Dataset, write_dataset
from spsample.data.labels import SPLIT_IDS, split_of
from spsample.data.partition import as_train_vertices, check_parts_of_train, require_hops, require_num_parts
from spsample.data.stored import is_store, load_store
from spsample.distributed.placement import require_parts
from spsample.errors import DataError, InputError
from spsample.store import Graph, GraphStore, StoreWriter
from spsample.store.base_graph import require_local
from spsample.store.construction import row_entries
from spsample.store.folder import PartialFolder, require_free_path, require_room
from spsample.store.validation import as_id_vector


class Reach:
    """Vertices that lead to some vertices by a number of edges, and those of them whose rows can be sampled.

    Attributes
    ----------
    vertices : int64 array
        All of them, ascending: the closure. The vertices that it was made from are among them.
    is_inner : bool array, one for each of `vertices`
        True where fewer edges lead to the start than hops: the row of A is sampled. Of other vertices only features
        are needed.

    Examples
    --------
    >>> reach = Reach(Graph([0, 1, 2, 3, 3], [1, 2, 3]), np.array([0]), hops=2)
    >>> reach.vertices, reach.is_inner
    (array([0, 1, 2]), array([ True,  True, False]))
    """

    def __init__(self, graph: Graph, start: NDArray[np.int64], hops: int) -> None:
        """Go `hops` edges back from `start`; O(entries of the inner rows, and vertices of the graph)."""
        is_reached = np.zeros(graph.num_nodes, np.bool_)
        is_reached[start] = True
        is_inner = np.zeros(graph.num_nodes, np.bool_)
        last = np.flatnonzero(is_reached)
        for _ in range(hops):
            is_inner[last] = True
            sources = np.zeros(graph.num_nodes, np.bool_)
            sources[graph.indices[row_entries(graph.indptr, last)]] = True
            last = np.flatnonzero(sources & ~is_reached)
            is_reached[last] = True
            if len(last) == 0:
                break
        self.vertices: NDArray[np.int64] = np.flatnonzero(is_reached)
        self.is_inner = is_inner[self.vertices]

    @property
    def inner(self) -> NDArray[np.int64]:
        """The vertices whose rows are sampled, ascending."""
        return self.vertices[self.is_inner]


class DatasetPart(NamedTuple):
    """The data of one trainer, cut out of a data set.

    Attributes
    ----------
    dataset : Dataset
        Train vertices of the part and all that leads to them, numbered anew.
    original_ids : int64 array
        Their ids in the whole data set, ascending.
    """

    dataset: Dataset
    original_ids: NDArray[np.int64]


class PartitionQuality(NamedTuple):
    """Balance of the parts, edges between them, and copies of vertices in several.

    Attributes
    ----------
    largest : float
        Rows and entries of the largest part over the mean.
    cut : float
        Share of the edges whose two vertices are in different parts.
    empty : int
        Parts without a vertex.
    train_balance : float or None
        Train vertices of the part with the most over the mean. None where none were given.
    replication : float or None
        Mean number of parts that need a vertex, over the vertices that any part needs: its train vertices, and what
        leads to them by at most `hops` edges. 1 is the least, the number of parts the most. None without hops.
    edges_kept : float or None
        Share of the graph's edges that a part needs, mean over the parts: those into vertices less than `hops` edges
        from its train vertices. None without hops.
    """

    largest: float
    cut: float
    empty: int
    train_balance: float | None = None
    replication: float | None = None
    edges_kept: float | None = None


def partition_quality(
    graph: Graph, parts: NDArray[np.integer], num_parts: int, *, seeds: Any = None, hops: int | None = None
) -> PartitionQuality:
    """Measure a partition of a graph.

    Parameters
    ----------
    graph : Graph
    parts : int array (n,)
        The part of each vertex.
    num_parts : int
    seeds : array-like of int, optional
        Train vertices, for ``train_balance``.
    hops : int, optional
        Layers that will be sampled from the train vertices, for ``replication`` and ``edges_kept``.

    Raises
    ------
    InputError, DTypeError
        If `parts` does not have a number below `num_parts` for each vertex, or there are hops without seeds.

    Examples
    --------
    >>> graph = Graph([0, 1, 2, 3, 4], [1, 0, 3, 0])
    >>> partition_quality(graph, np.array([0, 0, 1, 1]), 2)
    PartitionQuality(largest=1.0, cut=0.25, empty=0, train_balance=None, replication=None, edges_kept=None)
    >>> quality = partition_quality(graph, np.array([0, 0, 1, 1]), 2, seeds=[0, 3], hops=1)
    >>> quality.train_balance, quality.replication, quality.edges_kept
    (1.0, 1.3333333333333333, 0.25)
    """
    require_local(graph)
    num_parts = require_num_parts(num_parts)
    parts = require_parts(parts, graph.num_nodes, num_parts, "parts")
    degrees = np.asarray(np.diff(graph.indptr), np.int64)
    load = np.bincount(parts, weights=degrees + 1, minlength=num_parts)
    crossing = int(np.count_nonzero(np.repeat(parts, degrees) != parts[np.asarray(graph.indices)]))
    quality = PartitionQuality(
        largest=float(load.max() * num_parts / load.sum()),
        cut=crossing / max(graph.num_edges, 1),
        empty=int(np.count_nonzero(load == 0)),
    )
    if seeds is None and hops is not None:
        raise InputError(argument="seeds", given="nothing", expected="train vertices, which hops are counted from")
    if seeds is None:
        return quality
    train = as_train_vertices(seeds, graph.num_nodes)
    counts = np.bincount(parts[train], minlength=num_parts)
    quality = quality._replace(train_balance=float(counts.max() * num_parts / len(train)))
    if hops is None:
        return quality
    hops = require_hops(hops)
    needing, entries = np.zeros(graph.num_nodes, np.int64), 0
    for part in range(num_parts):
        reach = Reach(graph, train[parts[train] == part], hops)
        needing[reach.vertices] += 1
        entries += int(degrees[reach.inner].sum())
    replication = float(needing.sum() / np.count_nonzero(needing))
    return quality._replace(replication=replication, edges_kept=entries / max(num_parts * graph.num_edges, 1))


_HOPS = "part_hops"
"""The fact of a part's store with the hops that it holds."""
_DIGEST = "whole_digest"
"""The fact with the digest of the whole graph, where that is known."""


def write_part_stores(
    dataset: Dataset,
    parts: NDArray[np.integer],
    num_parts: int,
    stores: str | os.PathLike[str],
    *,
    hops: int,
    evaluation: bool = False,
) -> list[Path]:
    """Write a graph store for each part, on which one trainer can sample without the others.

    A store has the train vertices of its part and all vertices that lead to one by at most `hops` edges, with features
    and labels. The edges into vertices less than `hops` edges away are there, and no others: nothing is there that
    sampling of `hops` layers from the train vertices cannot reach. A vertex may be in several stores. Vertices are
    numbered anew, in their order; ``original_ids`` has their ids in `dataset`, and edges keep their edge ids.

    Parameters
    ----------
    dataset : Dataset
        With train vertices.
    parts : int array (n,)
        The part of each vertex of `dataset`, as of `partition_vertices`. Each part has a train vertex.
    num_parts : int
    stores : path-like
        A folder that does not exist, or is empty. It gets the stores ``part-0``, ``part-1``, ...
    hops : int
        Layers that will be sampled, at most.
    evaluation : bool, optional
        Put the validation and test vertices of each part into its store too, and what leads to them. Without it a
        store has none: these are evaluated on the whole graph.

    Returns
    -------
    list of Path
        The stores, which `load_dataset` opens.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used, or `stores` exists.
    CapacityError
        If the disk has less room than it takes; it names the bytes needed and free.
    DataError
        If the folder cannot be written.

    Notes
    -----
    One part at a time is in memory. All stores appear at once, or none.

    Examples
    --------
    >>> import tempfile
    >>> from spsample.data import load_dataset, partition_vertices, planted
    >>> whole = planted(60, 3, 2)
    >>> parts = partition_vertices(whole.graph, 2, "pagraph", seeds=whole.train_idx, hops=2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> made = write_part_stores(whole, parts, 2, f"{folder.name}/stores", hops=2)
    >>> [len(load_dataset(str(path)).train_idx) for path in made]
    [18, 18]
    >>> folder.cleanup()
    """
    cut = _Cut(dataset, parts, num_parts, hops, evaluation)
    folder = require_free_path("stores", stores)
    require_room("stores", folder, sum(_store_bytes(dataset, cut.reach(part)) for part in range(cut.num_parts)))
    partial = PartialFolder(folder)
    try:
        for part in range(cut.num_parts):
            reach = cut.reach(part)
            with StoreWriter(partial.path / f"part-{part}") as writer:
                write_dataset(writer, cut.dataset_of(part, reach))
                writer.write("original_ids", reach.vertices)
        partial.publish(overwrite=False)
    except BaseException:
        partial.remove()
        raise
    return [partial.target / f"part-{part}" for part in range(cut.num_parts)]


def part_dataset(
    dataset: Dataset, parts: NDArray[np.integer], num_parts: int, part: int, *, hops: int, evaluation: bool = False
) -> DatasetPart:
    """Return what `write_part_stores` writes of one part, in memory.

    Raises
    ------
    InputError, DTypeError

    Examples
    --------
    >>> from spsample.data import planted
    >>> part, ids = part_dataset(planted(60, 3, 2), np.arange(60) % 2, 2, 1, hops=1)
    >>> sorted(set((ids[part.train_idx] % 2).tolist()))
    [1]
    """
    cut = _Cut(dataset, parts, num_parts, hops, evaluation)
    part = require_int("part", part, minimum=0, maximum=cut.num_parts - 1)
    reach = cut.reach(part)
    return DatasetPart(cut.dataset_of(part, reach), reach.vertices)


def read_part(stores: str | os.PathLike[str], part: int, num_parts: int) -> DatasetPart:
    """Open the store of one part, of those that `write_part_stores` has written; features are memory maps.

    Raises
    ------
    InputError
        If there are not `num_parts` parts.
    DataError
        If there are no stores of parts, or one is damaged.

    Examples
    --------
    >>> import tempfile
    >>> import spsample as sp
    >>> whole = sp.load_dataset("planted:60")
    >>> folder = tempfile.TemporaryDirectory()
    >>> made = write_part_stores(whole, np.arange(60) % 2, 2, f"{folder.name}/stores", hops=2)
    >>> [len(read_part(f"{folder.name}/stores", part, 2).dataset.train_idx) for part in range(2)]
    [18, 18]
    >>> read_part(f"{folder.name}/stores", 0, 4)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: part: got 2 parts in ...; expected as many as ranks: 4. ...
    >>> folder.cleanup()
    """
    folder = require_path("stores", stores)
    hint = f"spsample partition DATASET --parts {num_parts} --hops LAYERS --stores FOLDER makes them."
    expected = "a folder that `spsample partition --stores` has written"
    if not is_store(folder / "part-0"):
        raise DataError(argument="part", given=f"{str(folder)!r}, without part-0", expected=expected, hint=hint)
    found = load_store(folder / "part-0").meta.get("num_parts")
    if found != num_parts:
        given = f"{found} parts in {str(folder)!r}"
        raise InputError(argument="part", given=given, expected=f"as many as ranks: {num_parts}", hint=hint)
    path = folder / f"part-{part}"
    dataset = load_store(path)
    facts = {name: dataset.meta.get(name) for name in ("part", "num_parts")}
    if facts != {"part": part, "num_parts": num_parts}:
        given = f"{str(path)!r}, which is part {facts['part']} of {facts['num_parts']}"
        raise DataError(argument="part", given=given, expected=expected, hint=hint)
    return DatasetPart(dataset, GraphStore.read(path, lambda store: np.asarray(store.array("original_ids"), np.int64)))


def require_part_of(part: DatasetPart, whole: Dataset) -> None:
    """Refuse a part that was not cut out of a data set: it has another graph, other train vertices or other labels.

    Raises
    ------
    InputError

    Examples
    --------
    >>> import spsample as sp
    >>> whole = sp.load_dataset("planted:60")
    >>> require_part_of(part_dataset(whole, np.arange(60) % 2, 2, 0, hops=1), whole)
    """
    own, digests = part.dataset, (part.dataset.meta.get(_DIGEST), whole.graph.digest)
    ids = as_id_vector("original_ids", part.original_ids)
    if len(ids) != own.graph.num_nodes:
        expected = f"one for each vertex of the part: {own.graph.num_nodes}"
        raise InputError(argument="original_ids", given=f"{len(ids)} ids", expected=expected)
    train, other = ids[own.train_idx], None
    if own.meta.get("whole_nodes") != whole.graph.num_nodes:
        other = f"{own.meta.get('whole_nodes')} vertices"
    elif None not in digests and digests[0] != digests[1]:
        other = "another graph of as many vertices"
    elif not np.isin(train, whole.train_idx).all():
        other = "other train vertices"
    elif not np.array_equal(own.y[own.train_idx], whole.y[train]):
        other = "other labels"
    elif (own.x is None) != (whole.x is None):
        other = "no features"
    if other is not None:
        expected = f"a part of {whole.name!r}: {whole.graph.num_nodes} vertices, split {whole.split}"
        given = f"part {own.meta.get('part')} of a data set with {other}"
        raise InputError(argument="part", given=given, expected=expected, hint="Make the parts of this data set.")


def require_reach(dataset: Dataset, sampler: Any) -> None:
    """Refuse a sampler of more layers than a part's data set has hops: rows farther away are not there.

    Raises
    ------
    InputError

    Examples
    --------
    >>> import spsample as sp
    >>> part, _ = part_dataset(sp.load_dataset("planted:60"), np.arange(60) % 2, 2, 0, hops=1)
    >>> require_reach(part, sp.GraphSAGE([3]))
    >>> require_reach(part, sp.GraphSAGE([3, 3]))
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: sampler: got 2 layers; expected at most 1, the hops of part 0. Make the parts anew ...
    """
    hops, layers = dataset.meta.get(_HOPS), len(sampler.sizes)
    if isinstance(hops, int) and layers > hops:
        expected = f"at most {hops}, the hops of part {dataset.meta.get('part')}"
        hint = f"Make the parts anew with {layers} hops."
        raise InputError(argument="sampler", given=f"{layers} layers", expected=expected, hint=hint)


class _Cut:
    """A data set, the part of each vertex, and how far a part reaches."""

    def __init__(self, dataset: Any, parts: Any, num_parts: Any, hops: Any, evaluation: Any) -> None:
        require_type("dataset", dataset, Dataset, "a data set")
        require_type("evaluation", evaluation, (bool, np.bool_), "True or False")
        self.dataset: Dataset = dataset
        self.evaluation = evaluation
        self.num_parts, self.hops = require_num_parts(num_parts), require_hops(hops)
        self.parts = require_parts(parts, dataset.graph.num_nodes, self.num_parts, "parts")
        train = as_train_vertices(dataset.train_idx, dataset.graph.num_nodes)
        check_parts_of_train(self.num_parts, train)
        bare = np.flatnonzero(np.bincount(self.parts[train], minlength=self.num_parts) == 0)
        if len(bare):
            expected = "at least one train vertex in each part"
            hint = 'The methods "pagraph", "metis-seeds", "ranges" and "random" share train vertices out.'
            raise InputError(argument="parts", given=f"none in part {bare[0]}", expected=expected, hint=hint)

    def split(self, part: int) -> list[NDArray[np.int64]]:
        """Ids of the part's train, validation and test vertices, ascending; of the last two only for evaluation."""
        kept = SPLIT_IDS if self.evaluation else SPLIT_IDS[:1]
        none = np.empty(0, np.int64)
        ids = [np.sort(getattr(self.dataset, name)) if name in kept else none for name in SPLIT_IDS]
        return [part_ids[self.parts[part_ids] == part] for part_ids in ids]

    def reach(self, part: int) -> Reach:
        """All that sampling from those needs."""
        return Reach(self.dataset.graph, np.concatenate(self.split(part)), self.hops)

    def dataset_of(self, part: int, reach: Reach) -> Dataset:
        """The data set of a part, its vertices numbered as in `reach`."""
        whole, vertices = self.dataset, reach.vertices
        facts: dict[str, Any] = {
            "part": part,
            "num_parts": self.num_parts,
            _HOPS: self.hops,
            "whole_nodes": whole.graph.num_nodes,
        }
        if whole.graph.digest is not None:
            facts[_DIGEST] = whole.graph.digest
        return replace(
            whole,
            graph=_reached(whole.graph, reach),
            x=None if whole.x is None else whole.x[vertices],
            y=whole.y[vertices],
            split=0,
            num_splits=1,
            meta={**whole.meta, **facts},
            **split_of(*(np.searchsorted(vertices, ids) for ids in self.split(part))),
        )


def _reached(graph: Graph, reach: Reach) -> Graph:
    """The graph of the inner rows, vertices numbered as in `reach`, edge ids kept."""
    entries = row_entries(graph.indptr, reach.inner)
    sizes = np.where(reach.is_inner, graph.indptr[reach.vertices + 1] - graph.indptr[reach.vertices], 0)
    number = np.zeros(graph.num_nodes, graph.index_dtype)
    number[reach.vertices] = np.arange(len(reach.vertices))
    made = Graph(
        np.concatenate([[0], np.cumsum(sizes)]),
        number[graph.indices[entries]],
        None if graph.data is None else graph.data[entries],
        edge_ids=entries if graph.edge_ids is None else graph.edge_ids[entries],
        validate=False,
    )
    return made.normalized("row") if graph.weighting == "row" else made


def _store_bytes(dataset: Dataset, reach: Reach) -> int:
    """Bytes of the arrays of a store; headers of files and facts take little."""
    graph, n = dataset.graph, len(reach.vertices)
    per_entry = graph.index_dtype.itemsize + 8 + (0 if graph.data is None else graph.data.itemsize)
    entries = int((graph.indptr[reach.inner + 1] - graph.indptr[reach.inner]).sum())
    return entries * per_entry + n * 16 + sum(_rows_bytes(array, reach.vertices) for array in (dataset.x, dataset.y))


def _rows_bytes(array: Any, rows: NDArray[np.int64]) -> int:
    """Bytes of some rows of an array, or of a CSR array."""
    if array is None:
        return 0
    if not sparse.issparse(array):  # those of a reordered store are no ndarray
        return len(rows) * int(array[:1].nbytes)
    entries = int((array.indptr[rows + 1] - array.indptr[rows]).sum())
    return int(entries * (array.indices.itemsize + array.data.itemsize) + len(rows) * array.indptr.itemsize)
