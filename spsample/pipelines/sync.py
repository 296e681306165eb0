"""Sampling, fetching and training in turn."""

from __future__ import annotations

from typing import Any

from spsample.pipelines.overlap import OverlappedPipeline


class SerialPipeline(OverlappedPipeline):
    """The loader makes each batch when it is asked for."""

    def _own_options(self) -> dict[str, Any]:
        return {**super()._own_options(), "prefetch": 0}


PIPELINE = SerialPipeline
