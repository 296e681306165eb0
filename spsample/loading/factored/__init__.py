"""Factored loading: some ranks sample, the others train."""

from __future__ import annotations

from spsample.loading.factored.loader import FactoredLoader
from spsample.loading.factored.roles import Roles, SamplerCount, samplers_for

__all__ = ["FactoredLoader", "Roles", "SamplerCount", "samplers_for"]
