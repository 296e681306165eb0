"""What launched this process, where its ranks meet, and `spsample launch`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import spsample
from spsample.cli import launch as launching
from spsample.cli.main import app
from spsample.comm import LocalCommunicator, launch
from spsample.comm.launch import Launch, check_size, choose, detect, first_host, meeting_point
from spsample.errors import CommunicationError, InputError, MissingDependencyError

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
BATCH_SCRIPT = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7", "SLURM_LOCALID": "0"}
SRUN = {**BATCH_SCRIPT, "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "n[1-2]"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("", 0, 1)),
        (BATCH_SCRIPT, ("", 0, 1)),
        (SRUN, ("srun", 2, 4)),
        (OPEN_MPI, ("mpirun", 3, 8)),
        (TORCHRUN, ("torchrun", 2, 4)),
        (SRUN | OPEN_MPI, ("mpirun", 3, 8)),
        (SRUN | TORCHRUN, ("torchrun", 2, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, ("mpirun", 1, 2)),
        (SRUN | {"PMI_RANK": "1", "PMI_SIZE": "2"}, ("srun", 2, 4)),
    ],
)
def test_launchers(environment, expected):
    assert detect(environment)[:3] == expected


def test_numbers_that_are_none():
    with pytest.raises(InputError, match="WORLD_SIZE: got 'four'"):
        detect({"RANK": "0", "WORLD_SIZE": "four"})


def test_alone(monkeypatch):
    monkeypatch.setattr(launch, "detect", Launch)
    assert isinstance(spsample.init(), LocalCommunicator)
    with pytest.raises(InputError, match="backend: got 'tcp'"):
        spsample.init("tcp")
    with pytest.raises(InputError, match="timeout: got 0"):
        spsample.init("local", timeout=0)
    monkeypatch.setenv("SPSAMPLE_TIMEOUT", "soon")
    with pytest.raises(InputError, match="SPSAMPLE_TIMEOUT: got 'soon'"):
        spsample.init()


@pytest.mark.parametrize("launcher", ["srun", "mpirun", "torchrun"])
def test_worlds_of_the_wrong_size(launcher):
    with pytest.raises(CommunicationError, match=rf"connects 2 ranks, but {launcher} started 4 \(SIZE=4\)"):
        check_size(Launch(launcher, 0, 4, variable="SIZE"), "mpi", 2)
    check_size(Launch(launcher, 0, 4, variable="SIZE"), "mpi", 4)


def test_local_refuses_several_ranks(monkeypatch):
    monkeypatch.setattr(launch, "detect", lambda: Launch("mpirun", 0, 4, variable="OMPI_COMM_WORLD_SIZE"))
    with pytest.raises(CommunicationError, match="local connects 1 rank, but mpirun started 4"):
        spsample.init("local")


@pytest.mark.parametrize(
    ("launcher", "installed", "expected"),
    [
        ("", (), "local"),
        ("mpirun", ("mpi4py", "torch"), "mpi"),
        ("srun", ("torch",), "gloo"),
        ("torchrun", ("torch",), "gloo"),
    ],
)
def test_backends(monkeypatch, launcher, installed, expected):
    monkeypatch.setattr(launch, "find_spec", lambda name: name in installed or None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    assert choose(Launch(launcher, size=2)) == expected


def test_nothing_installed(monkeypatch):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"spsample\[mpi\]"):
        choose(Launch("srun", size=2))
    with pytest.raises(MissingDependencyError, match=r"spsample\[pyg\]"):
        choose(Launch("torchrun", size=2))


def test_meeting_points():
    srun = detect(SRUN)
    assert meeting_point(srun, SRUN)[0] == "n1"
    assert meeting_point(srun, SRUN) == meeting_point(detect(SRUN | {"SLURM_PROCID": "0"}), SRUN)
    assert meeting_point(srun, SRUN | {"SLURM_STEP_ID": "1"})[1] != meeting_point(srun, SRUN)[1]
    assert meeting_point(srun, SRUN | {"MASTER_ADDR": "a", "MASTER_PORT": "5"}) == ("a", "5")
    assert meeting_point(Launch("mpirun", 0, 2, 0, 2), {})[0] == "127.0.0.1"
    with pytest.raises(InputError, match="MASTER_ADDR"):
        meeting_point(detect(OPEN_MPI), OPEN_MPI)


@pytest.mark.parametrize(
    "job",
    [
        TORCHRUN | {"MASTER_ADDR": "no.such.machine", "MASTER_PORT": "29500"},
        SRUN | {"MASTER_ADDR": "no such machine"},
        SRUN | {"SLURM_STEP_NODELIST": f"{'n' * 64}[1-2]"},  # no name of a machine is as long
        OPEN_MPI | {"MASTER_ADDR": "n1..cluster"},
    ],
)
@pytest.mark.needs("gloo")
def test_a_first_machine_that_is_not_known_is_told_at_once(job, monkeypatch):
    for name in (*OPEN_MPI, *TORCHRUN, *SRUN, "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    host = job.get("MASTER_ADDR", f"{'n' * 64}1")
    said = f"^MASTER_ADDR: got '{re.escape(host)}', which .* cannot resolve; .* Set it to an address of the first node"
    with pytest.raises(InputError, match=said):
        spsample.init("gloo")


@pytest.mark.parametrize("said", ["cannot load MPI library\nlibmpi.so: no such file", "no MPI"])
def test_mpi4py_without_a_library(said, monkeypatch):
    def no_library(name, **told):
        raise RuntimeError(said)

    monkeypatch.setattr(launch, "require_module", no_library)
    first = said.partition("\n")[0]
    with pytest.raises(CommunicationError, match=rf"^mpi4py finds no MPI \({first}\): load the machine's"):
        spsample.init("mpi")


@pytest.mark.parametrize(
    ("machines", "first"),
    [("n1", "n1"), ("n[003-9],m1", "n003"), ("a-b[1,5-9]-x,c", "a-b1-x"), ("r[1-2]c[3-4]", "r1c3")],
)
def test_first_hosts(machines, first):
    assert first_host(machines) == first


# ----------------------------------------------------------------------------------------------------- spsample launch


def command(*words):
    return [sys.executable, "-m", "spsample.cli.main", "launch", *words]


def run(*words, timeout=120):
    done = subprocess.run(command(*words), timeout=timeout, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no_command"], "got 'no_command'; expected a command of spsample"),
        (["no_script.py"], "which is no file"),
        (["launch", "doctor"], "a command for each rank"),
        (["--backend", "tcp", "doctor"], "--backend: got 'tcp'"),
    ],
)
def test_what_cannot_be_launched(words, said):
    result = CliRunner().invoke(app, ["launch", *words])
    assert result.exit_code == 2
    assert said in result.output


def test_the_environment_of_ranks(monkeypatch):
    monkeypatch.setattr(launching, "usable_cores", lambda: 8)
    monkeypatch.setattr(launching.os, "geteuid", lambda: 1000)
    found = launching.ranks_environment(3, {"PATH": "x"})
    assert found["OMP_NUM_THREADS"] == "2"
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in found
    monkeypatch.setattr(launching.os, "geteuid", lambda: 0)
    assert launching.ranks_environment(3, {})["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert launching.ranks_environment(99, {})["OMP_NUM_THREADS"] == "1"


def test_without_mpi(monkeypatch):
    monkeypatch.setattr(launching, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="mpi4py"):
        launching.with_launcher(["x"], 2, "mpi")
    with pytest.raises(MissingDependencyError, match="torch"):
        launching.with_launcher(["x"], 2, "gloo")


@pytest.mark.needs("mpi")
def test_a_command_of_spsample():
    status, output = run("-n", "3", "--backend", "mpi", "doctor", "--comm")
    assert status == 0, output
    assert "3 ranks over mpi on 1 machine: every exchange is right" in output


@pytest.mark.needs("gloo")
@pytest.mark.slow
def test_a_script_over_gloo(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text('import sys, spsample\ncomm = spsample.init()\nsys.stdout.write(f"{comm} {sys.argv[1:]}\\n")\n')
    status, output = run("-n", "2", "--backend", "gloo", str(script), "--an-option", "1")
    assert status == 0, output
    assert "TorchCommunicator(rank=1, size=2) ['--an-option', '1']" in output


@pytest.mark.needs("mpi")
def test_the_exit_status_is_passed_on():
    status, _ = run("-n", "2", "--backend", "mpi", sys.executable, "-c", "raise SystemExit(7)")
    assert status == 7


@pytest.mark.needs("mpi")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks(number, tmp_path):
    script = tmp_path / "wait.py"
    script.write_text(
        "import os, sys, time, pathlib\npathlib.Path(sys.argv[1], str(os.getpid())).touch()\ntime.sleep(100)\n"
    )
    folder = tmp_path / "pids"
    folder.mkdir()
    ranks = subprocess.Popen(
        command("-n", "3", "--backend", "mpi", str(script), str(folder)), stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(list(folder.iterdir())) == 3)
    ranks.send_signal(number)
    assert ranks.wait(30) == 128 + number
    wait_until(lambda: not any(alive(int(path.name)) for path in folder.iterdir()))


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.needs("mpi")
def test_the_module_of_the_check():
    line = [sys.executable, "-m", "spsample.comm.check"]
    done = subprocess.run(
        launching.with_launcher(line, 2, "mpi"), env=launching.ranks_environment(2), capture_output=True
    )
    assert b"2 ranks over mpi" in done.stdout
    done = subprocess.run([*line, "--backend", "mpi", "--timeout", "-1"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "timeout: got -1.0; expected a positive number of seconds" in done.stderr


def test_nccl_without_torch_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"spsample\[pyg\]"):
        launch.init("nccl")


SIGNALS_IN_A_ROW = """
import os, signal, sys, threading, time
from spsample.cli import launch

class Interrupted(threading.Timer):
    def start(self):
        signal.raise_signal(signal.SIGTERM)
        super().start()

threading.Timer = Interrupted
threading.Thread(target=lambda: time.sleep(0.5) or os.kill(os.getpid(), signal.SIGINT)).start()
sys.exit(launch.run_ranks([sys.executable, "-c", "import time; time.sleep(60)"], dict(os.environ)))
"""


def test_a_second_signal_while_the_first_is_passed_on():
    done = subprocess.run(
        [sys.executable, "-c", SIGNALS_IN_A_ROW], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 128 + signal.SIGINT, done.stderr
