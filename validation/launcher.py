"""The fleet of a run: a worker a rank on every node; nodes whose rank fails are recorded, taken out, and it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Literal, Self, TypeVar

from inventory.model import Cluster, Node
from inventory.networks import link_for
from validation.launch_ranks import Message, Worker
from validation.launch_session import FleetError, RanksFailed, Session
from validation.launch_slurm import SlurmLauncher
from validation.launch_ssh import Launcher, SshLauncher
from validation.launch_watch import Finding
from validation.model import CellRecord, FailureRecord, Record, Stage
from validation.remote import Remote

__all__ = ["Emit", "Fleet", "FleetError", "LauncherName", "RanksLost", "start_fleet"]

LauncherName = Literal["ssh", "slurm"]
Emit = Callable[[Record], None]
T = TypeVar("T")

PING_S = 15.0
SHOWN_LINES = 8


class RanksLost(FleetError):
    """Ranks failed; they were emitted and their nodes taken out. What was going on can be tried without them."""

    def __init__(self, nodes: Sequence[str]) -> None:
        super().__init__(f"lost the ranks of {', '.join(nodes)}")
        self.nodes = tuple(nodes)


class Fleet:
    """The workers of a run; a context manager whose end leaves no process and no file on any node."""

    def __init__(
        self, launcher: Launcher, nodes: Sequence[Node], *, logs: Path, emit: Emit,
        clock: Callable[[], float] = time.monotonic, run_started: float = 0.0,
        declared_gbps: Mapping[str, float] | None = None, addresses: Mapping[str, str] | None = None,
        torch: bool = True,
    ) -> None:  # fmt: skip
        self.nodes: tuple[Node, ...] = tuple(nodes)
        """The nodes that still take part; a node whose rank failed is taken out."""
        self.lost: dict[str, FailureRecord] = {}
        """Nodes that were taken out, with the failure that was emitted first for each."""
        self.declared_gbps = dict(declared_gbps or {})
        self._addresses = dict(addresses or {})
        """Where a node's ranks meet, if not at its first address: in the network that carries compute."""
        self.slowest_gbps: float | None = None
        """The slowest pair that was measured: by it the large collectives are sized."""
        self.rounds = 0
        """Rounds begun so far, which is the number of the next one."""
        self.generation = 0
        """How often workers were started; part of every group's name."""
        self._launcher, self._logs, self._emit, self._torch = launcher, logs, emit, torch
        self._clock, self._run_started = clock, run_started
        self._session: Session | None = None
        self._groups = 0
        self._closed = threading.Event()
        threading.Thread(target=self._keep_alive, daemon=True, name="fleet-ping").start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- questions of the stages ---------------------------------------------------------------------------------

    @property
    def compute_nodes(self) -> tuple[Node, ...]:
        """Nodes that train; the head only is a partner in pairs, unless it computes too."""
        return tuple(node for node in self.nodes if "compute" in node.roles)

    def ranks_of(self, nodes: Iterable[Node]) -> list[Worker]:
        names = {node.name for node in nodes}
        workers = self._session.workers if self._session else {}
        return [workers[rank] for rank in sorted(workers) if workers[rank].node in names]

    def lead(self, node: str) -> Worker:
        """The rank that speaks for its node in pairs."""
        workers = self._session.workers if self._session else {}
        return next(worker for worker in workers.values() if worker.node == node and worker.local_rank == 0)

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

    # --- what the stages do --------------------------------------------------------------------------------------

    def persist(self, stage: Stage, attempt: Callable[[], T]) -> T:
        """Call `attempt` with all workers up, again after each loss of ranks; FleetError when no node is left."""
        while True:
            self.up(stage)
            try:
                return attempt()
            except RanksLost:
                continue

    def up(self, stage: Stage) -> None:
        """See to it that every remaining node has its ranks; FleetError when none is left."""
        while self._session is None:
            if not self.nodes:
                raise FleetError("no worker could be started on any node")
            self.generation += 1
            self._session = Session(self._launcher, self._new_workers())
            try:
                self._guard(stage, lambda session: session.start(torch=self._torch))
            except RanksLost:
                continue

    def ask(
        self, stage: Stage, commands: Mapping[int, Message], *, timeout_s: float, together: bool = False
    ) -> dict[int, Message]:
        """Give each rank its command and wait for all answers; those missing at the deadline are left out.

        A rank that ends or hangs meanwhile is emitted, its node taken out, everything stopped: RanksLost.
        With `together` the ranks need one another: an error of one is RanksLost or FleetError.
        """
        return self._guard(stage, lambda session: session.ask(commands, timeout_s=timeout_s, together=together))

    def stop(self) -> None:
        """End all workers; up() starts them anew."""
        session, self._session = self._session, None
        if session:
            session.stop()

    def close(self) -> None:
        """End every worker and remove what was put on the nodes; safe to call twice."""
        self._closed.set()
        self.stop()

    # --- inside --------------------------------------------------------------------------------------------------

    def _new_workers(self) -> list[Worker]:
        places = [(node, local) for node in self.nodes for local in range(max(1, node.gpu_count))]
        return [
            Worker(
                rank,
                node.name,
                self._addresses.get(node.name, node.address),
                local,
                self._logs / f"{node.name}-rank{rank}.log",
            )
            for rank, (node, local) in enumerate(places)
        ]

    def _guard(self, stage: Stage, action: Callable[[Session], T]) -> T:
        """Do it; failed ranks become records and RanksLost; after any FleetError nothing is left running."""
        assert self._session is not None, "up() comes first"
        session = self._session
        try:
            return action(session)
        except RanksFailed as failed:
            names = self._lose(session, failed.findings, stage)
        except FleetError:
            self.stop()
            raise
        self.stop()
        raise RanksLost(names)

    def _lose(self, session: Session, findings: Sequence[Finding], stage: Stage) -> list[str]:
        """Emit the failures and take their nodes out; one where only Slurm could start nothing goes on over ssh."""
        places = {session.workers[finding.rank].node: finding.what for finding in findings}
        failed = {node for node, what in places.items() if what != "slurm-step"}
        for node in places.keys() - failed:
            self._launcher.take_out_of_slurm(node)
        waiting = tuple(node.name for node in self.nodes if node.name not in failed)
        for finding in findings:
            record = self._failure(session.workers[finding.rank], finding, stage, waiting)
            if record.node in failed:
                self.lost.setdefault(record.node, record)
            self._emit(record)
        self.nodes = tuple(node for node in self.nodes if node.name not in failed)
        return sorted(places)

    def _failure(self, worker: Worker, finding: Finding, stage: Stage, waiting: tuple[str, ...]) -> FailureRecord:
        return FailureRecord(
            stage=stage, node=worker.node, rank=worker.rank, what=finding.what, detail=finding.detail,
            step=worker.where, silent_s=finding.silent_s, process_state=finding.process_state, waiting=waiting,
            memory_kill=finding.memory_kill, log=f"{self._logs.name}/{worker.log.name}",
            last_lines=tuple(list(worker.last_lines)[-SHOWN_LINES:]),
        )  # fmt: skip

    def _keep_alive(self) -> None:
        """Workers go when nobody wants them any more: tell them that we do."""
        while not self._closed.wait(PING_S):
            if session := self._session:
                session.ping()


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
    links = {node.name: link_for(cluster, node, "compute") for node in nodes}
    fleet = Fleet(
        kind(cluster, remotes, run_id),
        [node for node in nodes if node.name in remotes],
        logs=logs,
        emit=emit,
        clock=clock,
        run_started=clock() if run_started is None else run_started,
        declared_gbps={name: link.speed_gbps or 1.0 for name, link in links.items()},
        addresses={name: link.address for name, link in links.items() if link.address},
    )
    try:
        fleet.up(stage)
    except BaseException:
        fleet.close()
        raise
    return fleet
