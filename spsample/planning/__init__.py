"""Plans of the batches that fit in memory, on one machine and on a cluster; `bulk_sample`, which keeps to them.

A `workload` gives *pilots*, a few batches that are sampled; `bulk_counts` holds what they are counted for, or what no
bulk passes; `scratch` and `device_scratch` say what making a bulk takes beside its arrays; `bulk_plan` adds it up by
the number of batches; `budget` searches the largest bulk that fits and refuses others. Of these are made:
`memory_check`, whether a call fits; `loader_plan` and `rank_plan`, the bulks of a loader; `cluster`, a job on a
cluster.
"""

from __future__ import annotations

from spsample.planning.bulk_plan import BulkPlan
from spsample.planning.bulk_sampling import bulk_sample
from spsample.planning.loader_plan import plan_bulk
from spsample.planning.scratch import scratch_bytes

__all__ = ["BulkPlan", "bulk_sample", "plan_bulk", "scratch_bytes"]
