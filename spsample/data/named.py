"""Data sets by name: from stores and files, generated, or published ones, which PyG or ogb fetch once to a store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spsample.common.checks import require_int
from spsample.data.dataset import Dataset, graph_alone, save_dataset
from spsample.data.generators import digits, planted, rmat
from spsample.data.labels import class_labels, num_classes, split_of
from spsample.data.stored import is_store, load_npz, load_store
from spsample.errors import DataError, DTypeError, InputError, SpSampleError, require_module
from spsample.store import Graph

ROOT_VARIABLE = "SPSAMPLE_DATA_ROOT"
_ASKS = "ogb asks before it downloads more than 1 GB, which needs a terminal."
_PROTEIN_FILES = ("protein.mtx", "protein.mtx.gz", "protein.mtx.bz2")


@dataclass(frozen=True)
class Named:
    """A published data set.

    Attributes
    ----------
    title
        Name of the `Dataset` (and of its training preset).
    fetch
        Called with `title`, the folder for downloads and `arguments`; returns the data set in memory.
    about
        What and how large it is.
    """

    title: str
    fetch: Callable[..., Dataset]
    about: str
    arguments: tuple[str, ...] = ()


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
    named, folder = NAMED[name], data_root(root)
    path, downloads = folder / "stores" / name, folder / "downloads" / name
    if not is_store(path):
        try:
            dataset = named.fetch(named.title, downloads, *named.arguments)
        except SpSampleError:
            raise
        except (Exception, EOFError) as error:  # what downloads raise has no common type; ogb asks before large ones
            given = f"{name!r}, which could not be fetched into {downloads} ({type(error).__name__}: {error})"
            expected = "a network, or the files in that folder already"
            hint = f"Without a network, copy the store {path}, or {downloads}, from a machine that has one. {_ASKS}"
            raise DataError(argument="dataset", given=given, expected=expected, hint=hint) from error
        try:
            save_dataset(dataset, path)
        except DataError:
            if not is_store(path):  # another process has made it meanwhile
                raise
    return replace(load_store(path), name=named.title)


# ------------------------------------------------------------------------------------------- through packages


def _published(title: str, source: str, edges: tuple[Any, int], x: Any, labels: Any, split: list[Any]) -> Dataset:
    """The data set of an edge index and a number of vertices, and what else a package has of it."""
    y = class_labels(f"labels of {title}", np.asarray(labels), edges[1])
    return Dataset(
        name=title,
        graph=Graph.from_edge_index(edges[0], num_nodes=edges[1]),
        x=x,
        y=y,
        num_classes=num_classes(y),
        meta={"source": source},
        **split_of(*split),
    )


def _pyg(title: str, folder: Path, kind: str, *arguments: str) -> Dataset:
    """Fetch a data set of the class `kind` in ``torch_geometric.datasets``."""
    module = require_module("torch_geometric.datasets", needed_for=f"the data set {title!r}", extra="pyg")
    data = getattr(module, kind)(str(folder), *arguments)[0]
    split = [np.flatnonzero(mask.numpy()) for mask in (data.train_mask, data.val_mask, data.test_mask)]
    edges = data.edge_index.numpy(), int(data.num_nodes)
    return _published(title, f"torch_geometric.datasets.{kind}", edges, data.x.numpy(), data.y.numpy(), split)


def _ogb(title: str, folder: Path) -> Dataset:
    """Fetch a node classification data set of the Open Graph Benchmark."""
    module = require_module("ogb.nodeproppred", needed_for=f"the data set {title!r}")
    source = module.NodePropPredDataset(name=title, root=str(folder))
    graph, labels = source[0]
    held = source.get_idx_split()
    split = [np.asarray(held[part], np.int64) for part in ("train", "valid", "test")]
    edges = graph["edge_index"], int(graph["num_nodes"])
    return _published(title, f"ogb {title}", edges, graph["node_feat"], labels, split)


# ------------------------------------------------------------------------------------------ Matrix Market


def _protein(title: str, folder: Path) -> Dataset:
    """Read the protein similarity graph, which is to be put into the folder by hand."""
    files = [folder / name for name in _PROTEIN_FILES if (folder / name).is_file()]
    if not files:
        given = f"'protein', and none of {', '.join(_PROTEIN_FILES)} in {folder}"
        expected = "a similarity graph of HipMCL in Matrix Market form"
        page = "https://bitbucket.org/azadcse/hipmcl"
        hint = f"Get it from the page of HipMCL, {page}, and put it there; spsample convert takes one of any size."
        raise DataError(argument="dataset", given=given, expected=expected, hint=hint)
    from scipy.io import mmread

    graph = Graph.from_scipy(mmread(str(files[0])))
    return graph_alone(title, graph, source=f"HipMCL, {files[0].name}")


NAMED: dict[str, Named] = {
    "cora": Named("planetoid_cora", _pyg, "2,708 vertices, 10,556 edges", ("Planetoid", "Cora")),
    "citeseer": Named("planetoid_citeseer", _pyg, "3,327 vertices, 9,104 edges", ("Planetoid", "CiteSeer")),
    "pubmed": Named("planetoid_pubmed", _pyg, "19,717 vertices, 88,648 edges", ("Planetoid", "PubMed")),
    "reddit": Named("reddit", _pyg, "232,965 vertices, 114,615,892 edges", ("Reddit",)),
    "flickr": Named("flickr", _pyg, "89,250 vertices, 899,756 edges", ("Flickr",)),
    "ogbn-arxiv": Named("ogbn-arxiv", _ogb, "169,343 vertices, 1,166,243 edges, directed"),
    "ogbn-products": Named("ogbn-products", _ogb, "2,449,029 vertices, 123,718,280 edges"),
    "ogbn-papers100M": Named(
        "ogbn-papers100M",
        _ogb,
        "111,059,956 vertices, 1,615,685,872 edges, directed; some 200 GB of memory to make its store",
    ),
    "protein": Named("protein", _protein, "HipMCL's similarity graphs, weighted; no features"),
}
"""By the names that `load_dataset` takes."""


@dataclass(frozen=True)
class _Generator:
    """A generator that is called by ``name:ARG,ARG,...``; `types` are its parameters, in the order of the form."""

    make: Callable[..., Dataset]
    form: str
    types: dict[str, type]
    required: int


_PLANTED = {"num_nodes": int, "degree": int, "num_classes": int, "noise": float}
_GENERATORS = {
    "rmat": _Generator(rmat, "rmat:SCALE,EDGE_FACTOR", {"scale": int, "edge_factor": int}, required=2),
    "planted": _Generator(planted, "planted:NODES[,DEGREE[,CLASSES[,NOISE]]]", _PLANTED, required=1),
}
GENERATORS = tuple(_GENERATORS)
"""Names of the generators, which are called by ``name:ARG,ARG,...``."""

_FORMS = (
    "'digits', the folder of a store, a path ending in .npz, "
    + ", ".join(g.form for g in _GENERATORS.values())
    + f" or one of {', '.join(NAMED)}"
)


def load_dataset(
    spec: str | os.PathLike[str],
    *,
    split: int = 0,
    random_seed: int = 0,
    root: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Load, generate or fetch a data set.

    Parameters
    ----------
    spec
        ``"digits"``; the folder of a graph store (`spsample.data.stored.load_store` has its form; it is opened, not
        read); a path that ends in ``.npz`` (`load_npz` has its form); ``"rmat:SCALE,EDGE_FACTOR"`` (`rmat`);
        ``"planted:NODES[,DEGREE[,CLASSES[,NOISE]]]"`` (`planted`); or a published data set: ``"cora"``, ``"citeseer"``,
        ``"pubmed"``, ``"reddit"``, ``"flickr"`` (through PyG), ``"ogbn-arxiv"``, ``"ogbn-products"``,
        ``"ogbn-papers100M"`` (through ogb), ``"protein"`` (a file of HipMCL), which is fetched and made a store the
        first time. A name comes before a folder that is called the same: write ``./cora`` for that.
    split
        Which of the published splits of a store or file; the others have one, number 0.
    random_seed
        Seed of the generators; all others do not depend on it.
    root
        Folder of published data sets; by default ``SPSAMPLE_DATA_ROOT`` or the user's cache folder.

    Raises
    ------
    InputError
        If the name or an argument is not understood, or there is no such split.
    DataError
        If a path leads nowhere, a file or store cannot be used, or a published data set cannot be fetched.
    MissingDependencyError
        If a package is not installed: scikit-learn for the digits, torch_geometric or ogb for a published data set.

    Examples
    --------
    >>> load_dataset("planted:300,5,3")
    Dataset('planted', 300 vertices, 1,500 edges, 3 features, 3 classes, split 180/60/60)
    """
    spec = os.fspath(spec) if isinstance(spec, os.PathLike) else spec
    if not isinstance(spec, str):
        raise DTypeError(argument="dataset", given=f"an object of type {type(spec).__name__}", expected=_FORMS)
    if spec.endswith(".npz"):
        return load_npz(spec, split)
    if spec not in NAMED and is_store(spec):
        return load_store(spec, split)
    name = spec.partition(":")[0]
    has_separator = any(separator in spec for separator in (os.sep, os.altsep) if separator)
    has_suffix = ":" not in spec and Path(spec).suffix != ""
    is_path = spec.startswith(".") or has_separator or has_suffix  # rather than a name
    if is_path and name not in _GENERATORS and not os.path.exists(spec):
        raise DataError(argument="dataset", given=f"{spec!r}, but there is no such file or folder", expected=_FORMS)
    if require_int("split", split) != 0:
        raise InputError(argument="split", given=str(split), expected=f"0, for {spec!r} has one split")
    if spec == "digits":
        return digits()
    if spec in NAMED:
        return named_dataset(spec, root=root)
    if name in _GENERATORS:
        return _generated(spec, random_seed)
    if spec and Path(spec).is_dir():
        return load_store(spec)  # its error names what is missing there
    hint = "spsample convert makes a store of an edge list or a matrix." if os.path.isfile(spec) else ""
    raise InputError(argument="dataset", given=repr(spec), expected=_FORMS, hint=hint)


