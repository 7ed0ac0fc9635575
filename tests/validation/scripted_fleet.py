"""A fleet whose ranks answer what a test says, so that a stage's own rules can be tried without processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from inventory.model import Node
from validation.launch_ranks import Message, Worker
from validation.launch_session import RanksFailed, Session
from validation.launch_watch import Finding
from validation.launcher import Fleet
from validation.model import Record

Answer = Callable[[Worker, Message], Message | Finding | None]
"""What a rank says to a command; None: nothing before the deadline; a Finding: it fails meanwhile."""


class ScriptedSession:
    """Answers at once."""

    def __init__(self, workers: list[Worker], answer: Answer) -> None:
        self.workers = {worker.rank: worker for worker in workers}
        self._answer = answer
        self.stopped = False

    def start(self, *, torch: bool) -> None:
        pass

    def ask(self, commands: Mapping[int, Message], **_limits: Any) -> dict[int, Message]:
        said = {rank: self._answer(self.workers[rank], command) for rank, command in commands.items()}
        if findings := [one for one in said.values() if isinstance(one, Finding)]:
            raise RanksFailed(findings)
        return {rank: {"ok": True, **one} for rank, one in said.items() if isinstance(one, dict)}

    def stop(self) -> None:
        self.stopped = True

    def ping(self) -> None:
        pass


class ScriptedFleet(Fleet):
    """A Fleet that starts ScriptedSessions; `asked` holds every command in order."""

    def __init__(self, answer: Answer, nodes: tuple[str, ...] = ("n1", "n2", "n3")) -> None:
        self.records: list[Record] = []
        self.asked: list[tuple[str, Message]] = []
        self._script = answer
        super().__init__(
            cast(Any, None),
            [Node(name=name, address=f"10.1.0.{number + 1}") for number, name in enumerate(nodes)],
            logs=Path("logs"),
            emit=self.records.append,
            declared_gbps=dict.fromkeys(nodes, 1.0),
        )

    def up(self, stage: Any) -> None:
        """As Fleet.up, with scripted sessions."""
        if self._session is None:
            self.generation += 1
            self._session = cast(Session, ScriptedSession(self._new_workers(), self._say))

    def _say(self, worker: Worker, command: Message) -> Message | Finding | None:
        self.asked.append((worker.node, command))
        return self._script(worker, command)
