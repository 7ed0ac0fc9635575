"""Stage training: the same small model trained alone, on every node in turn, and by all nodes together."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from inventory.model import Node
from validation.checks.cluster import ask_together
from validation.launch_ranks import Message, Worker
from validation.launcher import Emit, Fleet
from validation.model import Level, TrainingRecord

SEED = 1
STEPS = {"quick": 40, "standard": 100, "burn-in": 1000}
SOLO_S = {"quick": 1.2, "standard": 3.0, "burn-in": 10.0}
"""A solo turn must last a second or more, or a throttled rank looks normal (verdict-method: measured)."""
STRONG_STEPS = 40
SOLO_STEPS_MIN, SOLO_STEPS_MAX = 20, 2000
SOLO_REPEATS = 3
"""A turn that looks slow is repeated so often: noise only slows down, so a node's best turn is what it can do."""
SOLO_SLOW = 0.90
"""Share of the best node's rate below which a turn is repeated; the judge's limit is a little lower."""
REFERENCE_RANKS_MAX = 16
"""One process that stands for more ranks would take longer than the whole stage."""
GROUP_TIMEOUT_S = 30.0
START_TIMEOUT_S, STEP_TIMEOUT_S = 60.0, 2.0

STRONG_SHARDS_AT_MOST = 64
"""Of the global batch that strong scaling shares out: one node alone has to train on all of it."""

Mode = Literal["reference", "ddp", "solo", "strong"]


@dataclass(frozen=True)
class Plan:
    """One training: how, on which nodes, how many steps, and for how many ranks one process stands."""

    mode: Mode
    nodes: tuple[Node, ...]
    steps: int
    shards: int = 1
    portion: int = 1
    """Shards that each rank takes as one batch."""

    @property
    def together(self) -> bool:
        return self.mode in ("ddp", "strong")

    @property
    def title(self) -> str:
        names = ", ".join(node.name for node in self.nodes)
        return f"{self.mode} on {len(self.nodes)} nodes" if self.together else f"{self.mode} on {names}"


def run_training(fleet: Fleet, level: Level, emit: Emit) -> None:
    """Emit TrainingRecords: the reference, DDP on 1 … N nodes, and a solo turn a node."""
    stage = TrainingStage(fleet, level, emit)
    step_s = stage.reference()
    for count in world_sizes(len(fleet.compute_nodes), level):
        stage.ddp(count)
    if level != "quick":
        shares = strong_portions(world_sizes(len(fleet.compute_nodes), level))
        for count, portion in shares.items():
            stage.strong(count, portion)
    steps = solo_steps(step_s, SOLO_S[level])
    turns = [turn for node in fleet.compute_nodes if (turn := stage.solo(node.name, steps))]
    for _ in range(SOLO_REPEATS):
        slow = slow_turns(turns)
        turns += [turn for name in slow if (turn := stage.solo(name, steps))]
        if not slow:
            break


def world_sizes(nodes: int, level: Level) -> list[int]:
    """On how many nodes DDP trains: one and all; at higher levels those between too, in powers of two if many."""
    if nodes == 0:
        return []
    if level == "quick":
        return sorted({1, nodes})
    between = range(1, nodes + 1) if nodes <= 8 else [1 << power for power in range(nodes.bit_length())]
    return sorted({*between, nodes})


