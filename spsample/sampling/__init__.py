"""Samplers and `bulk_sample`."""

from __future__ import annotations

from spsample.sampling.bulk import Adjacency, BulkSample, Layer, MiniBatch, bulk_sample
from spsample.sampling.fastgcn import FastGCN
from spsample.sampling.graphsage import GraphSAGE
from spsample.sampling.ladies import LADIES
from spsample.sampling.layerwise import LayerwiseSampler
from spsample.sampling.memory import scratch_bytes
from spsample.sampling.planner import BulkPlan, plan_bulk
from spsample.sampling.sampler import Sampler

__all__ = [
    "LADIES",
    "Adjacency",
    "BulkPlan",
    "BulkSample",
    "FastGCN",
    "GraphSAGE",
    "Layer",
    "LayerwiseSampler",
    "MiniBatch",
    "Sampler",
    "bulk_sample",
    "plan_bulk",
    "scratch_bytes",
]
