"""Published data sets by name: fetched on the user's machine by PyG or ogb, made a store once, opened from it then."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from spsample.data.dataset import Dataset, graph_alone, save_dataset
from spsample.data.labels import class_labels, num_classes, split_of
from spsample.data.stored import is_store, load_store
from spsample.errors import DataError, SpSampleError, require_module
from spsample.store import Graph

ROOT_VARIABLE = "SPSAMPLE_DATA_ROOT"
_PROTEIN_FILES = ("protein.mtx", "protein.mtx.gz", "protein.mtx.bz2")
_PROTEIN_SOURCE = "the page of HipMCL, https://bitbucket.org/azadcse/hipmcl,"


@dataclass(frozen=True)
class Named:
    """A published data set.

    Attributes
    ----------
    title
        Name of the `Dataset` (and of its training preset).
    fetch
        Called with `title` and the folder for downloads; returns the data set in memory.
    about
        What and how large it is.
    """

    title: str
    fetch: Callable[[str, Path], Dataset]
    about: str


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of downloads and of the stores made from them.

    That is `root`, or else the environment variable ``SPSAMPLE_DATA_ROOT``, or else ``spsample`` in the user's cache
    folder (``XDG_CACHE_HOME``, or ``~/.cache``).

    Examples
    --------
    >>> str(data_root("/data"))
    '/data'
    """
    chosen = root or os.environ.get(ROOT_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spsample"


def named_dataset(name: str, *, root: str | os.PathLike[str] | None = None) -> Dataset:
    """Open the data set of that name; the first time, fetch it and make it a store below `root`.

    Raises
    ------
    DataError
        If it cannot be fetched (there is no network, say) or its store cannot be written.
    MissingDependencyError
        If the package that fetches it is not installed.
    """
    path = data_root(root) / "stores" / name
    if not is_store(path):
        _make_store(name, path)
    return replace(load_store(path), name=NAMED[name].title)


def _make_store(name: str, path: Path) -> None:
    named = NAMED[name]
    downloads = path.parent.parent / "downloads" / name
    try:
        dataset = named.fetch(named.title, downloads)
    except SpSampleError:
        raise
    except (Exception, EOFError) as error:  # what downloads raise has no common type; ogb asks before large ones
        raise DataError(
            argument="dataset",
            given=f"{name!r}, which could not be fetched into {downloads} ({type(error).__name__}: {error})",
            expected="a network, or the files in that folder already",
            hint=f"Without a network, copy the store {path}, or {downloads}, from a machine that has one. ogb asks "
            "before it downloads more than 1 GB, which needs a terminal.",
        ) from error
    try:
        save_dataset(dataset, path)
    except DataError:
        if not is_store(path):  # another process has made it meanwhile
            raise


# ---------------------------------------------------------------------------------------------- through PyG


def _pyg(kind: str, *arguments: str) -> Callable[[str, Path], Dataset]:
    """Return what fetches a data set of the class `kind` in ``torch_geometric.datasets``."""

    def fetch(title: str, folder: Path) -> Dataset:
        module = require_module("torch_geometric.datasets", needed_for=f"the data set {title!r}", extra="pyg")
        data = getattr(module, kind)(str(folder), *arguments)[0]
        masks = (data.train_mask, data.val_mask, data.test_mask)
        y = data.y.numpy().astype(np.int64)
        return Dataset(
            name=title,
            graph=Graph.from_edge_index(data.edge_index.numpy(), num_nodes=int(data.num_nodes)),
            x=data.x.numpy(),
            y=y,
            num_classes=int(y.max()) + 1,
            meta={"source": f"torch_geometric.datasets.{kind}"},
            **split_of(*(np.flatnonzero(mask.numpy()) for mask in masks)),
        )

    return fetch


# ---------------------------------------------------------------------------------------------- through ogb


def _ogb(name: str) -> Callable[[str, Path], Dataset]:
    """Return what fetches a node classification data set of the Open Graph Benchmark."""

    def fetch(title: str, folder: Path) -> Dataset:
        module = require_module("ogb.nodeproppred", needed_for=f"the data set {title!r}")
        source = module.NodePropPredDataset(name=name, root=str(folder))
        graph, labels = source[0]
        split = source.get_idx_split()
        y = class_labels(f"labels of {name}", np.asarray(labels), int(graph["num_nodes"]))
        return Dataset(
            name=title,
            graph=Graph.from_edge_index(graph["edge_index"], num_nodes=int(graph["num_nodes"])),
            x=graph["node_feat"],
            y=y,
            num_classes=num_classes(y),
            meta={"source": f"ogb {name}"},
            **split_of(*(np.asarray(split[part], np.int64) for part in ("train", "valid", "test"))),
        )

    return fetch


# ------------------------------------------------------------------------------------------ Matrix Market


def _protein(title: str, folder: Path) -> Dataset:
    """Read the protein similarity graph, which is to be put into the folder by hand."""
    files = [folder / name for name in _PROTEIN_FILES if (folder / name).is_file()]
    if not files:
        raise DataError(
            argument="dataset",
            given=f"'protein', and none of {', '.join(_PROTEIN_FILES)} in {folder}",
            expected="a similarity graph of HipMCL in Matrix Market form",
            hint=f"Get it from {_PROTEIN_SOURCE} and put it there; for one larger than memory use spsample convert.",
        )
    from scipy.io import mmread

    graph = Graph.from_scipy(mmread(str(files[0])))
    return graph_alone(title, graph, source=f"HipMCL, {files[0].name}")


NAMED: dict[str, Named] = {
    "cora": Named("planetoid_cora", _pyg("Planetoid", "Cora"), "2,708 vertices, 10,556 edges"),
    "citeseer": Named("planetoid_citeseer", _pyg("Planetoid", "CiteSeer"), "3,327 vertices, 9,104 edges"),
    "pubmed": Named("planetoid_pubmed", _pyg("Planetoid", "PubMed"), "19,717 vertices, 88,648 edges"),
    "reddit": Named("reddit", _pyg("Reddit"), "232,965 vertices, 114,615,892 edges"),
    "flickr": Named("flickr", _pyg("Flickr"), "89,250 vertices, 899,756 edges"),
    "ogbn-arxiv": Named("ogbn-arxiv", _ogb("ogbn-arxiv"), "169,343 vertices, 1,166,243 edges, directed"),
    "ogbn-products": Named("ogbn-products", _ogb("ogbn-products"), "2,449,029 vertices, 123,718,280 edges"),
    "ogbn-papers100M": Named(
        "ogbn-papers100M",
        _ogb("ogbn-papers100M"),
        "111,059,956 vertices, 1,615,685,872 edges, directed; some 200 GB of memory to make its store",
    ),
    "protein": Named("protein", _protein, "HipMCL's similarity graphs, weighted; no features"),
}
"""By the names that `load_dataset` takes."""