def strong_portions(sizes: Sequence[int]) -> dict[int, int]:
    """Number of nodes → shards a rank, so that each size shares out the same global batch evenly; else left out."""
    total = 1
    for size in sizes:
        if math.lcm(total, size) <= STRONG_SHARDS_AT_MOST:
            total = math.lcm(total, size)
    return {size: total // size for size in sizes if total % size == 0}


def solo_steps(step_s: float | None, seconds: float) -> int:
    """Steps of a solo turn: the same number on every node, so that the results can be compared bit by bit."""
    steps = math.ceil(seconds / step_s) if step_s else SOLO_STEPS_MIN
    return max(SOLO_STEPS_MIN, min(SOLO_STEPS_MAX, steps))


def slow_turns(turns: Sequence[TrainingRecord]) -> list[str]:
    """Nodes whose best solo turn is still slow beside the best of all nodes, in the order of their first turn."""
    best: dict[str, float] = {}
    for turn in turns:
        for node, times in turn.step_seconds.items():
            best[node] = max(best.get(node, 0.0), turn.global_batch * len(times) / max(sum(times), 1e-9))
    return [node for node, rate in best.items() if rate < SOLO_SLOW * max(best.values())]


class TrainingStage:
    """Runs one plan after the other on what is left of the fleet."""

    def __init__(self, fleet: Fleet, level: Level, emit: Emit) -> None:
        self._fleet, self._emit, self._steps = fleet, emit, STEPS[level]

    def reference(self) -> float | None:
        """One process with the global batch of all ranks; returns its processor seconds a step and shard.

        Processor time, because on a busy machine a step takes longer now than in the solo turn that follows.
        """
        ranks = 1

        def plan() -> Plan | None:
            nonlocal ranks
            nodes = self._fleet.compute_nodes
            ranks = len(self._fleet.ranks_of(nodes))
            return Plan("reference", nodes[:1], self._steps, ranks) if 0 < ranks <= REFERENCE_RANKS_MAX else None

        record = self._run(plan)
        if record is None:
            return None
        step_s = median(time for times in record.step_seconds.values() for time in times)
        return step_s * min(1.0, *record.cpu_share.values(), 1.0) / max(ranks, 1)

    def ddp(self, count: int) -> None:
        self._run(lambda: Plan("ddp", nodes, self._steps) if (nodes := self._fleet.compute_nodes[:count]) else None)

    def strong(self, count: int, portion: int) -> None:
        """As ddp(), with the same global batch whatever the count."""
        steps = min(self._steps, STRONG_STEPS)
        self._run(
            lambda: (
                Plan("strong", nodes, steps, portion=portion)
                if len(nodes := self._fleet.compute_nodes[:count]) == count
                else None
            )
        )

    def solo(self, name: str, steps: int) -> TrainingRecord | None:
        return self._run(
            lambda: next((Plan("solo", (n,), steps) for n in self._fleet.compute_nodes if n.name == name), None)
        )

    def _run(self, make_plan: Callable[[], Plan | None]) -> TrainingRecord | None:
        """Do the plan; when ranks are lost meanwhile, the plan for the nodes that are left."""

        def attempt() -> TrainingRecord | None:
            plan = make_plan()
            return self._attempt(plan) if plan else None

        record = self._fleet.persist("training", attempt)
        if record:
            self._emit(record)
        return record

    def _attempt(self, plan: Plan) -> TrainingRecord:
        workers = self._fleet.ranks_of(plan.nodes)
        if plan.mode == "reference":
            workers = workers[:1]
        command: Message = {
            "op": "train",
            "mode": plan.mode,
            "title": plan.title,
            "seed": SEED,
            "steps": plan.steps,
            "shards": plan.shards,
            "portion": plan.portion,
            "group": self._fleet.new_group("train"),
            "members": [worker.peer() for worker in workers],
            "timeout_s": GROUP_TIMEOUT_S,
        }
        timeout_s = START_TIMEOUT_S + STEP_TIMEOUT_S * plan.steps * plan.shards * plan.portion
        answers = ask_together(
            self._fleet, "training", {w.rank: command for w in workers}, self._emit, timeout_s=timeout_s
        )
        return training_record(plan, workers, answers)


# --- from the answers of the ranks to one record -----------------------------------------------------------------


def training_record(plan: Plan, workers: Sequence[Worker], answers: Mapping[int, Message]) -> TrainingRecord:
    """A node with several ranks shows its slowest one, step by step."""
    nodes = {node.name: [answers[w.rank] for w in workers if w.node == node.name] for node in plan.nodes}
    every = [answer for ranks in nodes.values() for answer in ranks]
    share = plan.shards if plan.mode == "reference" else len(every) if plan.together else 1
    idle = [answer["idle_share"] for answer in every if answer["idle_share"] is not None]
    return TrainingRecord(
        mode=plan.mode,
        nodes=tuple(nodes),
        seed=SEED,
        global_batch=every[0]["local_batch"] * share,
        steps=plan.steps,
        warmup_steps=every[0]["warmup_steps"],
        losses=tuple(round(sum(step) / len(every), 9) for step in zip(*(one["losses"] for one in every), strict=True)),
        step_seconds={name: _slowest(ranks, "step_seconds") for name, ranks in nodes.items()},
        compute_seconds={name: _compute(ranks) for name, ranks in nodes.items()},
        comm_seconds={name: _slowest(ranks, "comm_seconds") for name, ranks in nodes.items()},
        data_seconds={name: _slowest(ranks, "data_seconds") for name, ranks in nodes.items()},
        parameter_sha256={name: _one_hash(ranks) for name, ranks in nodes.items()},
        gradient_bytes=every[0]["gradient_bytes"] if plan.together and len(every) > 1 else 0,
        cpu_share={name: min(one["cpu_share"] for one in ranks) for name, ranks in nodes.items()},
        idle_share=min(idle, default=None),
    )


def _slowest(ranks: Sequence[Message], field: str) -> tuple[float, ...]:
    return tuple(max(times) for times in zip(*(one[field] for one in ranks), strict=True))


def _compute(ranks: Sequence[Message]) -> tuple[float, ...]:
    """Step without communication and waiting for data, of the rank that computes longest."""
    kinds = ("step_seconds", "comm_seconds", "data_seconds")
    per_rank = [
        [step - comm - data for step, comm, data in zip(*(one[kind] for kind in kinds), strict=True)] for one in ranks
    ]
    return tuple(round(max(times), 6) for times in zip(*per_rank, strict=True))


def _one_hash(ranks: Sequence[Message]) -> str:
    """The hash that all ranks of a node share; where they differ, one that no other node has."""
    hashes = sorted({str(one["parameter_sha256"]) for one in ranks})
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()
