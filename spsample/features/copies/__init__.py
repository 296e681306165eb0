"""Copies of rows of features on several devices: plans of the rows that each keeps, and their costs.

`plan_copies` makes a plan by a method of `METHODS`; `cost` computes what any plan costs.
"""

from __future__ import annotations

from spsample.features.copies.methods import METHODS, plan_copies
from spsample.features.copies.plan import CopyCost, CopyPlan, cost

__all__ = ["METHODS", "CopyCost", "CopyPlan", "cost", "plan_copies"]
