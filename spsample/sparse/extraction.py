"""Results of EXTRACT: the sampled adjacency matrices A^l, compacted, and how their values are weighed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from spsample.backends import Backend, Draw, ExtractedLayer, QuantisationRule, StackedRows
from spsample.backends.arithmetic import numerators_of
from spsample.backends.protocol import FloatArray, Int64Array, IntArray, UInt64Array
from spsample.common.checks import require_type
from spsample.errors import ConsumedError
from spsample.sparse.selector import RowSelector


def consumed() -> ConsumedError:
    """Return the error of a look at a sample that is not there any more."""
    return ConsumedError(
        argument="sample",
        given="a sample that EXTRACT has consumed",
        expected="one that it has not",
        hint="Copy what you keep of S before extract, or call its_sample again: it gives the same bits.",
    )


class StackedLayer(NamedTuple):
    """A^l of k stacked minibatches.

    `rows.columns` are local: indices into the batch's part of `src`. `data` and `edge_ids` match them, or are None.
    """

    dst: RowSelector
    src_ptr: Int64Array
    src: IntArray
    rows: StackedRows
    data: np.ndarray[Any, Any] | None
    edge_ids: Int64Array | None

    def next_selector(self) -> RowSelector:
        """Q^(l-1): the selector of the src vertices, which are the rows of the next layer."""
        return RowSelector(self.src_ptr, self.src, self.dst.batch_ids)


class ExtractOptions(NamedTuple):
    """Options of EXTRACT: keep targets among the columns, and give edge ids."""

    include_targets: bool = True
    edge_ids: bool = False


Numerators = UInt64Array | QuantisationRule
"""N of every src column of a layer-wise sample, or the rule by which they are read off its extraction."""


class SourceWeights(Protocol):
    """Weights of a layer-wise sample's columns in its values: c_v of the law's section 6."""

    @property
    def normalize(self) -> bool:
        """True where rows are rescaled to sum 1 afterwards."""
        ...

    def values(self, kernels: Backend, draw: Draw, layer: ExtractedLayer, numerators: Numerators) -> FloatArray:
        """`A_iv c_v` of every extracted entry."""
        ...


@dataclass(frozen=True)
class UnbiasedWeights:
    """The mean of `values @ x` over all draws is the full sum `A x`; targets count exactly, with weight 1.

    With `normalize` the rows are rescaled to sum 1 afterwards (a ratio estimator, no longer unbiased).
    """

    normalize: bool = False

    def __post_init__(self) -> None:
        require_type("normalize", self.normalize, (bool, np.bool_), "True or False")

    def values(self, kernels: Backend, draw: Draw, layer: ExtractedLayer, numerators: Numerators) -> FloatArray:
        """`A_iv c_v` of every extracted entry."""
        return kernels.unbiased_values(layer, numerators, draw.size if draw.replace else 0, self.normalize)


@dataclass(frozen=True)
class ReferenceWeights:
    """`1 / (s p_v)` for every column and normalised rows, as the authors of LADIES compute them; biased."""

    normalize: bool = True

    def __post_init__(self) -> None:
        require_type("normalize", self.normalize, (bool, np.bool_), "True or False")

    def values(self, kernels: Backend, draw: Draw, layer: ExtractedLayer, numerators: Numerators) -> FloatArray:
        """`A_iv c_v` of every extracted entry."""
        A, Q, rows, sample, sources, _ = layer
        c = kernels.reference_weights(sample, sources, numerators_of(kernels, layer, numerators))
        return kernels.entry_values(A, Q, rows, sources.src_ptr, c, self.normalize)
