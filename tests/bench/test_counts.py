"""Bytes, messages and edges of bulks on ranks are those of `counts.jsonl`: what a change adds to them is seen.

`python tests/bench/test_counts.py` writes the file anew, where a change of counts is meant.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="the extra spsample[bench]")

from spsample.bench.case import declared
from spsample.bench.compare import differences
from spsample.bench.records import read_lines
from spsample.bench.run import run_case
from spsample.bench.turns import Settings
from spsample.comm import run_threads

COUNTS = Path(__file__).with_name("counts.jsonl")
GIVEN = {
    "graph": ("rmat:10,8",),
    "sampler": ("sage", "ladies"),
    "replication": (1, 2),
    "batches": (8,),
    "batch_size": (16,),
    "bulk_size": (2,),
    "fanouts": ("4,3",),
}


def counted(folder):
    """The results of the case on four ranks that are threads."""
    given = {**declared("cases", "scaling").parameters, **GIVEN}
    return run_threads(4, lambda comm: run_case("scaling", given, folder / "graphs", folder, Settings(1), comm))[0]


def test_counts_are_as_they_were(tmp_path):
    found = [one for one in differences(COUNTS, counted(tmp_path)) if one.figure != "time"]
    assert found == []


def test_an_extra_message_is_found(tmp_path):
    lines = [line for _, _, line in read_lines(COUNTS)]
    lines[-1]["sides"][0]["figures"]["messages"][0] += 1
    after = tmp_path / "after.jsonl"
    after.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = differences(COUNTS, after)
    assert (found.figure, found.after - found.before, found.is_worse) == ("messages", 1, True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(counted(Path(scratch)), sys.argv[1] if len(sys.argv) > 1 else COUNTS)
