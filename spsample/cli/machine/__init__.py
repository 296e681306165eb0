"""What the machine has and lacks, for ``spsample doctor``: each module looks at one part of it."""

from __future__ import annotations

from spsample.cli.machine.finding import Finding
from spsample.cli.machine.survey import survey

__all__ = ["Finding", "survey"]
