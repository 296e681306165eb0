"""How many batches fit in how much memory, on one machine and on a cluster; `bulk_sample`, which keeps to it."""

from __future__ import annotations

from spsample.planning.bulk_sample import bulk_sample
from spsample.planning.memory import scratch_bytes
from spsample.planning.planner import BulkPlan, plan_bulk

__all__ = ["BulkPlan", "bulk_sample", "plan_bulk", "scratch_bytes"]
