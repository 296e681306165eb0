"""What the machine has and lacks, for ``spsample doctor``: each module looks at one part of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from spsample.cli.machine import core, hardware, packages, surroundings
from spsample.cli.machine.finding import Finding
from spsample.data.named import data_root

__all__ = ["Finding", "survey"]

_AREAS = ("software", "processor", "memory", "MPI", "GPU", "training", "data")


def survey(say: Callable[[str], object]) -> list[Finding]:
    """Look at everything; what goes wrong while looking is a finding too. `say` is told which package is looked at."""
    looks: tuple[Callable[[], list[Finding]], ...] = (
        core.python,
        core.core,
        core.compilers,
        hardware.processor,
        core.threads,
        hardware.memory,
        surroundings.mpi,
        surroundings.slurm,
        surroundings.gpus,
        partial(packages.packages, say),
        lambda: surroundings.data_folder(data_root()),
    )
    with ThreadPoolExecutor() as pool:
        findings = [finding for found in pool.map(_findings, looks) for finding in found]
    return sorted(findings, key=lambda finding: _AREAS.index(finding.area))


def _findings(look: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return look()
    except Exception as error:  # a machine of a kind nobody thought of
        name = getattr(look, "__name__", "look")
        return [Finding("software", name, "warning", f"could not be looked at: {type(error).__name__}: {error}")]
