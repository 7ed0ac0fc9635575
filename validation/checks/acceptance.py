"""Trainings as acceptance: every way that large models are trained must give the losses of one process."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from inventory.model import Cluster, Node
from validation.launch_ranks import Message, Worker
from validation.launcher import Emit, Fleet
from validation.model import AcceptanceRecord, Level
from validation.remote import Remote, RemoteError

SEED = 1
STEPS = {"quick": 0, "standard": 8, "burn-in": 40}
"""None at level quick: a dozen trainings take half a minute on two cores."""
ROUNDING, REDUCED_PRECISION = 1e-3, 5e-2
"""Sums in another order differ by 1e-7 to 1e-4; bfloat16 keeps eight bits of a number."""
RANKS_AT_MOST = 8
"""Enough to cut everything into pieces, and the reference stays short: one process does the work of all."""
TOGETHER = ("plain", "activation-checkpointing", "mixed-precision", "gradient-accumulation", "vision", "fsdp")
IN_PAIRS = ("tensor-parallel", "pipeline")
GROUP_TIMEOUT_S, RECIPE_TIMEOUT_S, RESTART_TIMEOUT_S = 30.0, 90.0, 120.0
ALONE = "one rank has nobody to share the work with"


def run_acceptance(fleet: Fleet, level: Level, emit: Emit, folder: str, why_not: str) -> None:
    """Emit an AcceptanceRecord a way of training. `folder`: shared by all nodes; empty: none, for `why_not`."""
    if not STEPS[level]:
        return
    stage = _Stage(fleet, STEPS[level], emit, folder)
    for name in TOGETHER:
        stage.recipe(name, RANKS_AT_MOST)
    for name in IN_PAIRS:
        stage.recipe(name, 2)
    if folder:
        stage.resumed()
        stage.restarted()
    else:
        names = tuple(node.name for node in fleet.compute_nodes)
        emit(_record("checkpoint-resume", names, error="", skipped=why_not))
        emit(_record("restart", names, error="", skipped=why_not))


@contextmanager
def shared_folder(
    cluster: Cluster, remotes: Mapping[str, Remote], node: Node, run_id: str
) -> Iterator[tuple[str, str]]:
    """A folder on the first declared storage, gone at the end; without one, empty and the reason."""
    if not cluster.storage or node.name not in remotes:
        yield "", "the inventory declares no shared storage"
        return
    remote, folder = remotes[node.name], f"{cluster.storage[0].path}/.klaster-{run_id}"
    try:
        made = remote.run(f"mkdir -m 700 -- {shlex.quote(folder)}", timeout_s=20)
    except RemoteError as error:
        yield "", str(error)
        return
    if not made.ok:
        yield "", f"{remote.user} cannot write there: {made.stderr.strip()[-120:]}"
        return
    try:
        yield folder, ""
    finally:
        try:
            remote.run(f"rm -rf -- {shlex.quote(folder)}", timeout_s=30)
        except RemoteError as error:
            del error  # the node or the storage is gone: that is what the run says anyway


class _Stage:
    """One recipe after the other on what is left of the fleet; what breaks is recorded and the next is tried."""

    def __init__(self, fleet: Fleet, steps: int, emit: Emit, folder: str) -> None:
        self._fleet, self._steps, self._emit, self._folder = fleet, steps, emit, folder

    def recipe(self, name: str, ranks_at_most: int) -> AcceptanceRecord:
        tolerance = REDUCED_PRECISION if name == "mixed-precision" else ROUNDING
        record = self._fleet.persist("training", lambda: self._attempt(name, ranks_at_most, tolerance))
        self._emit(record)
        return record

    def _attempt(self, name: str, ranks_at_most: int, tolerance: float, shards: int = 0) -> AcceptanceRecord:
        workers = self._fleet.ranks_of(self._fleet.compute_nodes)[:ranks_at_most]
        if len(workers) < 2:
            return _record(name, _names(workers), error="", skipped=ALONE)
        answers = self._ask(workers, {"op": "acceptance", "recipe": name, "shards": shards or len(workers)})
        return _joined(name, workers, answers, tolerance)

    def _ask(self, workers: Sequence[Worker], command: Message) -> dict[int, Message]:
        more: Message = {
            "steps": self._steps, "seed": SEED, "folder": self._folder, "timeout_s": GROUP_TIMEOUT_S,
            "group": self._fleet.new_group("acceptance"), "members": [worker.peer() for worker in workers],
        }  # fmt: skip
        whole = {**more, **command}
        timeout_s = RECIPE_TIMEOUT_S + 2.0 * self._steps * len(workers)
        return self._fleet.ask("training", {worker.rank: whole for worker in workers}, timeout_s=timeout_s)

    def resumed(self) -> None:
        """Saved by all ranks, resumed by one less (or by one): together the curve of a training never stopped."""

        def attempt() -> AcceptanceRecord:
            workers = self._fleet.ranks_of(self._fleet.compute_nodes)[:RANKS_AT_MOST]
            if len(workers) < 2:
                return _record("checkpoint-resume", _names(workers), error="", skipped=ALONE)
            saved = self._attempt("save", len(workers), ROUNDING)
            fewer = max(1, len(workers) - 1)
            after = self._attempt_resume(fewer, len(workers)) if not saved.error else saved
            return saved.model_copy(
                update={
                    "name": "checkpoint-resume",
                    "losses": (*saved.losses, *after.losses) if not after.error else (),
                    "reference": (*saved.reference, *after.reference),
                    "seconds": saved.seconds + after.seconds,
                    "detail": f"saved by {len(workers)} ranks, resumed by {fewer}",
                    "error": after.error,
                }
            )

        self._emit(self._fleet.persist("training", attempt))

    def _attempt_resume(self, ranks: int, shards: int) -> AcceptanceRecord:
        workers = self._fleet.ranks_of(self._fleet.compute_nodes)[:ranks]
        answers = self._ask(workers, {"op": "acceptance", "recipe": "resume", "shards": shards})
        return _joined("resume", workers, answers, ROUNDING)

    def restarted(self) -> None:
        """A rank is killed in the middle: it is reported, and the elastic agents finish the training."""
        plain = self.plain_losses

        def attempt() -> AcceptanceRecord:
            leads = [self._fleet.lead(node.name) for node in self._fleet.compute_nodes][:2]
            if len(leads) < 2:
                return _record("restart", _names(leads), error="", skipped=ALONE)
            command: Message = {
                "op": "restart", "die_step": self._steps // 2 + 1,
                "timeout_s": RESTART_TIMEOUT_S,
            }  # fmt: skip
            return _restart_record(leads, self._ask(leads, command), plain(2))

        self._emit(self._fleet.persist("training", attempt))

    def plain_losses(self, ranks: int) -> Sequence[float]:
        """What a training of so many ranks gets that nothing happens to."""
        return self._attempt("plain", ranks, ROUNDING).reference


def _names(workers: Sequence[Worker]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(worker.node for worker in workers))


def _record(
    name: str, nodes: tuple[str, ...], *, losses: Sequence[float] = (), reference: Sequence[float] = (),
    tolerance: float = ROUNDING, seconds: float = 0.0, error: str, skipped: str = "", detail: str = "",
) -> AcceptanceRecord:  # fmt: skip
    return AcceptanceRecord(
        name=name, nodes=nodes, losses=tuple(losses), reference=tuple(reference), tolerance=tolerance,
        seconds=seconds, error=error, skipped=skipped, detail=detail,
    )  # fmt: skip


def _joined(name: str, workers: Sequence[Worker], answers: Mapping[int, Message], tolerance: float) -> AcceptanceRecord:
    """What the first rank found; the first error that is not about communication speaks for all."""
    if error := _error(workers, answers):
        return _record(name, _names(workers), tolerance=tolerance, error=error)
    first = answers[workers[0].rank]
    return _record(
        name, _names(workers), losses=first["losses"], reference=first["reference"], tolerance=tolerance,
        seconds=first["seconds"], error="", detail=f"{len(workers)} ranks",
    )  # fmt: skip


def _error(workers: Sequence[Worker], answers: Mapping[int, Message]) -> str:
    missing = [worker.node for worker in workers if worker.rank not in answers]
    if missing:
        return f"no answer from {', '.join(missing)} before the deadline"
    errors = [f"{w.node}: {answers[w.rank]['error']}" for w in workers if answers[w.rank].get("error")]
    own = [text for text in errors if not any(word in text.lower() for word in ("gloo", "nccl", "connect"))]
    return (own or errors or [""])[0]


def _restart_record(
    workers: Sequence[Worker], answers: Mapping[int, Message], reference: Sequence[float]
) -> AcceptanceRecord:
    names = _names(workers)
    if error := _error(workers, answers):
        return _record("restart", names, error=error)
    result: Message = next((answers[w.rank]["result"] for w in workers if answers[w.rank]["result"]), {})
    reported = next((answers[w.rank]["reported"] for w in workers if answers[w.rank]["reported"]), "")
    if not result or not result["resumed_at"] or not reported:
        return _record("restart", names, error="the rank that was killed was not reported, or nothing was restarted")
    detail = f"{names[-1]}'s rank killed and reported ({reported}), resumed at step {result['resumed_at'] + 1}"
    return _record("restart", names, losses=result["losses"], reference=reference, error="", detail=detail)
