"""The contract of communicators over MPI and torch.distributed, and what happens where a rank goes wrong."""

from __future__ import annotations

import pytest
from jobs import BACKENDS, run_job

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backend", BACKENDS)
def test_contract(backend):
    """Of 4 ranks, and of their parts of 3, 2 and 1; over gloo, whose calls take longer, of 3 ranks and such parts."""
    status, output = run_job(backend, "over_processes.py", backend, ranks={"mpi": 4, "gloo": 3}[backend])
    assert "cases passed" in output, output
    assert "FAILED" not in output, output
    assert status == 0, output


@pytest.mark.needs("gloo")
@pytest.mark.needs("mpi")
def test_gloo_under_mpirun():
    """A rendezvous from what mpirun sets."""
    cases = "case_all_to_all_v", "case_nested_splits", "case_failure_between_exchanges"
    status, output = run_job("mpi", "over_processes.py", "gloo", *cases, ranks=2)
    assert status == 0, output
    assert "6 of 6 cases passed" in output


def tell(output, backend):
    """The ranks say what they were in when another was lost: ended by the launcher, or before that by themselves.

    On a busy machine mpirun kills some of them before they do.
    """
    ways = "rank {} of 4: ended by SIGTERM in", "rank {} of a group of 4:"
    said = [f"{way} all_to_all_v in phase 'feature rows'" for way in ways]
    told = [rank for rank in (0, 1, 3) if any(one.format(rank) in output for one in said)]
    return told if backend == "mpi" else told == [0, 1, 3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_is_killed(backend):
    status, output = run_job(backend, "faulty_rank.py", backend, "kill", 400, launched=True)  # beyond the job's time
    assert status != 0
    assert "has done all" not in output
    assert tell(output, backend), output
    assert "signal 9" in output or "SIGKILL" in output  # the launcher names the rank


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_ends_with_an_error(backend):
    status, output = run_job(backend, "faulty_rank.py", backend, "error", 400)
    assert status != 0
    assert "this rank's own fault" in output
    assert tell(output, backend), output


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_ends_all(backend):
    status, output = run_job(backend, "faulty_rank.py", backend, "abort", 120)
    assert status != 0
    assert "rank 2 cannot go on" in output
    assert "has done all" not in output


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_does_not_come(backend):
    """Without a launcher that sees it: the others name it when the time is up."""
    status, output = run_job(backend, "faulty_rank.py", backend, "away", 3)
    assert status != 0
    for rank in (0, 1, 3):
        assert f"rank {rank} of a group of 4: all_to_all_v in phase 'feature rows'" in output
    assert "nothing was heard of rank 2; ranks" in output


@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_input_of_one_rank(backend):
    status, output = run_job(backend, "faulty_rank.py", backend, "input", 20)
    assert status != 0
    told = "InputError: seeds: got -3 at position 17 (on rank 2); expected vertex ids in [0, 2708)"
    assert output.count(told) == 4


@pytest.mark.needs("mpi")
def test_a_thread_level_that_is_too_low():
    status, output = run_job("mpi", "thread_level.py", ranks=2, MPI4PY_RC_THREAD_LEVEL="serialized")
    assert status == 0, output
    assert output.count("MPI4PY_RC_THREAD_LEVEL=multiple") == 2
    assert output.count("prefetch=0") == 2


@pytest.mark.needs("mpi")
def test_a_rank_that_does_not_connect():
    """MPI itself would wait for ever."""
    status, output = run_job("mpi", "faulty_rank.py", "mpi", "late", 4)
    assert status != 0
    assert "rank 0 of 4: not all of the others came to connect (4 s)" in output, output
