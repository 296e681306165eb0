"""What tests need is tried: programs that are there and do not work are no failures of tests."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import needs
import pytest


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program that says something before all others."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def put(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
        return str(tmp_path / name)

    return put


def why_not(need):
    """Without what was found before."""
    return needs.why_not.__wrapped__(need)


def test_a_program_that_works(program):
    program("works", "exit 0")
    assert needs.refusal(["works"]) == ""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo one; echo 'two: error' >&2; exit 3", "fails: two: error"),
        ("echo '-----' >&2; echo 'no slots' >&2; exit 1", "fails: no slots"),
        ("exit 7", "fails: exit status 7"),
        ("kill -9 $$", "fails: exit status -9"),
    ],
)
def test_a_program_that_fails_says_why(program, script, said):
    program("fails", script)
    assert needs.refusal(["fails"]) == said


def test_a_program_that_hangs_or_is_not_there_or_is_none(program, tmp_path):
    program("hangs", "exec sleep 60")
    assert "timed out after 0.2 seconds" in needs.refusal(["hangs"], 0.2)
    assert needs.refusal(["of_nobody"]) == "no of_nobody"
    program("broken", "").encode()
    (tmp_path / "broken").write_bytes(b"\x7fELF")
    assert needs.refusal(["broken"]).startswith("broken: ")


@pytest.mark.parametrize(
    ("need", "name", "script", "said"),
    [
        ("mpi", "mpirun", "echo 'mpirun error: no transport' >&2; exit 1", "mpirun: mpirun error: no transport"),
        ("make", "make", "echo 'bmake 1.0'", "not GNU Make: bmake 1.0"),
        ("bash", "bash", "exit 9", "bash: exit status 9"),
        ("thread sanitizer", "setarch", "echo 'setarch: error: not permitted' >&2; exit 1", "setarch: setarch: error:"),
    ],
)
def test_a_need_whose_program_does_not_do_it(program, need, name, script, said):
    if need == "mpi":
        pytest.importorskip("mpi4py")
    if need == "thread sanitizer" and why_not("thread sanitizer"):
        pytest.skip("the compiler has none")
    program(name, script)
    assert why_not(need).startswith(said)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'g++: fatal error: cannot execute cc1plus' >&2; exit 1", "cannot execute cc1plus"),
        ('while [ $# -gt 1 ]; do shift; done; printf "%0200d" 0 > "$1"', "invalid ELF header"),
        ('while [ $# -gt 1 ]; do shift; done; : > "$1"', "too short"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="what Linux says of libraries")
def test_a_compiler_that_cannot_compile(program, monkeypatch, script, said):
    monkeypatch.setattr(needs, "COMPILER", program("compiler", script))
    assert said in why_not("c++")


def test_little_shared_memory(monkeypatch):
    monkeypatch.setattr(needs.os.path, "isdir", lambda path: True)
    monkeypatch.setattr(needs.shutil, "disk_usage", lambda path: SimpleNamespace(free=64 << 20))
    assert why_not("shared memory") == "/dev/shm has 64 MiB free of 256"


def test_the_line_that_tells_most():
    assert (
        needs.told("Traceback (most recent call last):\n  File x\nRuntimeError: no library\nmore")
        == "RuntimeError: no library"
    )
    assert needs.told("\n---\n  no slots\nmore\n") == "no slots"
    assert needs.told("") == ""


def test_a_test_is_skipped_with_the_reason(program, monkeypatch):
    monkeypatch.setattr(needs, "why_not", lambda need: f"no {need} here" if need == "b" else "")
    with pytest.raises(pytest.skip.Exception, match=r"^b: no b here$"):
        needs.require("a", "b", "c")
    needs.require("a", "c")
