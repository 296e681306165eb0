"""Base of layer-wise samplers, which share the values of A^l."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from spsample.common.checks import require_choice
from spsample.errors import InputError
from spsample.sampling.sampler import Aggregation, Sampler, require_bool, require_sizes
from spsample.sparse import ReferenceWeights, UnbiasedWeights

Values = Literal["unbiased", "reference"]


class LayerwiseSampler(Sampler):
    """Base of samplers that draw s vertices for a whole frontier and keep every edge between the two.

    Parameters
    ----------
    layer_sizes : sequence of int
        s of each layer, nearest to the seeds first.
    values : {"unbiased", "reference"}
        "unbiased": `A^l x` estimates `A x` without bias (Des Raj's ordered estimator; edges into targets have weight
        1). "reference": `A_iv / (s p_v)` with rows normalised, as the authors of LADIES compute it; biased.
    replace : bool
        Draw with replacement; repeats are merged into one column of weight `count / (s p_v)`.
    normalize_rows : bool
        Rescale the rows of A^l to sum 1. The draw does not change.
    include_targets : bool
        Put each layer's dst vertices first among its src vertices and keep the edges between them.
    """

    aggregation: ClassVar[Aggregation] = "values"

    def __init__(
        self,
        layer_sizes: Sequence[int],
        *,
        values: Values = "unbiased",
        replace: bool = False,
        normalize_rows: bool = False,
        include_targets: bool = True,
    ) -> None:
        super().__init__(
            require_sizes("layer_sizes", layer_sizes, whole_rows=False),
            replace=replace,
            include_targets=include_targets,
        )
        require_choice("values", values, ("unbiased", "reference"))
        if values == "reference" and replace:
            raise InputError(
                argument="values",
                given="'reference' with replace=True",
                expected="'unbiased' when drawing with replacement",
            )
        self.values: Values = values
        self.normalize_rows = require_bool("normalize_rows", normalize_rows)
        self.weights = ReferenceWeights() if values == "reference" else UnbiasedWeights(self.normalize_rows)

    def options(self) -> dict[str, Any]:
        """Keyword options that make the same sampler again."""
        return {**super().options(), "values": self.values, "normalize_rows": self.normalize_rows}
