"""Gathering rows of features from memory, beside NumPy, torch and the memory itself."""

from __future__ import annotations

import numpy as np

from spsample.features import CachedFeatures, FeatureStore

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..rows import draws_of, rows_of_call, table_of


def gather(inputs: Inputs) -> Work:
    """Into the same memory in each call: float32, or the type that is stored."""
    x, draws = table_of(inputs), draws_of(inputs)
    source = FeatureStore(x)
    out = np.empty((draws.shape[1], x.shape[1]), np.float32 if inputs["result"] == "float32" else x.dtype)

    def work() -> Figures:
        for ids in draws:
            source.gather(ids, out=out)
        return {"batches": len(draws), "rows": draws.size}

    return work


def cached(inputs: Inputs) -> Work:
    """Half of the rows are cached, at random: what looking up each row's place takes."""
    x, draws = table_of(inputs), draws_of(inputs)
    scores = np.random.default_rng(1).random(len(x))
    source = CachedFeatures(FeatureStore(x), x.nbytes // 2, scores)
    out = np.empty((draws.shape[1], x.shape[1]), np.float32)

    def work() -> Figures:
        source.reset_counts()
        for ids in draws:
            source.gather(ids, out=out)
        return {"batches": len(draws), "rows": draws.size, "hits": source.counts.hit_share}

    return work


def count(inputs: Inputs) -> Work:
    """What the memory has to read."""
    rows = inputs["batches"] * rows_of_call(inputs)
    return lambda: {"rows": rows, "dim": inputs["row_bytes"] // 4}


CASE = Case(
    about="Rows of features of several types and sizes, gathered at random from memory; ms a call.",
    claim="Rows come as fast as the memory gives them, and become float32 on the way.",
    parameters={
        "dtype": ("float32", "float16", "int8"),
        "row_bytes": (64, 128, 256, 512, 1024, 4096),
        "threads": (2,),
        "batches": (8,),
        "table_mib": (1024,),
        "call_mib": (32,),
    },
    quick={"dtype": ("float32", "int8"), "row_bytes": (512,), "table_mib": (256,)},
    sides=(
        Side("spsample, as stored", gather, {"result": "stored"}),
        Side("spsample, float32", gather, {"result": "float32"}),
        Side("spsample, half cached", cached),
    ),
    job="gather",
    baselines=("NumPy take, as stored", "spsample, as stored"),
    count=count,
    plots=(Plot("ms", x="row_bytes", kind="line", facet="dtype", logarithmic=True, title="ms a call by row bytes"),),
)
