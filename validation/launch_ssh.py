"""Start workers over ssh, one channel a rank, in a private folder a run that goes away with them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from inventory.model import Cluster
from validation.launch_ranks import Pipe, Worker
from validation.launch_watch import Look
from validation.remote import Remote, RemoteError

PAYLOADS = Path(__file__).parent / "payloads"
SIDE_BY_SIDE = 32
K = TypeVar("K")
T = TypeVar("T")


class Launcher(Protocol):
    """How workers are started and ended; launchers differ in nothing else."""

    def prepare(self, workers: Sequence[Worker], fleet: str) -> dict[str, str]:
        """Bring the programs to the nodes; node → why not."""
        ...

    def start(self, workers: Sequence[Worker]) -> list[tuple[Pipe, tuple[int, ...]]]:
        """Start every worker; one pipe for one or more ranks."""
        ...

    def look(self, worker: Worker) -> Look:
        """The process as its node shows it now."""
        ...

    def poke(self, worker: Worker) -> None:
        """Ask a rank that hangs to write where it is into its log; never raises."""
        ...

    def shares_a_program(self, worker: Worker) -> bool:
        """Whether one program (srun) carries this rank and others, so that its end says nothing of the rank."""
        ...

    def take_out_of_slurm(self, node: str) -> None:
        """Start the node's ranks over ssh from now on."""
        ...

    def clean(self, workers: Sequence[Worker]) -> None:
        """Kill what is left of these workers and remove their folder; never raises for a node that is gone."""
        ...


class SshLauncher:
    """One ssh channel a rank; the worker makes a process group of its own, and only that group is ever killed."""

    def __init__(self, cluster: Cluster, remotes: Mapping[str, Remote], run_id: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", run_id) or run_id.startswith("."):
            raise ValueError(f'run id "{run_id}" must be letters, digits, ".", "_" and "-"')
        self._cluster, self._remotes, self._run_id = cluster, remotes, run_id
        self._memory_kills: dict[str, int] = {}

    def folder(self, node: str) -> str:
        """In memory where the login is root's; /tmp else."""
        root = self._remotes[node].user == "root"
        return f"/run/klaster/{self._run_id}" if root else f"/tmp/klaster-{self._run_id}"  # noqa: S108 - mkdir -m 755 fails on another's

    def prepare(self, workers: Sequence[Worker], fleet: str) -> dict[str, str]:
        archive = _archive(fleet)

        def one(node: str) -> str:
            folder = shlex.quote(self.folder(node))
            command = (
                f"umask 022; mkdir -p {folder} && [ -O {folder} ] && tar -xf - -C {folder} && "
                "grep -s '^oom_kill ' /proc/vmstat; true"
            )
            try:
                done = self._remotes[node].run(f"{command}; [ -f {folder}/worker.py ]", timeout_s=20, stdin=archive)
            except RemoteError as error:
                return str(error)
            self._memory_kills[node] = _kills(done.stdout)
            return "" if done.ok else f"cannot write {self.folder(node)}: {done.stderr.strip()[-200:]}"

        nodes = sorted({worker.node for worker in workers})
        return {node: reason for node, reason in zip(nodes, side_by_side(one, nodes), strict=True) if reason}

    def start(self, workers: Sequence[Worker]) -> list[tuple[Pipe, tuple[int, ...]]]:
        def one(worker: Worker) -> Pipe | str:
            line = f"cd /; p={self.python()}; $p {self.program(worker.node)} --rank {worker.rank}; exit $?"
            try:
                return self._remotes[worker.node].stream(line)
            except RemoteError as error:
                return str(error)

        pipes: list[tuple[Pipe, tuple[int, ...]]] = []
        for worker, pipe in zip(workers, side_by_side(one, workers), strict=True):
            if isinstance(pipe, str):
                worker.ended, worker.failed_start = True, pipe
            else:
                pipes.append((pipe, (worker.rank,)))
        return pipes

    def python(self) -> str:
        """The interpreter that has torch on a node, as shell text: the virtual environment's if it is there."""
        training = self._cluster.training
        own, system = shlex.quote(f"{training.venv}/bin/python"), "/usr/bin/python3"
        if training.source == "debian":
            return system
        return own if training.source == "venv" else f"$([ -x {own} ] && echo {own} || echo {system})"

    def program(self, node: str) -> str:
        folder = self.folder(node)
        return f"-u {shlex.quote(folder + '/worker.py')} {shlex.quote(folder + '/fleet.json')}"

    def look(self, worker: Worker) -> Look:
        command = f"cat /proc/{worker.pid}/stat 2>/dev/null || echo gone; grep -s '^oom_kill ' /proc/vmstat; true"
        try:
            done = self._remotes[worker.node].run(command, timeout_s=4)
        except RemoteError:
            return Look(reachable=False)
        kills = _kills(done.stdout) - self._memory_kills.get(worker.node, 0)
        return Look(True, _state(done.stdout), max(0, kills))

    def poke(self, worker: Worker) -> None:
        remote = self._remotes[worker.node]
        ours = f"grep -qaF {shlex.quote(self.folder(worker.node))} /proc/{worker.pid}/cmdline"
        with contextlib.suppress(RemoteError):
            remote.run(remote.sudo(f"{ours} && kill -USR1 {worker.pid}"), timeout_s=4)

    def shares_a_program(self, worker: Worker) -> bool:
        return False

    def take_out_of_slurm(self, node: str) -> None:
        """They are started so already."""

    def clean(self, workers: Sequence[Worker]) -> None:
        def one(node: str) -> str:
            try:
                self._remotes[node].run(self._remotes[node].sudo(_end(self.folder(node))), timeout_s=10)
            except RemoteError as error:  # a node that is gone: its worker ends with its connection
                return str(error)
            return ""

        side_by_side(one, sorted({worker.node for worker in workers}))


def _end(folder: str) -> str:
    """Kill whatever runs this run's worker (stopped shells around it too), group by group, and remove the folder.

    The path is put together by the shell, so that this command line is not found itself.
    """
    return (
        f"a={shlex.quote(folder)}; b=/worker.py; n=0; "
        'while l=$(grep -laF "$a$b" /proc/[0-9]*/cmdline 2>/dev/null) && [ $n -lt 30 ]; do '
        "for f in $l; do p=${f#/proc/}; p=${p%/cmdline}; "
        "kill -KILL -- -$p 2>/dev/null; kill -KILL $p 2>/dev/null; done; "
        'n=$((n+1)); sleep 0.05; done; rm -rf "$a"; true'
    )


def _archive(fleet: str) -> bytes:
    """The payload files and fleet.json as a tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        contents = {path.name: path.read_bytes() for path in sorted(PAYLOADS.glob("*.py"))}
        contents["fleet.json"] = fleet.encode()
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), 0o644, int(time.time())
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def fleet_document(workers: Iterable[Worker], *, torch: bool) -> str:
    return json.dumps({"torch": torch, "ranks": [worker.entry() for worker in workers]})


def _kills(text: str) -> int:
    found = re.search(r"^oom_kill (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _state(text: str) -> str:
    """The state letter of /proc/PID/stat; the name before it may hold blanks and brackets."""
    first = text.splitlines()[0] if text else ""
    return first.rpartition(")")[2].split()[0] if ")" in first else "gone"


def side_by_side(function: Callable[[K], T], items: Sequence[K]) -> list[T]:
    """The function of each item, in their order, in threads: ssh mostly waits."""
    with ThreadPoolExecutor(max_workers=max(1, min(SIDE_BY_SIDE, len(items)))) as pool:
        return list(pool.map(function, items))
