"""The public face, as the packages state it, and what of it takes no values from a caller."""

from __future__ import annotations

from importlib import import_module

import cases_advice
import cases_cli
import cases_features
import cases_graphs
import cases_loading
import cases_ranks
import cases_stores
import cases_timeline
import cases_training
import cases_words
from case import Case

PACKAGES = (
    "spsample",
    *(
        f"spsample.{name}"
        for name in (
            "advice",
            "backends",
            "comm",
            "convert",
            "data",
            "distributed",
            "features",
            "loading",
            "planning",
            "reorder",
            "sampling",
            "sparse",
            "store",
            "timeline",
            "training",
        )
    ),
)

MODULES = (
    cases_graphs,
    cases_words,
    cases_loading,
    cases_features,
    cases_stores,
    cases_ranks,
    cases_training,
    cases_advice,
    cases_timeline,
    cases_cli,
)

CONSTANTS = {"LAW_VERSION", "law_version"}

MADE_BY_THE_LIBRARY = {
    "Adjacency",
    "Batch",
    "Block",
    "CacheCounts",
    "CacheReport",
    "ColumnScale",
    "ColumnMatrix",
    "ColumnSample",
    "Compaction",
    "Conversion",
    "CopyCost",
    "DiskCounts",
    "DrawShift",
    "Entries",
    "EpochRecord",
    "ExtractedLayer",
    "GatheredRows",
    "Layer",
    "Matrix",
    "DatasetPart",
    "PartialSums",
    "QuantisationRule",
    "PartitionQuality",
    "Preset",
    "RankSummary",
    "Received",
    "Reordering",
    "Resumption",
    "RoutedRows",
    "LayerSample",
    "RowSample",
    "RowStatistics",
    "Sent",
    "StackedLayer",
    "StackedRows",
    "StackedSelector",
    "StageTimes",
    "StepLoss",
    "TrainResult",
    "UnbiasedExtraction",
    "UnitedHops",
}
"""Records: what they hold was checked before."""

INTERFACES = {
    "Backend",
    "Callback",
    "Communicator",
    "FeatureSource",
    "Features",
    "Frontier",
    "Gradients",
    "GraphOperand",
    "Reduction",
}
"""Protocols, bases and types: others implement them, and are covered."""

INSIDE = {"Channel", "collective", "row_lengths"}
"""Words of ranks and rows for the library's own rooms, which hand over what they have checked."""

NEEDS_A_GPU = {"PartitionedDeviceFeatures"}

NO_CASE = CONSTANTS | MADE_BY_THE_LIBRARY | INTERFACES | INSIDE | NEEDS_A_GPU


def public_objects() -> dict[str, object]:
    """Every public name of every package, with its package."""
    return {
        f"{package}.{name}": getattr(import_module(package), name)
        for package in PACKAGES
        for name in import_module(package).__all__
    }


def all_cases() -> dict[str, Case]:
    """By name."""
    return {name: case for module in MODULES for name, case in module.CASES.items()}


def without_a_case() -> list[str]:
    """Public names that no case covers, and that are not named here as needing none."""
    covered = [one for case in all_cases().values() for one in case.covers]
    return [
        name
        for name, found in public_objects().items()
        if name.rpartition(".")[2] not in NO_CASE and not any(found is one for one in covered)
    ]
