"""Which rows of features each of several devices keeps a copy of: plans, and what they cost.

`plan_copies` makes a plan by a method of `METHODS`; each method has a module of its own. `cost` says what a plan costs,
whoever made it.
"""

from __future__ import annotations

from spsample.features.copies.methods import METHODS, plan_copies
from spsample.features.copies.plan import CopyCost, CopyPlan, cost

__all__ = ["METHODS", "CopyCost", "CopyPlan", "cost", "plan_copies"]
