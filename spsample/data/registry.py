"""Data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spsample.common.checks import require_choice, require_int
from spsample.data.dataset import Dataset
from spsample.data.generators import digits, planted, rmat
from spsample.data.named import NAMED, named_dataset
from spsample.data.npz import load_npz
from spsample.data.stored import is_store, load_store
from spsample.errors import DataError, DTypeError, InputError
from spsample.store import Graph


@dataclass(frozen=True)
class _Generator:
    """A generator that is called by ``name:ARG,ARG,...``; `words` are its parameters' names in that form."""

    make: Callable[..., Dataset]
    form: str
    types: tuple[type, ...]
    required: int
    words: dict[str, str]


_GENERATORS = {
    "rmat": _Generator(
        make=rmat,
        form="rmat:SCALE,EDGE_FACTOR",
        types=(int, int),
        required=2,
        words={"scale": "SCALE", "edge_factor": "EDGE_FACTOR"},
    ),
    "planted": _Generator(
        make=planted,
        form="planted:NODES[,DEGREE[,CLASSES[,NOISE]]]",
        types=(int, int, int, float),
        required=1,
        words={"num_nodes": "NODES", "degree": "DEGREE", "num_classes": "CLASSES", "noise": "NOISE"},
    ),
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
    _require_existing(spec)
    if require_int("split", split) != 0:
        raise InputError(argument="split", given=str(split), expected=f"0, for {spec!r} has one split")
    if spec == "digits":
        return digits()
    if spec in NAMED:
        return named_dataset(spec, root=root)
    name, _, arguments = spec.partition(":")
    if spec and name not in _GENERATORS and Path(spec).is_dir():
        return load_store(spec)  # its error names what is missing there
    if name not in _GENERATORS:
        hint = "spsample convert makes a store of an edge list or a matrix." if os.path.isfile(spec) else ""
        raise InputError(argument="dataset", given=repr(spec), expected=_FORMS, hint=hint)
    generator = _GENERATORS[name]
    values = _parse(spec, arguments, generator)
    try:
        return generator.make(*values, random_seed=random_seed)
    except InputError as error:
        if error.argument not in generator.words:
            raise
        argument = f"{name}:{generator.words[error.argument]}"  # as the caller wrote it
        raise InputError(argument=argument, given=error.given, expected=error.expected, hint=error.hint) from None


def _require_existing(spec: str) -> None:
    """Refuse what has the form of a path, rather than that of a name, and leads nowhere."""
    has_separator = any(separator in spec for separator in (os.sep, os.altsep) if separator)
    has_suffix = ":" not in spec and Path(spec).suffix != ""
    is_path = spec.startswith(".") or has_separator or has_suffix
    if is_path and spec.partition(":")[0] not in _GENERATORS and not os.path.exists(spec):
        raise DataError(argument="dataset", given=f"{spec!r}, but there is no such file or folder", expected=_FORMS)


def _parse(spec: str, arguments: str, generator: _Generator) -> list[float]:
    words = arguments.split(",") if arguments else []
    if not generator.required <= len(words) <= len(generator.types):
        raise InputError(argument="dataset", given=repr(spec), expected=generator.form)
    try:
        return [convert(word) for convert, word in zip(generator.types, words, strict=False)]
    except ValueError as error:
        raise InputError(argument="dataset", given=f"{spec!r} ({error})", expected=generator.form) from None


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
    return _parse(spec, arguments, _GENERATORS[name])


MAX_SMALL_ENTRIES, MAX_SMALL_SCALE, MIN_SMALL_SCALE = 1 << 22, 18, 10


def smaller_graph(kind: str, num_nodes: int, average_degree: float) -> Graph:
    """A smaller graph of the kind, which is sampled instead.

    Parameters
    ----------
    kind : {"rmat", "planted"}
        Power-law degrees, or about the same degree everywhere.
    num_nodes : int
    average_degree : float
        Of the larger graph; the smaller one has about the same.

    Raises
    ------
    InputError
        If there is no such kind.
    """
    require_choice("kind", kind, ("rmat", "planted"))
    scale = smaller_scale(num_nodes, average_degree)
    if kind == "planted":
        return load_dataset(f"planted:{min(2**scale, num_nodes)},{max(round(average_degree), 1)}").graph
    wanted = average_degree / 2  # each pair is an edge either way
    graph = load_dataset(f"rmat:{scale},{max(round(wanted), 1)}").graph
    lost = graph.num_edges / (2 * max(round(wanted), 1) * graph.num_nodes)  # to repeated pairs
    return load_dataset(f"rmat:{scale},{max(round(wanted / lost), 1)}").graph


def smaller_scale(num_nodes: int, average_degree: float) -> int:
    """The power of two that its number of vertices is: some four million edges, at most 2^18 vertices.

    Examples
    --------
    >>> smaller_scale(10**8, 29), smaller_scale(5000, 15)
    (17, 12)
    """
    scale = MIN_SMALL_SCALE
    while scale < MAX_SMALL_SCALE and 2 ** (scale + 1) * average_degree <= MAX_SMALL_ENTRIES:
        scale += 1
    return max(min(scale, num_nodes.bit_length() - 1), 1)
