"""Figures of merit, from logits and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from spsample.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["METRICS", "accuracy", "roc_auc"]


def accuracy(logits: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the share of rows whose largest logit is that of their label.

    Examples
    --------
    >>> accuracy(np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([1, 1]))
    0.5
    """
    return float((logits.argmax(axis=1) == y).mean())


def roc_auc(logits: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the area under the ROC curve for two classes.

    It is the probability that a vertex of class 1 gets a higher score ``logit_1 - logit_0`` than one of class
    0, ties counted half: the Mann-Whitney statistic of the ranks.

    Raises
    ------
    InputError
        If there are not two classes, both of them present.

    Examples
    --------
    >>> roc_auc(np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]), np.array([0, 1, 1]))
    1.0
    """
    positive = y == 1
    num_positive, num_negative = int(positive.sum()), int((y == 0).sum())
    if logits.shape[1] != 2 or not num_positive or not num_negative:
        raise InputError(
            argument="metric",
            given=f"'roc_auc' for {logits.shape[1]} classes, {num_positive} of {len(y)} vertices in class 1",
            expected="two classes, both of them present",
        )
    ranks = rankdata(logits[:, 1].astype(np.float64) - logits[:, 0])
    wins = ranks[positive].sum() - num_positive * (num_positive + 1) / 2
    return float(wins / (num_positive * num_negative))


METRICS: dict[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": accuracy,
    "roc_auc": roc_auc,
}