def _generated(spec: str, random_seed: int) -> Dataset:
    name, values = spec.partition(":")[0], generator_arguments(spec)
    generator = _GENERATORS[name]
    try:
        return generator.make(*values, random_seed=random_seed)
    except InputError as error:
        if error.argument not in generator.types:
            raise
        words = dict(zip(generator.types, re.findall("[A-Z_]+", generator.form), strict=True))
        argument = f"{name}:{words[error.argument]}"  # as the caller wrote it
        raise InputError(argument=argument, given=error.given, expected=error.expected, hint=error.hint) from None


def generator_arguments(spec: str) -> list[float]:
    """Return the arguments of a generator that `spec` calls, a name of `GENERATORS` before its colon.

    Raises
    ------
    InputError
        If there are too few, too many, or others than numbers.

    Examples
    --------
    >>> generator_arguments("rmat:8,4")
    [8, 4]
    """
    name, _, arguments = spec.partition(":")
    generator, words = _GENERATORS[name], arguments.split(",") if arguments else []
    if not generator.required <= len(words) <= len(generator.types):
        raise InputError(argument="dataset", given=repr(spec), expected=generator.form)
    try:
        return [convert(word) for convert, word in zip(generator.types.values(), words, strict=False)]
    except ValueError as error:
        raise InputError(argument="dataset", given=f"{spec!r} ({error})", expected=generator.form) from None
