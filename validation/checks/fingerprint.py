"""The same deterministic work on every rank at once, each by itself: digests for the vote on silent errors."""

from __future__ import annotations

from validation.launch_ranks import Message, Worker
from validation.launcher import Emit, Fleet
from validation.model import FingerprintRecord, Level

SEED = 1
EPISODES = {"quick": 4, "standard": 50, "burn-in": 500}
"""Of five steps, twice each: 40, 500 and 5,000 steps. An error once in 1,000 steps is then seen with 4, 39 and 99 %."""
START_TIMEOUT_S, EPISODE_TIMEOUT_S = 30.0, 4.0


def run_fingerprints(fleet: Fleet, level: Level, emit: Emit) -> None:
    """Emit a FingerprintRecord a rank. All ranks work at the same time: bits don't depend on who else is busy."""
    for record in fleet.persist("training", lambda: _attempt(fleet, level)):
        emit(record)


def _attempt(fleet: Fleet, level: Level) -> list[FingerprintRecord]:
    workers = fleet.ranks_of(fleet.compute_nodes)
    command: Message = {"op": "fingerprint", "seed": SEED, "episodes": EPISODES[level]}
    timeout_s = START_TIMEOUT_S + EPISODE_TIMEOUT_S * EPISODES[level]
    answers = fleet.ask("training", {worker.rank: command for worker in workers}, timeout_s=timeout_s)
    return [_record(worker, answers.get(worker.rank)) for worker in workers]


def _record(worker: Worker, answer: Message | None) -> FingerprintRecord:
    """A rank without digests is a record too: it was not tested."""
    if answer is None or not answer["ok"]:
        error = f"{answer['type']}: {answer['error']}" if answer else "no answer before the deadline"
        answer = {"device": "", "steps": 0, "kinds": (), "settings": (), "software": {}, "digests": (), "error": error}
    return FingerprintRecord(
        node=worker.node, rank=worker.rank, local_rank=worker.local_rank, device=answer["device"], seed=SEED,
        steps=answer["steps"], kinds=answer["kinds"], settings=answer["settings"], software=answer["software"],
        digests=answer["digests"], error=answer.get("error", ""),
    )  # fmt: skip
