"""A Slurm of several nodes on one machine, without systemd, cgroups or accounting: for tests, as root.

Two daemons of nodes run under other names on the loopback interface, each with files and a folder for PMIx of its own.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from needs import told

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo")
PACKAGES = "slurm-wlm slurm-wlm-basic-plugins munge libpmix-dev"
"""The last one for the name without a version under which Slurm's plugin opens PMIx."""


def missing() -> str:
    """Why no Slurm can run here; empty if one can."""
    if os.geteuid() != 0:
        return "a Slurm on this machine needs root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    return f"no {', '.join(absent)}: apt-get install --no-install-recommends {PACKAGES}" if absent else ""


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class LoopbackSlurm:
    """Nodes n1, n2, ... of so many processors each, which live as long as the `with` block."""

    def __init__(self, folder: Path, nodes: int = 2, cpus: int = 2) -> None:
        self.folder = folder
        self.nodes = {f"n{i + 1}": port for i, port in enumerate(free_ports(nodes))}
        self.cpus = cpus
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> LoopbackSlurm:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def run(self, script: str, *options: str, timeout: float = 120) -> tuple[int, str]:
        """Submit a script, wait for its end: its exit status and what it printed."""
        path = self.folder / "job.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        return self.submit([str(path)], *options, timeout=timeout)

    def submit(self, job: list[str], *options: str, timeout: float = 120, cwd: Path | None = None) -> tuple[int, str]:
        """Submit a script that lies somewhere, with its arguments, from a folder."""
        output = self.folder / "job.out"
        output.unlink(missing_ok=True)
        number = self._ask("sbatch", "--parsable", f"--output={output}", *options, *job, cwd=cwd).strip()
        end = time.monotonic() + timeout
        while not (status := self._status(number)):
            if time.monotonic() > end:
                self._ask("scancel", "--signal=KILL", number)
                raise RuntimeError(f"the job did not end within {timeout} s\n{output.read_text()}\n{self.log()}")
            time.sleep(0.2)
        return int(status.partition(":")[0]), output.read_text() if output.exists() else ""

    def why_not(self, mpi: str) -> str:
        """What is said where srun cannot start a task that has MPI by a protocol; empty where it can."""
        status, output = self.run(f"srun --mpi={mpi} {sys.executable} -c 'from mpi4py import MPI'")
        return told(output) or f"exit status {status}" if status else ""

    def _status(self, number: str) -> str:
        """EXIT:SIGNAL of a job that has ended."""
        fields = dict(
            field.split("=", 1) for field in self._ask("scontrol", "-o", "show", "job", number).split() if "=" in field
        )
        if fields["JobState"] in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            return ""
        return fields["ExitCode"] if fields["JobState"] in ("COMPLETED", "FAILED") else "1:0"

    def _ask(self, *line: str, cwd: Path | None = None) -> str:
        folder = cwd or self.folder
        done = subprocess.run(line, env=self.environment, cwd=folder, timeout=60, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(line)}: {done.stderr}")
        return done.stdout

    def log(self) -> str:
        """The ends of the daemons' logs."""
        ends = [f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log"))]
        return "\n".join(ends)

    def _start(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(256))
        key.chmod(0o400)
        (control,) = free_ports(1)
        configuration = self._configuration(control)
        self._written(self.folder, configuration)
        self._daemon("munged", *self._munge_options(key))
        self._until("the authentication service", lambda: (self.folder / "munge.socket").exists())
        self._daemon("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        for name in self.nodes:
            home = self._written(self.folder / name, configuration)
            (home / "mpi.conf").write_text(f"PMIxCliTmpDirBase={home}\n")
            self._daemon("slurmd", "-D", "-N", name, "-f", str(home / "slurm.conf"), conf=home / "slurm.conf")
        self._until("the nodes", self._idle)

    def _munge_options(self, key: Path) -> list[str]:
        paths = {"pid-file": "munge.pid", "log-file": "munge.log", "seed-file": "munge.seed", "socket": "munge.socket"}
        options = [f"--{option}={self.folder / name}" for option, name in paths.items()]
        return ["--foreground", "--force", f"--key-file={key}", *options]

    @staticmethod
    def _written(home: Path, configuration: str) -> Path:
        home.mkdir(exist_ok=True)
        (home / "slurm.conf").write_text(configuration)
        return home

    def _configuration(self, control: int) -> str:
        me = socket.gethostname().partition(".")[0]
        settings = {
            "ClusterName": "loopback",
            "SlurmctldHost": f"{me}(127.0.0.1)",
            "SlurmctldPort": control,
            "SlurmUser": "root",
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "spool-%n",
            "SlurmctldPidFile": self.folder / "slurmctld.pid",
            "SlurmdPidFile": self.folder / "slurmd-%n.pid",
            "SlurmctldLogFile": self.folder / "slurmctld.log",
            "SlurmdLogFile": self.folder / "slurmd-%n.log",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.folder / 'munge.socket'}",
            "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",  # loopback only
            "DebugFlags": "NO_CONF_HASH",  # each node reads a copy of its own
            "SlurmdParameters": "config_overrides",  # processors and memory are those said below
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SwitchType": "switch/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU",
            "MpiDefault": "none",  # so that --mpi is asked for
            "ReturnToService": 2,
            "MailProg": "/bin/true",
        }
        (self.folder / "state").mkdir(exist_ok=True)
        lines = [f"{name}={value}" for name, value in settings.items()]
        for name, port in self.nodes.items():
            lines.append(
                f"NodeName={name} NodeHostname={me} NodeAddr=127.0.0.1 Port={port} CPUs={self.cpus} RealMemory=2000"
            )
        lines.append("PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE")
        return "\n".join(lines) + "\n"

    def _daemon(self, *line: str, conf: Path | None = None) -> None:
        environment = self.environment | ({"SLURM_CONF": str(conf)} if conf else {})
        with (self.folder / f"{line[0]}-{len(self._daemons)}.out.log").open("wb") as log:
            self._daemons.append(subprocess.Popen(line, env=environment, stdout=log, stderr=log))

    def _idle(self) -> bool:
        asked = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=self.environment, capture_output=True, text=True)
        return asked.stdout.split() == ["idle"] * len(self.nodes)

    def _until(self, what: str, ready) -> None:
        end = time.monotonic() + 30
        while not ready():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self._daemons):
                raise RuntimeError(f"{what} did not come up\n{self.log()}")
            time.sleep(0.1)
