"""Orders of sampling, fetching and training: one module and one class for each pipeline. Needs torch."""

from __future__ import annotations

from importlib import import_module

from spsample.errors import MissingDependencyError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(package="torch", needed_for="spsample.pipelines", extra="pyg") from error

from spsample.pipelines.gradients import (
    CooperativeGradients,
    FactoredGradients,
    Gradients,
    StepLoss,
    first_ranks_model,
    gradients_for,
)
from spsample.pipelines.pipeline import Pipeline
from spsample.pipelines.setup import Devices, TrainingSetup

__all__ = [
    "CooperativeGradients",
    "Devices",
    "FactoredGradients",
    "Gradients",
    "Pipeline",
    "StepLoss",
    "TrainingSetup",
    "first_ranks_model",
    "gradients_for",
    "pipeline_for",
]


def pipeline_for(setup: TrainingSetup) -> Pipeline:
    """Make the pipeline of a training run; collective.

    It is the class `PIPELINE` of the module in this folder that has the name of ``TrainConfig.pipeline``, and of
    `asynchronous` where gradients may be stale.

    Parameters
    ----------
    setup : TrainingSetup

    Raises
    ------
    InputError, CapacityError
        As of the caches of features.
    """
    name = setup.config.pipeline if setup.config.staleness is None else "asynchronous"
    pipeline: type[Pipeline] = import_module(f"spsample.pipelines.{name}").PIPELINE
    return pipeline(setup)
