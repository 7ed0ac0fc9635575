"""One generation of workers: start them, ask them, watch them, end them; who failed is raised, never guessed at."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from validation.launch_ranks import Board, Channel, Message, Worker
from validation.launch_ssh import Launcher, fleet_document
from validation.launch_watch import (
    LOOK_S,
    STUCK_S,
    Finding,
    of_end,
    of_errors,
    of_silence,
    of_standstill,
    of_start,
)

START_S = 120.0
"""Importing torch from a cold disk takes a minute on a small machine."""
SLURM_SPREAD_S = 30.0
"""Slurm starts all tasks of a step within seconds; so long after the first hello, one without a word is not coming."""
OPEN_S = 20.0
GRACE_S = 1.0
"""After one rank was seen to end, for others that end for their own reasons (memory, a dead switch)."""
LOOK_AGAIN_S = 2.5
AFTER_ERROR_S = LOOK_S + 2 * LOOK_AGAIN_S
OWN_STALL_S = 9.0
END_S = 1.5
POLL_S = 0.25


class FleetError(Exception):
    """The workers could not do what a stage needs, and no single rank is to blame; the text is one sentence."""


class RanksFailed(Exception):
    """Ranks are to blame; raised inside the launcher only."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(", ".join(f"rank {finding.rank}: {finding.what}" for finding in findings))
        self.findings = tuple(findings)


