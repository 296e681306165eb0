"""Samplers, and the bulks of minibatches that they draw."""

from __future__ import annotations

from spsample.sampling.biased import Biased
from spsample.sampling.bulk import Adjacency, BulkSample, Layer, MiniBatch
from spsample.sampling.fastgcn import FastGCN
from spsample.sampling.graphsage import GraphSAGE
from spsample.sampling.ladies import LADIES
from spsample.sampling.layerwise import LayerwiseSampler
from spsample.sampling.sampler import Sampler

__all__ = [
    "LADIES",
    "Adjacency",
    "Biased",
    "BulkSample",
    "FastGCN",
    "GraphSAGE",
    "Layer",
    "LayerwiseSampler",
    "MiniBatch",
    "Sampler",
]
