"""How fast each node computes and moves memory, in turns of its own; at burn-in all nodes at once and for long, too."""

from __future__ import annotations

from collections.abc import Sequence

from validation.launch_ranks import Message, Worker
from validation.launcher import Emit, Fleet
from validation.model import Level, SpeedRecord

KINDS: dict[Level, tuple[str, ...]] = {
    "quick": ("product-fp32", "triad"),
    "standard": ("product-fp32", "product-bf16", "product-fp64", "copy", "triad"),
    "burn-in": ("product-fp32", "product-bf16", "product-fp64", "copy", "triad"),
}
SECONDS = {"quick": 0.3, "standard": 1.0, "burn-in": 2.0}
SUSTAINED_S = {"quick": 0.0, "standard": 0.0, "burn-in": 120.0}
"""A heat sink fills within a minute or two; the last quarter is compared with the first."""
REPEATS = 3
SLOW = 0.90
"""Share of the best node's rate below which a turn is repeated: noise only slows down, so the best turn counts."""
START_TIMEOUT_S = 60.0


def run_speeds(fleet: Fleet, level: Level, emit: Emit, *, own_machines: bool) -> None:
    """Emit SpeedRecords. Nodes that are machines of their own need not wait for one another, and use all processors."""
    found: list[SpeedRecord] = []

    def turn(names: Sequence[str], sustained_s: float = 0.0) -> None:
        records = fleet.persist("training", lambda: _turn(fleet, level, names, own_machines, sustained_s))
        found.extend(records)
        for record in records:
            emit(record)

    again = [node.name for node in fleet.compute_nodes]
    for _ in range(1 + REPEATS):
        for names in [again] if own_machines else [[name] for name in again]:
            turn(names)
        again = slow_nodes(found)
        if not again:
            break
    if SUSTAINED_S[level]:
        turn([node.name for node in fleet.compute_nodes], SUSTAINED_S[level])


def slow_nodes(records: Sequence[SpeedRecord]) -> list[str]:
    """Nodes that are slow beside the best in some kind of work, in their order."""
    best: dict[tuple[str, str], float] = {}
    for record in records:
        key = record.what, record.node
        best[key] = max(best.get(key, 0.0), rate(record))
    tops = {what: max(value for (kind, _), value in best.items() if kind == what) for what, _ in best}
    return list(dict.fromkeys(node for (what, node), value in best.items() if value < SLOW * tops[what]))


def rate(record: SpeedRecord) -> float:
    """Work a second over the whole turn: a throttled rank's median repetition looks normal."""
    return record.work * len(record.seconds) / max(sum(record.seconds), 1e-9)


def _turn(
    fleet: Fleet, level: Level, names: Sequence[str], own_machines: bool, sustained_s: float
) -> list[SpeedRecord]:
    nodes = [node for node in fleet.compute_nodes if node.name in names]
    workers = fleet.ranks_of(nodes) if sustained_s else [fleet.lead(node.name) for node in nodes]
    command: Message = {
        "op": "compute",
        "kinds": ("product-fp32",) if sustained_s else KINDS[level],
        "seconds": sustained_s or SECONDS[level],
        "threads": 0 if own_machines else 1,
        "sustained": bool(sustained_s),
    }
    timeout_s = START_TIMEOUT_S + 4 * command["seconds"] * len(command["kinds"])
    answers = fleet.ask("training", {worker.rank: command for worker in workers}, timeout_s=timeout_s)
    return [record for worker in workers for record in _records(worker, answers.get(worker.rank), bool(sustained_s))]


def _records(worker: Worker, answer: Message | None, sustained: bool) -> list[SpeedRecord]:
    if answer is None or not answer["ok"]:
        error = f"{answer['type']}: {answer['error']}" if answer else "no answer before the deadline"
        return [SpeedRecord(what="all", node=worker.node, rank=worker.rank, sustained=sustained, work=0, error=error)]
    return [
        SpeedRecord(
            what=one["what"], node=worker.node, rank=worker.rank, device=answer["device"], sustained=sustained,
            work=one["work"], seconds=one["seconds"], verified=one["verified"], cpu_share=one["cpu_share"],
            idle_share=one["idle_share"],
        )
        for one in answer["found"]
    ]  # fmt: skip
