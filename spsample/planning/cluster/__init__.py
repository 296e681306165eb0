"""Needs of a job on a cluster: memory of a rank, bytes and seconds of every exchange, for each replication.

`plan` puts it together: pilots are sampled (`pilot`), their rows are counted by rank and block row (`counting`),
formulas make bytes of these counts (`traffic`), and a network makes seconds of the bytes (`network`).
"""

from __future__ import annotations

from spsample.planning.cluster.exchanges import Link, Network, network_named
from spsample.planning.cluster.pilot import Pilot, sample_pilot, scaled_pilot
from spsample.planning.cluster.plan import Cluster, ClusterPlan, GridPlan, PhasePlan, as_dict, plan_cluster

__all__ = [
    "Cluster",
    "ClusterPlan",
    "GridPlan",
    "Link",
    "Network",
    "PhasePlan",
    "Pilot",
    "as_dict",
    "network_named",
    "plan_cluster",
    "sample_pilot",
    "scaled_pilot",
]
