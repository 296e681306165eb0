"""The common form of every data set; scaling of its features."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.common.checks import require_choice, require_int, require_type
from spsample.data.labels import SPLIT_IDS
from spsample.errors import InputError
from spsample.store import Graph, StoreWriter
from spsample.store.layout import OWN_KEYS
from spsample.store.validation import validate_seeds

_MAX_CLASSES = 1 << 31

Features: TypeAlias = "NDArray[Any] | sparse.csr_array"


@dataclass(frozen=True)
class Dataset:
    """A graph with what is needed to train on it.

    Attributes
    ----------
    name
        Short name, the key of the training presets.
    graph
        The graph, row = target vertex.
    x
        Features, one row per vertex: float array or SciPy CSR; None where the source has none.
    y
        int64 labels in ``[0, num_classes)``, -1 where unlabelled; or shape (n, num_classes), one column per label.
    train_idx, val_idx, test_idx
        int64 vertex ids, disjoint.
    num_classes
        Number of classes, 0 without labels.
    metric
        ``"accuracy"`` or ``"roc_auc"``: what results on this data set are given in.
    split, num_splits
        Number of this one among the published splits, and their count.
    meta
        Other facts of the source, e.g. ``bayes_rate``.
    """

    name: str
    graph: Graph
    x: Features | None
    y: NDArray[Any]
    train_idx: NDArray[np.int64]
    val_idx: NDArray[np.int64]
    test_idx: NDArray[np.int64]
    num_classes: int
    metric: str = "accuracy"
    split: int = 0
    num_splits: int = 1
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def num_outputs(self) -> int:
        """Outputs of a model: a class each, or a label each where a vertex may have several."""
        return int(self.y.shape[1]) if self.y.ndim == 2 else self.num_classes

    def require_training_data(self) -> Features:
        """Return the features, if there is everything that training needs.

        Raises
        ------
        InputError
            If features, labels or one of the three index sets are missing.
        """
        n = require_int("graph.num_nodes", getattr(self.graph, "num_nodes", None), minimum=0)
        require_int("num_classes", self.num_classes, minimum=0)
        require_type("y", self.y, np.ndarray, "an array of labels")
        if self.y.ndim not in (1, 2) or len(self.y) != n:
            expected = f"a label, or a row of labels, for each of {n} vertices"
            raise InputError(argument="y", given=f"shape {self.y.shape}", expected=expected)
        for part in SPLIT_IDS:
            validate_seeds(getattr(self, part), n, part)
        if self.x is None:
            raise self._refusal("no features", "a data set with features")
        if self.num_classes < 2:
            raise self._refusal(f"{self.num_classes} classes", "labels of at least 2 classes")
        if self.num_classes > _MAX_CLASSES:
            raise self._refusal(
                f"{self.num_classes} classes", f"at most {_MAX_CLASSES}: each vertex has a score of each"
            )
        for part in SPLIT_IDS:
            ids = getattr(self, part)
            if len(ids) == 0:
                raise self._refusal(f"an empty {part}", "training, validation and test vertices")
            labels = self.y[ids].reshape(len(ids), -1)
            if labels.min() < 0:
                at = int(np.argmax((labels < 0).any(axis=1)))
                raise self._refusal(f"vertex {ids[at]} without a label in {part}", "labels from 0 on")
        return self.x

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the data set as a graph store, as `save_dataset` does.

        Raises
        ------
        DataError
            As `spsample.store.StoreWriter`.
        """
        save_dataset(self, path, overwrite=overwrite)

    def _refusal(self, given: str, expected: str) -> InputError:
        hint = (
            "The graph can be sampled, but not trained on. A data set of your own gets what it lacks by: spsample "
            "convert ... --features x.npy --labels y.npy --splits splits.npz, or all from a table of vertices by "
            "--nodes people.csv"
        )
        return InputError(argument="dataset", given=f"{given} in {self.name!r}", expected=expected, hint=hint)

    def __repr__(self) -> str:
        dim = 0 if self.x is None else self.x.shape[1]
        return (
            f"Dataset({self.name!r}, {self.graph.num_nodes:,} vertices, {self.graph.num_edges:,} edges, "
            f"{dim} features, {self.num_classes} classes, "
            f"split {len(self.train_idx)}/{len(self.val_idx)}/{len(self.test_idx)})"
        )


