"""A short run of tests/fuzz/flip_bits.py over every form of file that the library reads, and what it must see."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spsample as sp
from spsample.errors import DataError

PROGRAM = Path(__file__).parents[1] / "fuzz" / "flip_bits.py"
FLIPS = 500


def load() -> Any:
    spec = importlib.util.spec_from_file_location("flip_bits", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_flip_is_silent_raw_or_deadly() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--flips", str(FLIPS), "--seed", "16"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n0 findings" in done.stdout


def test_what_the_program_sees() -> None:
    """Outcomes in its process, and processes that die, go on from where they died, or cannot begin."""
    program = load()
    expected = program.digest({"a": np.arange(3)})

    def raising(error: Exception) -> Any:
        def read() -> Any:
            raise error

        return read

    refusal = DataError(argument="a.npz", given="b", expected="c")
    assert program.outcome(lambda: {"a": np.arange(3)}, expected)[0] == "equal"
    assert program.outcome(lambda: {"a": np.arange(3.0)}, expected)[0] == "silent"
    assert program.outcome(raising(refusal), expected)[0] == "refused"
    assert program.outcome(raising(MemoryError()), expected)[0] == "raw"

    script = """
import os, sys
first = int(sys.argv[1])
for number in range(first, 4):
    print(f"> {number}\\ta.npz\\t{number}\\t0", flush=True)
    if number == 1:
        os.abort()
    print("= " + ["equal", "", "raw\\tKeyError: 1", "silent\\t"][number], flush=True)
print("end", flush=True)
"""
    tallied = program.tally("a", True, lambda first: [sys.executable, "-c", script, str(first)])
    assert tallied.counts == Counter({"equal": 1, "crash": 1, "raw": 1, "silent": 1})
    assert [line.split(": ")[1] for line in tallied.findings] == ["crash", "raw", "silent"]
    assert not tallied.problem
    assert program.report([tallied])
    broken = program.tally("a", True, lambda first: [sys.executable, "-c", "1 / 0"])
    assert "ZeroDivisionError" in broken.problem
    assert program.report([broken])


def test_a_hang_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    program = load()
    monkeypatch.setattr(program, "PATIENCE", 1.0)
    script = "import sys, time; n = int(sys.argv[1]); print(f'> {n}\\ta\\t0\\t0' if n < 1 else 'end', flush=True)"
    script += "; time.sleep(30 if n < 1 else 0)"
    tallied = program.tally("a", False, lambda first: [sys.executable, "-c", script, str(first)])
    assert tallied.counts == Counter({"hang": 1})


def test_an_archive_that_hides_its_members_is_refused(tmp_path: Path) -> None:
    """A flipped bit of a comment's length takes the rest of an archive's directory for the comment."""
    path = tmp_path / "graph.npz"
    np.savez(path, indptr=np.array([0, 1, 2]), indices=np.array([1, 0]), y=np.array([0, 1]))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    entry = content.rindex(b"PK\x01\x02", 0, entry)  # that of indices: y is behind it
    length = 46 + len("y.npy")
    content[entry + 32 : entry + 34] = length.to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"graph.npz: got an unreadable file \(2 members where the archive counts 3\)"):
        sp.load_dataset(str(path))


def test_a_partition_with_a_damaged_header_is_refused(tmp_path: Path) -> None:
    from spsample.cli.ranks import integers_of

    path = tmp_path / "parts.npy"
    np.save(path, np.arange(9) % 3)
    content = path.read_bytes()
    for damaged in (content.replace(b"(9,)", b"((9,"), content.replace(b"(9,), } ", b"(9999999999999,)}"[:8])):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"--partition: got .*parts.npy"):
            integers_of(path)
    header = content[:128].replace(b"(9,), }" + b" " * 12, b"(9999999999999,), }")
    path.write_bytes(header + content[128:])
    with pytest.raises(DataError, match=r"--partition: got .*parts.npy"):
        integers_of(path)
