"""`Batch`, and `Collate`, which makes one of a minibatch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import backend_for
from spsample.common.arrays import as_array, is_bfloat16
from spsample.errors import DTypeError, InputError
from spsample.features import DeviceFeatures, FeatureSource, FeatureStore
from spsample.features.formats import refuse_sparse_tensors
from spsample.sampling.adapters import as_tensor
from spsample.store.base_graph import BaseGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from spsample.sampling import MiniBatch


@dataclass(frozen=True)
class Batch:
    """A minibatch with the features of its sources and the labels of its seeds.

    Attributes
    ----------
    minibatch
        The sampled layers, a `MiniBatch`.
    x
        float32 features of ``src_nodes``, or None. Of a tensor of float16 or bfloat16: a tensor of its dtype.
    y
        Labels of ``seeds``, or None: one or a row of them for each; of a tensor of bfloat16 a tensor.
    input_id
        int64: the position of each of ``seeds`` among the seeds of the loader (of a repeated one, the first in the
        batch).
    """

    minibatch: MiniBatch
    x: NDArray[np.float32] | None
    y: NDArray[Any] | None
    input_id: NDArray[np.int64]

    @property
    def batch_id(self) -> int:
        """Number of the batch in its epoch."""
        return self.minibatch.batch_id

    @property
    def seeds(self) -> NDArray[Any]:
        """The distinct seeds, in order of first appearance: rows of the last layer and of ``y``."""
        return self.minibatch.seeds

    @property
    def num_seeds(self) -> int:
        """Distinct seeds of the whole batch; of a cooperative one more than there are ``seeds`` here."""
        return self.minibatch.num_seeds

    @property
    def src_nodes(self) -> NDArray[Any]:
        """The vertices whose features layer 1 needs: rows of ``x``."""
        return self.minibatch.src_nodes

    @property
    def layers(self) -> Sequence[Any]:
        """The sampled layers, farthest from the seeds first."""
        return self.minibatch.layers

    def __repr__(self) -> str:
        x, y = ("None" if rows is None else f"{tuple(rows.shape)} {rows.dtype}" for rows in (self.x, self.y))
        return f"Batch({self.minibatch!r}, x={x}, y={y})"

    def map_arrays(self, function: Callable[[Any], Any]) -> Batch:
        """Return this batch with a function's results for each array but ``input_id``, in a fixed order."""
        x, y = (None if rows is None else function(rows) for rows in (self.x, self.y))
        return replace(self, minibatch=self.minibatch.map_arrays(function), x=x, y=y)


class Collate:
    """Put features and labels to minibatches.

    Parameters
    ----------
    features
        A `FeatureSource`, or a two-dimensional array or SciPy sparse matrix; or None.
    labels
        Shape ``(num_nodes,)`` or ``(num_nodes, classes)``, or None.
    graph
        The graph of their vertices. For a `DeviceGraph` an array of features is kept as `DeviceFeatures`, and labels
        are kept on the device too.
    ranking
        Returns a score of each vertex: the features of those of the highest lie on the device, where not all do.

    Raises
    ------
    InputError
        If there is not one row per vertex.
    """

    def __init__(
        self, features: Any, labels: ArrayLike | None, graph: BaseGraph, ranking: Callable[[], Any] | None = None
    ) -> None:
        refuse_sparse_tensors("features", features)
        self.features = _features(features, graph, ranking)
        self.labels = _labels(labels, graph.num_nodes)
        self._labels_on_device: Any = None
        self._half, self._half_labels = _half_of(features, _HALVES), _half_of(labels, _HALVES[1:])

    def contents(self, seeds: NDArray[np.int64]) -> dict[str, Any]:
        """Return numbers that tell features in memory and labels of seeds from others: ranks must have the same."""
        labels = None if self.labels is None else self.labels[seeds]
        return {"features": None if self.features is None else self.features.fingerprint(), "labels": labels}

    def y_of(self, vertices: Any) -> Any:
        """Return the labels of vertices on the host, or on the device of the vertices."""
        if self.labels is None:
            return None
        if isinstance(vertices, np.ndarray):
            return _as_half(self.labels[vertices], self._half_labels)
        backend = backend_for(vertices)
        with backend.session():
            if self._labels_on_device is None:
                self._labels_on_device = backend.to_device(self.labels)
            labels = backend.to_device(self._labels_on_device)[backend.to_device(vertices)]
        return _as_half(labels, self._half_labels)

    def x_of(self, x: Any) -> Any:
        """Return gathered features as they were given: float32, or of a tensor of half precision a tensor of it."""
        return _as_half(x, self._half)

    def __call__(self, minibatch: MiniBatch, positions: NDArray[np.int64], x: NDArray[np.float32] | None) -> Batch:
        """Make the batch whose seeds are at those positions among the loader's, and whose sources have features x."""
        return Batch(minibatch, self.x_of(x), self.y_of(minibatch.seeds), first_positions(minibatch, positions))


