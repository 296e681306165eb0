"""Samplers of one's own, as in docs/own-sampler.md, for the tests of more than one folder."""

from __future__ import annotations

import spsample as sp
from spsample.sampling import LayerwiseSampler
from spsample.sparse import (
    UnbiasedWeights,
    extract,
    its_sample,
    normalize_rows,
    pattern,
    square,
)


class NearUniform(sp.Sampler):
    """Node-wise: it has nothing to state."""

    def layer(self, A, Q, draw, want):
        P = normalize_rows(Q @ (pattern(A) if draw.hop == 0 else A))
        return extract(its_sample(P, draw, edge_ids=want.edge_ids), want)


class SumSampler(LayerwiseSampler):
    """Layer-wise, its base states the values: in proportion to sums, where `LADIES` takes sums of squares."""

    power = 1

    def layer(self, A, Q, draw, want):
        P = normalize_rows(Q.per_batch() @ A)
        return extract(its_sample(P, draw), want, self.weights)


class OwnLayerwise(sp.Sampler):
    """Layer-wise without the base of layer-wise samplers: it states the values itself."""

    aggregation = "values"

    def layer(self, A, Q, draw, want):
        P = normalize_rows(Q.per_batch() @ square(A))
        return extract(its_sample(P, draw), want, UnbiasedWeights())