class Session:
    """Workers that were started together and end together."""

    def __init__(self, launcher: Launcher, workers: Sequence[Worker]) -> None:
        self._launcher = launcher
        self._board = Board(workers)
        self._channels: list[Channel] = []
        self._looked: dict[int, float] = {}
        self._numbers = 0
        self._loop_at = time.monotonic()

    @property
    def workers(self) -> dict[int, Worker]:
        return self._board.workers

    # --- start and end -------------------------------------------------------------------------------------------

    def start(self, *, torch: bool) -> None:
        """Start all and wait until they are ready; RanksFailed, FleetError."""
        workers = list(self.workers.values())
        unprepared = self._launcher.prepare(workers, fleet_document(workers, torch=torch))
        if unprepared:
            raise RanksFailed(
                [Finding(w.rank, "no-start", unprepared[w.node]) for w in workers if w.node in unprepared]
            )
        self._channels = [Channel(pipe, ranks, self._board) for pipe, ranks in self._launcher.start(workers)]
        self._wait_ready()
        if torch:
            answers = self.ask({worker.rank: {"op": "open"} for worker in workers}, timeout_s=OPEN_S)
            for rank, answer in answers.items():
                self.workers[rank].port = answer.get("port", 0)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_S
        while late := [worker for worker in self.workers.values() if worker.torch is None]:
            if any(worker.ended or worker.failed_start for worker in late):
                time.sleep(GRACE_S)
                failed = [worker for worker in late if worker.ended or worker.failed_start]
                self._end_of_all(failed)
                raise RanksFailed([of_start(worker, self._launcher.look(worker)) for worker in failed])
            if silent := self._not_coming(late, time.monotonic()):
                slow = f"Slurm started others' ranks, and within {SLURM_SPREAD_S:g} s not this one"
                raise RanksFailed([Finding(w.rank, "slurm-step", slow) for w in silent])
            if time.monotonic() > deadline:
                slow = f"not ready within {START_S:g} s"
                raise RanksFailed([Finding(w.rank, "no-start", slow, None, self._launcher.look(w).state) for w in late])
            # importing torch may hold the interpreter for long: only a stopped, dead or unreachable one is told
            if findings := [found for worker in late if worker.pid and (found := self._silent(worker, patient=True))]:
                raise RanksFailed(findings)
            self._pause(POLL_S)

    def _not_coming(self, late: Sequence[Worker], now: float) -> list[Worker]:
        """Those of one srun that were not started, long after others of it were."""
        silent: list[Worker] = []
        for channel in self._channels:
            first = min((self.workers[rank].hello_at for rank in channel.ranks if self.workers[rank].pid), default=now)
            if now - first > SLURM_SPREAD_S:
                silent += [worker for worker in late if worker.rank in channel.ranks and not worker.pid]
        return silent

    def stop(self) -> None:
        """End all workers and remove what was put on their nodes; never raises for a node that is gone."""
        workers = list(self.workers.values())
        for channel in self._channels:
            channel.pipe.end_input()
        end = time.monotonic() + END_S
        while time.monotonic() < end and not all(worker.ended for worker in workers):
            self._pause(0.05)
        self._launcher.clean(workers)
        for channel in self._channels:
            channel.pipe.close()
        for channel in self._channels:
            channel.join(0.5)
        self._board.close()

    def ping(self) -> None:
        """Tell the workers that they are still wanted."""
        for channel in self._channels:
            channel.send({"to": None, "op": "ping"})

    # --- ask and watch -------------------------------------------------------------------------------------------

    def ask(self, commands: Mapping[int, Message], *, timeout_s: float, together: bool = False) -> dict[int, Message]:
        """Give each rank its command, wait for all answers; those missing at the deadline are left out.

        With `together` the ranks need one another: one error ends it, and a standstill is looked into.
        """
        number = self._send(commands)
        deadline = time.monotonic() + timeout_s
        while True:
            answers = self._answers(commands, number)
            if len(answers) == len(commands) or time.monotonic() > deadline:
                if together:
                    self._fail_on_errors(answers)
                return answers
            if together and any(not answer["ok"] for answer in answers.values()):
                return self._after_error(commands, number)
            self._forgive_own_stall()
            self._watch()
            if together:
                self._look_for_standstill(commands, answers)
            self._pause(POLL_S)

    def _send(self, commands: Mapping[int, Message]) -> int:
        self._numbers += 1
        for rank, command in commands.items():
            self.workers[rank].moved_at = time.monotonic()
            channel = next((channel for channel in self._channels if rank in channel.ranks), None)
            if channel:
                channel.send({**command, "id": self._numbers, "to": rank})
        return self._numbers

    def _answers(self, commands: Mapping[int, Message], number: int) -> dict[int, Message]:
        found = {rank: self.workers[rank].answers.get(number) for rank in commands}
        return {rank: answer for rank, answer in found.items() if answer is not None}

    def _after_error(self, commands: Mapping[int, Message], number: int) -> dict[int, Message]:
        """One rank reported an error: wait a little for what the others say or do, since it may be a victim."""
        end = time.monotonic() + AFTER_ERROR_S
        while len(answers := self._answers(commands, number)) < len(commands) and time.monotonic() < end:
            self._watch()
            self._pause(POLL_S)
        self._pause(POLL_S)
        self._watch()
        self._fail_on_errors(answers)
        return answers

    def _fail_on_errors(self, answers: Mapping[int, Message]) -> None:
        errors = {rank: (one["type"], one["error"]) for rank, one in answers.items() if not one["ok"]}
        if not errors:
            return
        if findings := of_errors(errors):
            raise RanksFailed(findings)
        names = ", ".join(sorted({self.workers[rank].node for rank in errors}))
        kind, text = next(iter(errors.values()))
        raise FleetError(f"communication failed on {names} although no rank stopped: {kind}: {text}")

    def _watch(self) -> None:
        """RanksFailed as soon as a rank ended or hangs, whether or not it was asked anything."""
        findings = [found for worker in self.workers.values() if (found := self._examine(worker))]
        if not findings:
            return
        time.sleep(GRACE_S)
        known = {finding.rank for finding in findings}
        late = [worker for worker in self.workers.values() if worker.ended and worker.rank not in known]
        ended = [worker for worker in self.workers.values() if worker.ended]
        self._end_of_all(ended)
        raise RanksFailed([*findings, *(of_end(worker, self._launcher.look(worker)) for worker in late)])

    def _examine(self, worker: Worker) -> Finding | None:
        return of_end(worker, self._launcher.look(worker)) if worker.ended else self._silent(worker)

    def _silent(self, worker: Worker, *, patient: bool = False) -> Finding | None:
        now = time.monotonic()
        if now - worker.heard_at < LOOK_S or now - self._looked.get(worker.rank, 0.0) < LOOK_AGAIN_S:
            return None
        look = self._launcher.look(worker)
        self._looked[worker.rank] = time.monotonic()
        silent_s = time.monotonic() - worker.heard_at
        found = of_silence(worker, look, silent_s, patient=patient) if silent_s > LOOK_S else None
        if found and found.what == "hang":
            self._launcher.poke(worker)  # its log then shows the Python lines that it stands at
        return found

    def _end_of_all(self, ended: Sequence[Worker]) -> None:
        """One srun for many ranks: when it ends or is cancelled, that is no rank's fault."""
        together = [worker for worker in ended if self._launcher.shares_a_program(worker)]
        lines = [line for worker in together for line in worker.last_lines]
        cancelled = next((line for line in lines if "CANCELLED" in line), "")
        wordless = together and not any(worker.ending or worker.failed_start for worker in together)
        if not (cancelled or wordless):
            return
        gone = [worker for worker in together if worker.pid and not self._launcher.look(worker).reachable]
        if gone:
            raise RanksFailed([of_end(worker, self._launcher.look(worker)) for worker in gone])
        last = cancelled or next((line for line in reversed(lines) if line.strip()), "no message")
        raise FleetError(f"the Slurm job ended: {last.strip()[:300]}")

    def _look_for_standstill(self, commands: Mapping[int, Message], answers: Mapping[int, Message]) -> None:
        asked = [self.workers[rank] for rank in commands]
        now = time.monotonic()
        if any(now - worker.moved_at < STUCK_S for worker in asked):
            return
        pending = [worker for worker in asked if worker.rank not in answers]
        findings = of_standstill(pending, [worker for worker in asked if worker.rank in answers])
        for worker in pending:
            self._launcher.poke(worker)
        time.sleep(GRACE_S)
        if findings:
            raise RanksFailed(findings)
        raise FleetError(f"nothing moved for {STUCK_S:g} s: all ranks wait for one another ({pending[0].where})")

    def _forgive_own_stall(self) -> None:
        """If this program itself was held up (a laptop that slept), nobody's silence counts."""
        now = time.monotonic()
        if now - self._loop_at > OWN_STALL_S:
            for worker in self.workers.values():
                worker.heard_at = worker.moved_at = now
        self._loop_at = now

    def _pause(self, seconds: float) -> None:
        """Sleep, but not longer than until a rank says something."""
        with self._board.changed:
            self._board.changed.wait(seconds)
