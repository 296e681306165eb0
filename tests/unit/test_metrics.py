"""Metrics against pairs counted and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("torchmetrics")

from spsample.errors import InputError
from spsample.training.metrics import METRICS, accuracy, average_precision, f1_macro, f1_micro, roc_auc


def test_roc_auc_against_pairs():
    rng = np.random.Generator(np.random.Philox(0))
    y = rng.integers(0, 2, 60)
    score = np.round(rng.random(60), 1)  # ties
    positive, negative = score[y == 1][:, None], score[y == 0]
    expected = ((positive > negative) + 0.5 * (positive == negative)).mean()
    assert roc_auc(np.stack([-score / 2, score / 2], axis=1), y) == pytest.approx(expected)


def test_roc_auc_against_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.Generator(np.random.Philox(1))
    y, logits = rng.integers(0, 2, 500), rng.standard_normal((500, 2)).astype(np.float32)
    assert roc_auc(logits, y) == pytest.approx(metrics.roc_auc_score(y, logits[:, 1] - logits[:, 0]))


@pytest.mark.parametrize(("classes", "y"), [(3, [0, 1, 2]), (2, [1, 1, 1]), (2, [0, 0, 0])])
def test_roc_auc_needs_two_classes(classes, y):
    with pytest.raises(InputError, match=r"^metric: got 'roc_auc'"):
        roc_auc(np.zeros((3, classes)), np.array(y))


def test_accuracy():
    assert accuracy(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.array([0, 1, 1])) == pytest.approx(2 / 3)


def test_large_logits_are_not_rounded_to_ties():
    logits = np.array([[0.0, 60.0], [0.0, 61.0], [0.0, 62.0], [0.0, 63.0]], dtype=np.float32)
    assert roc_auc(logits, np.array([0, 1, 0, 1])) == 0.75


@pytest.mark.parametrize("name", sorted(METRICS))
def test_multi_label_against_scikit_learn(name):
    sk = pytest.importorskip("sklearn.metrics")
    rng = np.random.Generator(np.random.Philox(2))
    y, logits = rng.integers(0, 2, (300, 5)), rng.standard_normal((300, 5)).astype(np.float32) * 3
    answers = logits > 0
    expected = {
        "accuracy": lambda: (answers == y).mean(),
        "average_precision": lambda: sk.average_precision_score(y, logits, average="macro"),
        "f1_macro": lambda: sk.f1_score(y, answers, average="macro"),
        "f1_micro": lambda: sk.f1_score(y, answers, average="micro"),
        "roc_auc": lambda: sk.roc_auc_score(y, logits, average="macro"),
    }[name]()
    for labels in (y, y.astype(bool), y.astype(np.float32)):
        assert METRICS[name](logits, labels) == pytest.approx(expected, abs=1e-6)


def test_single_label_against_scikit_learn():
    sk = pytest.importorskip("sklearn.metrics")
    rng = np.random.Generator(np.random.Philox(3))
    y, logits = rng.integers(0, 4, 300), rng.standard_normal((300, 4)).astype(np.float32)
    classes = logits.argmax(1)
    assert f1_micro(logits, y) == pytest.approx(accuracy(logits, y))
    assert f1_macro(logits, y) == pytest.approx(sk.f1_score(y, classes, average="macro"), abs=1e-6)
    two = y % 2
    expected = sk.average_precision_score(two, logits[:, 1].astype(float) - logits[:, 0])
    assert average_precision(logits[:, :2], two) == pytest.approx(expected, abs=1e-6)


def test_multi_label_leaves_out_classes_with_one_answer():
    y = np.array([[1, 0], [1, 1], [1, 0]])
    logits = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    assert roc_auc(logits, y) == 0.5
    with pytest.raises(InputError, match="a class with both answers"):
        roc_auc(logits[:, :1], y[:, :1])
