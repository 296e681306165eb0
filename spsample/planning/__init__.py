"""How many batches fit in how much memory, on one machine and on a cluster; `bulk_sample`, which keeps to it."""

from __future__ import annotations

from spsample.planning.bulk_plan import BulkPlan
from spsample.planning.bulk_sample import bulk_sample
from spsample.planning.loader_plan import plan_bulk
from spsample.planning.scratch import scratch_bytes

__all__ = ["BulkPlan", "bulk_sample", "plan_bulk", "scratch_bytes"]
