"""Scores of vertices, by which rows of features are cached."""

from __future__ import annotations

from spsample.features.scores.registry import register_score, score, score_names, usual_score

__all__ = ["register_score", "score", "score_names", "usual_score"]