def graph_alone(name: str, graph: Graph, **meta: Any) -> Dataset:
    """Return a data set of a graph, without features, labels and splits."""
    empty = np.empty(0, np.int64)
    return Dataset(name, graph, None, np.full(graph.num_nodes, -1, np.int64), empty, empty, empty, 0, meta=meta)


def save_dataset(dataset: Dataset, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a data set as a graph store: graph, features, labels, its split, its facts; all of it or nothing.

    Parameters
    ----------
    dataset : Dataset
        Dense features keep their dtype; sparse ones become the arrays x_indptr, x_indices and x_data.
    path : path-like
        The folder to make.
    overwrite : bool, optional
        Replace a store that is there.

    Raises
    ------
    DataError
        As `spsample.store.StoreWriter`.

    Examples
    --------
    >>> import tempfile
    >>> from spsample.data import load_dataset, planted, save_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_dataset(planted(60, 3, 2), f"{folder.name}/planted")
    >>> load_dataset(f"{folder.name}/planted")
    Dataset('planted', 60 vertices, 180 edges, 2 features, 2 classes, split 36/12/12)
    >>> folder.cleanup()
    """
    require_type("dataset", dataset, Dataset, "a data set")
    with StoreWriter(path, overwrite=overwrite) as writer:
        write_dataset(writer, dataset)


def write_dataset(writer: StoreWriter, dataset: Dataset) -> None:
    """Hand graph, features, labels, split and facts to a `StoreWriter`, which other arrays may go to as well."""
    writer.set(**{key: value for key, value in dataset.meta.items() if key not in OWN_KEYS})
    writer.write_graph(dataset.graph)
    if dataset.x is not None:
        write_features(writer, dataset.x)
    if dataset.num_classes:
        writer.write("y", dataset.y)
    for name in SPLIT_IDS:
        writer.write(name, getattr(dataset, name))
    writer.set(name=dataset.name, metric=dataset.metric, num_classes=dataset.num_classes)


def write_features(writer: StoreWriter, x: Any) -> None:
    """Write features of vertices: one array, or those of a CSR array."""
    if not sparse.issparse(x):
        writer.write("x", x)
        writer.set(node_features=["x"])
        return
    for name in ("indptr", "indices", "data"):
        writer.write(f"x_{name}", getattr(x, name))
    writer.set(x_shape=[int(size) for size in x.shape])


def scale_rows(x: Features) -> Features:
    """Divide every row by the sum of its absolute values; a row of zeros stays.

    The usual treatment of bags of words (Kipf and Welling 2017).

    Examples
    --------
    >>> scale_rows(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    totals = np.asarray(abs(x).sum(axis=1), dtype=np.float64).ravel()
    factors = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    if sparse.issparse(x):
        scaled: Any = x.astype(np.float32)
        scaled.data *= np.repeat(factors, np.diff(scaled.indptr)).astype(np.float32)
        return scaled
    return (np.asarray(x) * factors[:, None]).astype(np.float32)


def standardise(x: Features) -> Features:
    """Give every column of a dense array mean 0 and standard deviation 1; a constant column becomes 0.

    Raises
    ------
    InputError
        If ``x`` is sparse: the shift would make it dense.

    Examples
    --------
    >>> standardise(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    if sparse.issparse(x):
        raise InputError(argument="scaling", given="'standard' for sparse features", expected="'none' or 'rows'")
    dense = np.asarray(x, dtype=np.float64)
    spread = dense.std(axis=0)
    return ((dense - dense.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)


def scale_features(dataset: Dataset, scaling: str) -> Dataset:
    """Return the data set with its features scaled: ``"none"``, ``"rows"`` or ``"standard"``.

    Raises
    ------
    InputError
        If ``scaling`` is none of these, or the data set has no features.
    """
    require_type("dataset", dataset, Dataset, "a data set")
    require_choice("scaling", scaling, ("none", "rows", "standard"))
    x = dataset.require_training_data()
    if scaling == "none":
        return dataset
    return replace(dataset, x=scale_rows(x) if scaling == "rows" else standardise(x))
