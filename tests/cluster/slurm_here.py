"""A real Slurm here, of Debian's slurm-wlm: munged, slurmctld and two slurmd, as root, in a folder of its own.

Nothing of a Slurm that may be installed here is read or changed, and all of it ends with the block.
"""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
NODES = ("one", "two")
STARTS_WITHIN = 60.0


def missing() -> str:
    """Why there can be no Slurm here; empty if there can."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed (apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "slurmctld and slurmd are started as root"


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass
class Slurm:
    """A running one: what to set in the environment to talk to it."""

    folder: Path
    environment: Mapping[str, str]
    processes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    def ask(self, *words: str) -> str:
        return subprocess.run(words, env=self.environment, check=True, capture_output=True, text=True).stdout

    def jobs(self, *options: str) -> list[list[str]]:
        """State, node and name of every task there is."""
        said = self.ask("squeue", "--noheader", "--array", "--format=%T|%N|%j|%i|%K", *options)
        return [line.split("|") for line in said.splitlines()]

    def set_down(self, node: str) -> None:
        """As an operator does: what runs there is killed, and queued again."""
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def set_up(self, node: str) -> None:
        if "down" in self.ask("sinfo", "--noheader", f"--nodes={node}", "--format=%T"):
            self.ask("scontrol", "update", f"nodename={node}", "state=resume")


@contextmanager
def running_slurm(folder: Path) -> Iterator[Slurm]:
    """Starts in a few seconds, with two partitions: what runs in `low` is cancelled for what `high` is asked for."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    environment = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
    slurm = Slurm(folder, environment)
    try:
        _start_munge(slurm)
        (folder / "slurm.conf").write_text(_configuration(folder))
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        slurm.processes["slurmctld"] = _started(slurm, "slurmctld", "-D", "-c")
        for node in NODES:
            slurm.processes[node] = _started(slurm, "slurmd", "-D", "-N", node)
        _wait_until_idle(slurm)
        yield slurm
    finally:
        for process in reversed(slurm.processes.values()):
            process.terminate()
        for process in slurm.processes.values():
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _started(slurm: Slurm, *words: str) -> "subprocess.Popen[bytes]":
    log = (slurm.folder / f"{words[0]}-{len(slurm.processes)}.out").open("wb")
    return subprocess.Popen(words, env=slurm.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _start_munge(slurm: Slurm) -> None:
    key, at = slurm.folder / "munge.key", slurm.folder / "munge.socket"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    names = [f"--{name}-file={slurm.folder / f'munge.{name}'}" for name in ("pid", "log", "seed")]
    words = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={at}", *names]
    slurm.processes["munged"] = _started(slurm, *words)
    _wait(lambda: at.exists(), slurm)


def _wait_until_idle(slurm: Slurm) -> None:
    def idle() -> bool:
        said = subprocess.run(
            ["sinfo", "--noheader", "-N", "--format=%N %T"], env=slurm.environment, capture_output=True, text=True
        ).stdout
        return {tuple(line.split()) for line in said.splitlines()} == {(node, "idle") for node in NODES}

    _wait(idle, slurm)


def _wait(condition: object, slurm: Slurm) -> None:
    assert callable(condition)
    until = time.monotonic() + STARTS_WITHIN
    while not condition():
        dead = [name for name, process in slurm.processes.items() if process.poll() is not None]
        if dead or time.monotonic() > until:
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in slurm.folder.glob("*.out"))
            raise RuntimeError(f"Slurm did not start, ended: {dead}\n{logs}")
        time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _configuration(folder: Path) -> str:
    control, *ports = _free_ports(1 + len(NODES))
    host = socket.gethostname().partition(".")[0]
    nodes = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=1000 State=UNKNOWN"
        for node, port in zip(NODES, ports, strict=True)
    ]
    lines = {
        "ClusterName": "here",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": control,
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        # What is queued again may start when its credentials have expired, after two minutes unless told otherwise.
        "AuthInfo": f"socket={folder / 'munge.socket'},cred_expire=5",
        "CredType": "cred/munge",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU",
        "AccountingStorageType": "accounting_storage/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "MpiDefault": "none",
        "ReturnToService": 2,
        "KillWait": 15,
        "MaxArraySize": 20,
        "SchedulerParameters": "sched_min_interval=1,sched_interval=1,batch_sched_delay=0",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "CANCEL",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool-%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd-%n.pid",
        "SlurmctldLogFile": folder / "slurmctld.log",
        "SlurmdLogFile": folder / "slurmd-%n.log",
    }
    (folder / "state").mkdir()
    names = ",".join(NODES)
    partitions = [
        f"PartitionName=low Nodes={names} Default=YES State=UP PriorityTier=1 PreemptMode=CANCEL",
        f"PartitionName=high Nodes={names} State=UP PriorityTier=10 PreemptMode=OFF",
    ]
    return "\n".join([*(f"{key}={value}" for key, value in lines.items()), *nodes, *partitions, ""])
