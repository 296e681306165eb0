"""Figures of merit, from logits and labels, by torchmetrics.

Labels in one dimension are classes, one per vertex; in two dimensions, ``(vertices, classes)``, each class is a
question of its own (multi-label), answered by the sign of its logit.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spsample.errors import InputError, require_module


def accuracy(logits: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the share of vertices whose largest logit is that of their label; multi-label: of right answers.

    Examples
    --------
    >>> accuracy(np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([1, 1]))
    0.5
    """
    if y.ndim == 2:
        return float(((logits > 0) == (y > 0)).mean())
    return float((logits.argmax(axis=1) == y).mean())


def roc_auc(logits: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the area under the ROC curve of two classes; multi-label: the mean over classes that have both answers.

    It is the probability that a vertex of class 1 gets a higher score ``logit_1 - logit_0`` than one of class 0, ties
    counted half.

    Raises
    ------
    InputError
        If there are not two classes, both of them present.

    Examples
    --------
    >>> roc_auc(np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]), np.array([0, 1, 1]))
    1.0
    """
    return _ranking("roc_auc", "binary_auroc", logits, y)


def average_precision(logits: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the area under the curve of precision and recall, of classes as in `roc_auc`.

    Examples
    --------
    >>> round(average_precision(np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]), np.array([1, 0, 1])), 3)
    0.833
    """
    return _ranking("average_precision", "binary_average_precision", logits, y)


def f1_micro(logits: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the F1 score of all answers together; for one label per vertex it is the accuracy.

    Examples
    --------
    >>> f1_micro(np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[1, 0], [1, 0]])).__round__(3)
    0.8
    """
    return _f1("micro", logits, y)


def f1_macro(logits: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the mean of the classes' F1 scores.

    Examples
    --------
    >>> f1_macro(np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[1, 0], [1, 0]]))
    0.5
    """
    return _f1("macro", logits, y)


METRICS: dict[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": accuracy,
    "average_precision": average_precision,
    "f1_macro": f1_macro,
    "f1_micro": f1_micro,
    "roc_auc": roc_auc,
}


def _torchmetrics() -> ModuleType:
    return require_module("torchmetrics.functional.classification", needed_for="this metric", extra="pyg")


def _ranking(metric: str, function: str, logits: NDArray[Any], y: NDArray[Any]) -> float:
    """Mean over the classes' scores of a function of torchmetrics for two answers."""
    of_two = getattr(_torchmetrics(), function)
    if y.ndim == 2:
        columns = [(logits[:, k], y[:, k] > 0) for k in range(y.shape[1])]
    else:
        _require_two_classes(metric, logits, y)
        columns = [(logits[:, 1].astype(np.float64) - logits[:, 0], y == 1)]
    scores = [
        float(of_two(_ranks(score), torch.from_numpy(answer.astype(np.int64))))
        for score, answer in columns
        if answer.any() and not answer.all()
    ]
    if not scores:
        given = f"{metric!r} for labels of which no class has both answers"
        raise InputError(argument="metric", given=given, expected="a class with both answers")
    return float(np.mean(scores))


def _require_two_classes(metric: str, logits: NDArray[Any], y: NDArray[Any]) -> None:
    num_classes, num_positive = logits.shape[1], int((y == 1).sum())
    if num_classes != 2 or num_positive in (0, len(y)):
        given = f"{metric!r} for {num_classes} classes, {num_positive} of {len(y)} vertices in class 1"
        raise InputError(argument="metric", given=given, expected="two classes, both of them present")


def _ranks(score: NDArray[Any]) -> torch.Tensor:
    """Order of the scores in [0, 1], ties kept: torchmetrics takes what lies outside for logits, and rounds them."""
    _, inverse = np.unique(score, return_inverse=True)
    return torch.from_numpy(inverse.reshape(-1) / max(1, int(inverse.max())))


def _f1(average: str, logits: NDArray[Any], y: NDArray[Any]) -> float:
    functions = _torchmetrics()
    if y.ndim == 2:
        answers, labels = (torch.from_numpy((numbers > 0).astype(np.int64)) for numbers in (logits, y))
        return float(functions.multilabel_f1_score(answers, labels, num_labels=y.shape[1], average=average))
    classes, labels = torch.from_numpy(logits.argmax(axis=1)), torch.from_numpy(y)
    return float(functions.multiclass_f1_score(classes, labels, num_classes=logits.shape[1], average=average))
