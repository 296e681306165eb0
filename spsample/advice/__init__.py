"""What caches, copies, partitions and bulks would save a run, measured on a trial of it."""

from __future__ import annotations

from spsample.advice.advice import advise
from spsample.advice.cache_report import CacheReport, Workload, cache_report

__all__ = ["CacheReport", "Workload", "advise", "cache_report"]