_HALVES = ("torch.float16", "torch.bfloat16")


def _half_of(values: Any, dtypes: tuple[str, ...]) -> Any:
    """Return the dtype of a tensor, where it is one of these; else None."""
    dtype = getattr(values, "dtype", None)
    return dtype if str(dtype) in dtypes else None


def _as_half(array: Any, dtype: Any) -> Any:
    """Return a tensor of that dtype, which the numbers had before they were widened; None: the array as it is."""
    if array is None or dtype is None:
        return array
    import torch

    return as_tensor(torch, array).to(dtype)


def first_positions(minibatch: MiniBatch, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of a minibatch's distinct seeds, from those of all its seeds."""
    if len(positions) == len(minibatch.seeds):
        return positions
    first: NDArray[np.int64] = positions[minibatch.seed_places]
    return first


RowMemory = Callable[[int, int], "NDArray[np.float32] | None"]
"""A function that gives memory for features, from the numbers of rows and columns; None: any memory will do."""


def on_host(vertices: Any) -> NDArray[Any]:
    """Return ids on the host: as they are, or copied from their device."""
    return vertices if isinstance(vertices, np.ndarray) else backend_for(vertices).on_host(vertices)


def gather_features(features: FeatureSource | None, vertices: Any, rows: RowMemory = lambda count, dim: None) -> Any:
    """Gather features of vertices: on a device where both are there, else on the host; None without features."""
    if features is None:
        return None
    if features.device is not None:
        return features.gather(vertices)
    ids = on_host(vertices)
    out = rows(len(ids), features.dim)
    return features.gather(ids) if out is None else features.gather(ids, out)


def _features(features: Any, graph: BaseGraph, ranking: Callable[[], Any] | None) -> FeatureSource | None:
    if features is None:
        return None
    if hasattr(features, "num_rows") and not isinstance(features, FeatureSource):
        expected = "an array, or a source whose class is derived from spsample.features.FeatureSource"
        raise DTypeError(argument="features", given=f"an object of type {type(features).__name__}", expected=expected)
    source = features
    if not isinstance(features, FeatureSource):
        source = DeviceFeatures(features, ranking=ranking) if graph.is_on_device else FeatureStore(features)
    if source.num_rows != graph.num_nodes:
        expected = f"one row per vertex: {graph.num_nodes}"
        raise InputError(argument="features", given=f"{source.num_rows} rows", expected=expected)
    return source  # type: ignore[no-any-return]


def _labels(labels: Any, num_nodes: int) -> NDArray[Any] | None:
    if labels is None:
        return None
    array = as_array("labels", labels.float() if is_bfloat16(labels) else labels)
    if array.ndim not in (1, 2) or len(array) != num_nodes:
        expected = f"a label or a row of labels per vertex: ({num_nodes},) or ({num_nodes}, classes)"
        raise InputError(argument="labels", given=f"shape {array.shape}", expected=expected)
    return array
