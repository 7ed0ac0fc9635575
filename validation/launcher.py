"""Start one long-lived worker a rank, talk to all of them, notice who stops, and leave nothing behind."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Literal, Self

from inventory.model import Cluster, Node
from validation.launch_ranks import Board, Channel, Message, Worker
from validation.launch_slurm import SlurmLauncher
from validation.launch_ssh import Launcher, SshLauncher, fleet_document
from validation.launch_watch import LOOK_S, STUCK_S, Finding, Look, of_end, of_errors, of_silence, of_standstill
from validation.model import CellRecord, FailureRecord, Record, Stage
from validation.remote import Remote

LauncherName = Literal["ssh", "slurm"]
Emit = Callable[[Record], None]

START_S = 120.0
"""Importing torch from a cold disk takes a minute on a small machine."""
PING_S = 15.0
GRACE_S = 1.0
"""After one rank was seen to end, for others that end for their own reasons (memory, a dead switch)."""
LOOK_AGAIN_S = 2.5
OWN_STALL_S = 4.0


class FleetError(Exception):
    """The workers could not do what a stage needs, and no single rank is to blame; the text is one sentence."""


class RanksLost(FleetError):
    """Ranks failed; they were emitted and their nodes taken out. What was going on can be tried without them."""

    def __init__(self, nodes: Sequence[str]) -> None:
        super().__init__(f"lost the ranks of {', '.join(nodes)}")
        self.nodes = tuple(nodes)


class Fleet:
    """The workers of a run; a context manager whose end leaves no process and no file on any node."""

    def __init__(
        self, launcher: Launcher, nodes: Sequence[Node], *, logs: Path, emit: Emit,
        clock: Callable[[], float], run_started: float, torch: bool = True,
    ) -> None:  # fmt: skip
        self.nodes: tuple[Node, ...] = tuple(nodes)
        """The nodes that still take part; a node whose rank failed is taken out."""
        self.lost: dict[str, FailureRecord] = {}
        """Nodes that were taken out, with the failure that was emitted for each."""
        self.rounds = 0
        self.generation = 0
        self.declared_gbps: dict[str, float] = {}
        self.slowest_gbps: float | None = None
        """The slowest pair that was measured: by it the large collectives are sized."""
        self._launcher, self._logs, self._emit, self._torch = launcher, logs, emit, torch
        self._clock, self._run_started = clock, run_started
        self._board = Board([])
        self._channels: list[Channel] = []
        self._looked: dict[int, float] = {}
        self._next_id = self._groups = 0
        self._running = False
        self._stop = threading.Event()
        threading.Thread(target=self._keep_alive, daemon=True, name="fleet-ping").start()

    # --- questions of the stages ---------------------------------------------------------------------------------

    @property
    def workers(self) -> list[Worker]:
        return [self._board.workers[rank] for rank in sorted(self._board.workers)]

    @property
    def compute_nodes(self) -> tuple[Node, ...]:
        """Nodes that train; the head only is a partner in pairs, unless it computes too."""
        return tuple(node for node in self.nodes if "compute" in node.roles)

    def ranks_of(self, nodes: Iterable[Node]) -> list[Worker]:
        names = {node.name for node in nodes}
        return [worker for worker in self.workers if worker.node in names]

    def lead(self, node: str) -> Worker:
        """The rank that speaks for its node in pairs."""
        return next(worker for worker in self.workers if worker.node == node and worker.local_rank == 0)

    def seconds(self) -> float:
        """Seconds since the run started: a record's `at_s`."""
        return round(self._clock() - self._run_started, 3)

    def next_round(self) -> int:
        self.rounds += 1
        return self.rounds - 1

    def new_group(self, what: str) -> str:
        """A name that no process group of this run had."""
        self._groups += 1
        return f"{what}/{self.generation}/{self._groups}"

    def note_speed(self, cell: CellRecord) -> None:
        """Remember the slowest measured pair."""
        if cell.repetitions_gbps:
            speed = median(cell.repetitions_gbps)
            self.slowest_gbps = min(self.slowest_gbps or speed, speed)

    # --- starting and ending -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def up(self, stage: Stage) -> None:
        """See to it that every remaining node has its ranks; FleetError when none is left."""
        while not self._running:
            if not self.nodes:
                raise FleetError("no worker could be started on any node")
            self.generation += 1
            self._start(stage)

    def _start(self, stage: Stage) -> None:
        places = [(node, local) for node in self.nodes for local in range(max(1, node.gpu_count))]
        workers = [
            Worker(rank, node.name, node.address, local, self._logs / f"{node.name}-rank{rank}.log")
            for rank, (node, local) in enumerate(places)
        ]
        self._board, self._channels, self._looked = Board(workers), [], {}
        self._running = True
        unprepared = self._launcher.prepare(workers, fleet_document(workers, torch=self._torch))
        if unprepared:
            found = [Finding(w.rank, "no-start", unprepared[w.node]) for w in workers if w.node in unprepared]
            self._lose(found, stage, raises=False)
            return
        pipes = self._launcher.start(workers)
        self._channels = [Channel(pipe, ranks, self._board) for pipe, ranks in pipes]
        try:
            self._wait_ready(stage)
            if self._torch:
                answers = self.ask(stage, {worker.rank: {"op": "open"} for worker in workers}, timeout_s=20)
                for rank, answer in answers.items():
                    self._board.workers[rank].port = answer.get("port", 0)
        except RanksLost:
            return  # up() goes round again without them

    def _wait_ready(self, stage: Stage) -> None:
        deadline = time.monotonic() + START_S
        while late := [worker for worker in self.workers if worker.torch is None]:
            failed = [worker for worker in late if worker.ended or worker.failed_start]
            if failed:
                time.sleep(GRACE_S)
                failed = [worker for worker in late if worker.ended or worker.failed_start]
                self._lose([self._no_start(worker) for worker in failed], stage)
            if time.monotonic() > deadline:
                slow = f"not ready within {START_S:g} s"
                self._lose([Finding(w.rank, "no-start", slow, None, self._look(w).state) for w in late], stage)
            self._wait(0.25)

    def _no_start(self, worker: Worker) -> Finding:
        found = of_end(worker, self._look(worker) if worker.pid else Look(reachable=True))
        last = next((line.strip() for line in reversed(worker.last_lines) if line.strip()), "")
        return Finding(worker.rank, "no-start", " – ".join(part for part in (found.detail, last[:300]) if part))

    def stop(self) -> None:
        """End all workers; up() starts them anew."""
        self._running = False
        workers = self.workers
        for channel in self._channels:
            channel.pipe.end_input()
        end = time.monotonic() + 1.5
        while time.monotonic() < end and not all(worker.ended for worker in workers):
            self._wait(0.05)
        self._launcher.clean(workers)
        for channel in self._channels:
            channel.pipe.close()
        for channel in self._channels:
            channel.join(0.5)
        self._board.close()
        self._channels = []

    def close(self) -> None:
        """End every worker and remove what was put on the nodes; safe to call twice."""
        self._stop.set()
        if self._running:
            self.stop()

    def _keep_alive(self) -> None:
        """Workers go when nobody wants them any more: tell them that we do."""
        while not self._stop.wait(PING_S):
            for channel in list(self._channels):
                channel.send({"to": None, "op": "ping"})

    # --- talking -------------------------------------------------------------------------------------------------

    def ask(
        self, stage: Stage, commands: Mapping[int, Message], *, timeout_s: float, together: bool = False
    ) -> dict[int, Message]:
        """Give each rank its command and wait for all answers; those missing at the deadline are left out.

        A rank that ends or hangs meanwhile is emitted, its node taken out, everything stopped: RanksLost.
        With `together` the ranks need one another: one error ends it, and a standstill is looked into.
        """
        self._next_id += 1
        number = self._next_id
        now = time.monotonic()
        for rank, command in commands.items():
            worker = self._board.workers[rank]
            worker.moved_at = now
            channel = next(channel for channel in self._channels if rank in channel.ranks)
            channel.send({**command, "id": number, "to": rank})
        deadline, seen = now + timeout_s, now
        while True:
            answers = {
                r: self._board.workers[r].answers[number] for r in commands if number in self._board.workers[r].answers
            }
            if len(answers) == len(commands) or time.monotonic() > deadline:
                return answers
            if together and any(not answer["ok"] for answer in answers.values()):
                return self._after_error(stage, commands, number)
            seen = self._forgive_own_stall(seen)
            pending = [self._board.workers[rank] for rank in commands if rank not in answers]
            done = [self._board.workers[rank] for rank in answers]
            self._watch(stage, pending, done if together else None)
            self._wait(0.25)

    def _after_error(self, stage: Stage, commands: Mapping[int, Message], number: int) -> dict[int, Message]:
        """One rank reported an error: wait a little for what the others say or do, since it may be a victim."""
        end = time.monotonic() + LOOK_S + 2 * LOOK_AGAIN_S
        while True:
            workers = [self._board.workers[rank] for rank in commands]
            self._watch(stage, workers, None)
            answers = {worker.rank: worker.answers[number] for worker in workers if number in worker.answers}
            if len(answers) == len(commands) or time.monotonic() > end:
                break
            self._wait(0.25)
        errors = {rank: (one["type"], one["error"]) for rank, one in answers.items() if not one["ok"]}
        if findings := of_errors(errors, len(commands)):
            self._lose(findings, stage)
        self.stop()
        names = ", ".join(sorted({self._board.workers[rank].node for rank in errors}))
        text = next(iter(errors.values()))
        raise FleetError(f"communication failed on {names} although no rank stopped: {text[0]}: {text[1]}")

    def _watch(self, stage: Stage, pending: Sequence[Worker], done: Sequence[Worker] | None) -> None:
        findings = [found for worker in self.workers if (found := self._examine(worker))]
        now = time.monotonic()
        still = done is not None and all(now - worker.moved_at > STUCK_S for worker in [*pending, *done])
        if not findings and still and pending:
            findings = of_standstill(pending, done or [])
            if not findings:
                self.stop()
                where = pending[0].where
                raise FleetError(f"nothing moved for {STUCK_S:g} s: all ranks wait for one another ({where})")
        if findings:
            time.sleep(GRACE_S)
            known = {finding.rank for finding in findings}
            late = [w for w in self.workers if w.ended and w.rank not in known]
            self._lose([*findings, *(found for w in late if (found := self._examine(w)))], stage)

    def _examine(self, worker: Worker) -> Finding | None:
        now = time.monotonic()
        if worker.ended:
            return of_end(worker, self._look(worker))
        silent_s = now - worker.heard_at
        if silent_s < LOOK_S or now - self._looked.get(worker.rank, 0.0) < LOOK_AGAIN_S:
            return None
        look = self._look(worker)
        self._looked[worker.rank] = time.monotonic()
        if time.monotonic() - worker.heard_at < LOOK_S:
            return None  # it spoke meanwhile
        return of_silence(worker, look, silent_s)

    def _look(self, worker: Worker) -> Look:
        return self._launcher.look(worker)

    def _forgive_own_stall(self, seen: float) -> float:
        """If this program itself was held up, nobody's silence counts."""
        now = time.monotonic()
        if now - seen > OWN_STALL_S + LOOK_S:
            for worker in self.workers:
                worker.heard_at = worker.moved_at = now
        return now

    def _wait(self, seconds: float) -> None:
        with self._board.changed:
            self._board.changed.wait(seconds)

    def _lose(self, findings: Sequence[Finding], stage: Stage, *, raises: bool = True) -> None:
        """Emit the failures, take their nodes out, stop the rest; raises RanksLost."""
        failed = {self._board.workers[finding.rank].node for finding in findings}
        waiting = tuple(node.name for node in self.nodes if node.name not in failed)
        for finding in findings:
            record = self._failure(finding, stage, waiting)
            self.lost.setdefault(record.node, record)
            self._emit(record)
        self.nodes = tuple(node for node in self.nodes if node.name not in failed)
        with contextlib.suppress(FleetError):
            self.stop()
        if raises:
            raise RanksLost(sorted(failed))

    def _failure(self, finding: Finding, stage: Stage, waiting: tuple[str, ...]) -> FailureRecord:
        worker = self._board.workers[finding.rank]
        return FailureRecord(
            stage=stage, node=worker.node, rank=worker.rank, what=finding.what, detail=finding.detail,
            step=worker.where, silent_s=finding.silent_s, process_state=finding.process_state, waiting=waiting,
            memory_kill=finding.memory_kill, log=f"{self._logs.name}/{worker.log.name}",
            last_lines=tuple(list(worker.last_lines)[-5:]),
        )  # fmt: skip


def start_fleet(
    cluster: Cluster,
    remotes: Mapping[str, Remote],
    nodes: Sequence[Node],
    *,
    launcher: LauncherName,
    run_id: str,
    logs: Path,
    emit: Emit,
    clock: Callable[[], float] = time.monotonic,
    run_started: float | None = None,
    stage: Stage = "pairs",
) -> Fleet:
    """Start a worker a rank on `nodes`; a rank that cannot start is emitted as a FailureRecord and left out.

    `clock` counts seconds, `run_started` is its value at the run's start: records' `at_s` are differences to it.
    With launcher "slurm" nodes without the role compute (the head as a partner) are still started over ssh.
    Raises FleetError when no worker could be started at all.
    """
    kind = SlurmLauncher if launcher == "slurm" else SshLauncher
    began = clock() if run_started is None else run_started
    connected = [node for node in nodes if node.name in remotes]
    fleet = Fleet(kind(cluster, remotes, run_id), connected, logs=logs, emit=emit, clock=clock, run_started=began)
    fleet.declared_gbps = {node.name: cluster.link(node).speed_gbps or 1.0 for node in nodes}
    try:
        fleet.up(stage)
    except BaseException:
        fleet.close()
        raise
    return fleet
