"""What the control machine knows of each rank: its lines, its heartbeat, its answers, its end."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

Message = dict[str, Any]

_LABEL = re.compile(r"^\s*(\d+): ")
_FRAME = re.compile(r"^@(\d+)([+=])(.*)$")
_SRUN_END = re.compile(r"^srun: error: (\S+): tasks? ([\d,-]+): (.+)$")
LAST_LINES = 20


class Pipe(Protocol):
    """A running program as the launcher sees it; validation.remote.Stream is one."""

    def write(self, data: bytes) -> None: ...
    def lines(self) -> Iterator[str]: ...
    def error_lines(self) -> Iterator[str]: ...
    def status(self, timeout_s: float = 2.0) -> int | None: ...
    def end_input(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class Worker:
    """One rank as it was last heard of; times are time.monotonic() of the control machine."""

    rank: int
    node: str
    address: str
    local_rank: int
    log: Path
    pid: int = 0
    hello_at: float = 0.0
    job: str = ""
    torch: str | None = None
    port: int = 0
    heard_at: float = field(default_factory=time.monotonic)
    moved_at: float = field(default_factory=time.monotonic)
    count: int = -1
    step: str = ""
    phase: str = "start"
    ended: bool = False
    status: int | None = None
    ending: str = ""
    failed_start: str = ""
    answers: dict[int, Message] = field(default_factory=dict)
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))

    @property
    def where(self) -> str:
        """Where it was, in words: "ddp on 3 nodes: step 5, phase forward"."""
        return ", ".join(part for part in (self.step, f"phase {self.phase}" if self.phase else "") if part)

    def entry(self) -> Message:
        """Its line in fleet.json, and how others address it."""
        return {"rank": self.rank, "node": self.node, "address": self.address, "local_rank": self.local_rank}

    def peer(self) -> Message:
        return {**self.entry(), "port": self.port}


class Board:
    """All ranks of a fleet; reader threads write here and wake whoever waits."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = {worker.rank: worker for worker in workers}
        self.changed = threading.Condition()
        self._parts: dict[int, list[str]] = {}
        self._rank_of_task: dict[int, int] = {}
        self._logs: dict[int, TextIO] = {}

    def output(self, ranks: tuple[int, ...], line: str) -> None:
        """A line of stdout: a frame of some rank, or noise for its log."""
        label = _LABEL.match(line)
        text = line[label.end() :] if label else line
        frame = _FRAME.match(text.rstrip("\r"))
        if not frame or int(frame[1]) not in self.workers:
            self.error(ranks, line)
            return
        rank = int(frame[1])
        if label:
            self._rank_of_task[int(label[1])] = rank
        self._parts.setdefault(rank, []).append(frame[3])
        if frame[2] == "+":
            return
        whole = "".join(self._parts.pop(rank))
        try:
            message = json.loads(whole)
        except ValueError:
            self.error((rank,), f"garbled: {whole[:200]}")
            return
        with self.changed:
            self._take(self.workers[rank], message)
            self.changed.notify_all()

    def _take(self, worker: Worker, message: Message) -> None:
        worker.heard_at = time.monotonic()
        if "beat" in message:
            worker.step, worker.phase = message["step"], message["phase"]
            if message["count"] != worker.count:
                worker.count, worker.moved_at = message["count"], worker.heard_at
        elif "hello" in message:
            worker.pid, worker.job, worker.hello_at = message["pid"], message["job"], worker.heard_at
        elif "ready" in message:
            worker.torch = message.get("torch", "") if message["ready"] else None
            worker.failed_start = "" if message["ready"] else f"{message['type']}: {message['error']}"
        else:
            worker.answers[message["id"]] = message
            worker.moved_at = worker.heard_at

    def error(self, ranks: tuple[int, ...], line: str) -> None:
        """A line of stderr: into the log of its rank, or of all ranks where srun does not say whose it is."""
        label = _LABEL.match(line)
        if label and int(label[1]) in self._rank_of_task:
            ranks, line = (self._rank_of_task[int(label[1])],), line[label.end() :]
        ended = _SRUN_END.match(line)
        with self.changed:
            if ended:
                ranks = tuple(self._rank_of(task, ended[1]) for task in _numbers(ended[2])) or ranks
                for rank in ranks:
                    self._end(rank, None, ended[3])
            for rank in ranks:
                self._log(rank, line)
            self.changed.notify_all()

    def _rank_of(self, task: int, node: str) -> int:
        """The rank that said which task it is; one that never said a word is the next of that node. -1: nobody."""
        if task not in self._rank_of_task:
            known = {*self._rank_of_task.values()}
            silent = (w.rank for w in self.workers.values() if w.node == node and w.rank not in known and not w.ended)
            self._rank_of_task[task] = next(silent, -1)
        return self._rank_of_task[task]

    def end(self, ranks: tuple[int, ...], status: int | None) -> None:
        """The program of these ranks is gone (or srun is)."""
        with self.changed:
            for rank in ranks:
                self._end(rank, status, "")
            self.changed.notify_all()

    def _end(self, rank: int, status: int | None, ending: str) -> None:
        worker = self.workers.get(rank)
        if worker and not worker.ended:
            worker.ended, worker.status, worker.ending = True, status, ending

    def _log(self, rank: int, line: str) -> None:
        worker = self.workers.get(rank)
        if worker is None:
            return
        worker.last_lines.append(line)
        if rank not in self._logs:
            worker.log.parent.mkdir(parents=True, exist_ok=True)
            self._logs[rank] = worker.log.open("a", encoding="utf-8")
        self._logs[rank].write(line + "\n")
        self._logs[rank].flush()

    def close(self) -> None:
        with self.changed:
            for log in self._logs.values():
                log.close()
            self._logs.clear()


def _numbers(text: str) -> list[int]:
    """Slurm's "0-2,5" as numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


class Channel:
    """A pipe to one rank (ssh) or to many (srun), with a thread that reads each of its two outputs."""

    def __init__(self, pipe: Pipe, ranks: tuple[int, ...], board: Board) -> None:
        self.pipe, self.ranks, self._board = pipe, ranks, board
        self._threads = [
            threading.Thread(target=self._read, args=(reader,), daemon=True, name=f"rank-{ranks[0]}")
            for reader in (self._output, self._errors)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """One command; a closed pipe is noticed by its reader, not here."""
        try:
            self.pipe.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
        except Exception as error:  # any way a pipe can break: the reader thread will tell how the program ended
            self._board.error(self.ranks, f"klaster: cannot send: {error}")

    def join(self, timeout_s: float) -> None:
        for thread in self._threads:
            thread.join(timeout_s)

    def _read(self, reader: Callable[[], None]) -> None:
        try:
            reader()
        except ValueError as error:  # the log was closed while a last line arrived
            if "closed file" not in str(error):
                raise

    def _output(self) -> None:
        for line in self.pipe.lines():
            self._board.output(self.ranks, line)
        self._board.end(self.ranks, self.pipe.status())

    def _errors(self) -> None:
        for line in self.pipe.error_lines():
            self._board.error(self.ranks, line)
