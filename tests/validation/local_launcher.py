"""Workers as plain processes of this machine, without torch: the launcher's rules can be tried anywhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from validation.launch_ranks import Pipe, Worker
from validation.launch_ssh import PAYLOADS
from validation.launch_watch import Look


class LocalPipe:
    """A process with the interface of validation.remote.Stream."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)

    def lines(self) -> Iterator[str]:
        return self._lines(self.process.stdout)

    def error_lines(self) -> Iterator[str]:
        return self._lines(self.process.stderr)

    @staticmethod
    def _lines(stream: IO[bytes] | None) -> Iterator[str]:
        assert stream
        for line in stream:
            yield line.decode().rstrip("\n")

    def status(self, timeout_s: float = 2.0) -> int | None:
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def end_input(self) -> None:
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def close(self) -> None:
        self.end_input()


class LocalLauncher:
    """Each node is a folder of its own under `root`; every address is 127.0.0.1."""

    def __init__(self, root: Path, *, unreachable: frozenset[str] = frozenset(), shared: bool = False) -> None:
        self.root, self.unreachable, self.shared = root, unreachable, shared
        self.pipes: list[LocalPipe] = []
        self.broken_nodes: dict[str, str] = {}
        self.without_slurm: set[str] | None = None
        """Set: all ranks are of one srun, which starts nothing on n2 until that node is in this set."""

    def folder(self, node: str) -> Path:
        return self.root / node

    def prepare(self, workers: Sequence[Worker], fleet: str) -> dict[str, str]:
        for worker in workers:
            folder = self.folder(worker.node)
            folder.mkdir(parents=True, exist_ok=True)
            for path in PAYLOADS.glob("*.py"):
                shutil.copy(path, folder)
            (folder / "fleet.json").write_text(fleet, encoding="utf-8")
        return {node: why for node, why in self.broken_nodes.items() if any(w.node == node for w in workers)}

    def start(self, workers: Sequence[Worker]) -> list[tuple[Pipe, tuple[int, ...]]]:
        started: list[tuple[Pipe, tuple[int, ...]]] = []
        for worker in workers:
            folder = self.folder(worker.node)
            if self.without_slurm is not None and worker.node == "n2" and "n2" not in self.without_slurm:
                pipe_of_n1, ranks = started[-1]
                started[-1] = pipe_of_n1, (*ranks, worker.rank)
                continue
            pipe = LocalPipe(
                [sys.executable, str(folder / "worker.py"), str(folder / "fleet.json"), "--rank", str(worker.rank)]
            )
            self.pipes.append(pipe)
            started.append((pipe, (worker.rank,)))
        return started

    def look(self, worker: Worker) -> Look:
        if worker.node in self.unreachable:
            return Look(reachable=False)
        return Look(True, state(worker.pid))

    def poke(self, worker: Worker) -> None:
        os.kill(worker.pid, signal.SIGUSR1)

    def shares_a_program(self, worker: Worker) -> bool:
        return self.shared and worker.node not in (self.without_slurm or ())

    def take_out_of_slurm(self, node: str) -> None:
        assert self.without_slurm is not None
        self.without_slurm.add(node)

    def clean(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            if worker.pid > 1 and state(worker.pid) not in ("gone", "Z"):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
            shutil.rmtree(self.folder(worker.node), ignore_errors=True)
        for pipe in self.pipes:
            pipe.status(2.0)


def state(pid: int) -> str:
    """The letter of /proc/PID/stat, or gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
