"""A simulated run: plan, judge, measure what is wanted until the judge has no more wishes, then the later stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulator.network import Fabric, Faults, Network, Noise
from validation.model import (
    STAGES,
    CollectiveRecord,
    Judgement,
    Level,
    NodeCheckRecord,
    Outcome,
    ReachRecord,
    Record,
    RunRecord,
    Stage,
    StageRecord,
    TrainingRecord,
    WantedFanIn,
)
from validation.schedule import plan_rounds
from validation.verdict import judge

WISHES_AT_MOST = 400
"""A judge that wants more than so many measurements does not come to an end."""
STEPS = 40
Judging = Callable[[Sequence[Record]], Judgement]


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, count + 1))


def run_record(
    nodes: Sequence[str],
    declared: dict[str, float] | None = None,
    stages: tuple[Stage, ...] = ("pairs",),
    level: Level = "standard",
    fabric: Fabric | None = None,
) -> RunRecord:
    """A run of a fleet of equal machines with 1 Gb/s, or with what `declared` says."""
    speeds, leaves = declared or {}, fabric.leaves if fabric else {}
    inventory = {
        "name": "sim",
        "networks": [{"name": "lan", "cidr": "10.9.0.0/16", "speed_gbps": 1.0}],
        "nodes": [
            {
                "name": node,
                "address": f"10.9.{number // 250}.{number % 250 + 1}",
                "roles": ["compute"],
                "links": [{"network": "lan", "speed_gbps": speeds[node]}] if node in speeds else [],
                **({"leaf": leaves[node]} if node in leaves else {}),
            }
            for number, node in enumerate(nodes)
        ],
        "leaves": [
            {"name": leaf, "oversubscription": fabric.oversubscription if fabric else 1.0}
            for leaf in dict.fromkeys(leaves.values())
        ],
    }
    found = {"cpu_model": "sim", "sockets": 1, "cores_per_socket": 4, "threads_per_core": 1}
    return RunRecord(
        run_id="sim", version="0", level=level, stages=stages, nodes=tuple(nodes), partial=False, launcher="ssh",
        started_at="2025-01-01T00:00:00Z", inventory=inventory, lock={"nodes": dict.fromkeys(nodes, found)},
        substrate="simulation",
    )  # fmt: skip


def pairs_stage(
    count: int,
    faults: Faults,
    noise: Noise,
    seed: int,
    declared: dict[str, float] | None = None,
    level: Level = "standard",
    on_round: Callable[[int], None] = lambda number: None,
    fabric: Fabric | None = None,
    judging: Judging = judge,
) -> tuple[list[Record], Judgement]:
    """The pairs stage to its end; the records close with the stage's own, the judgement is final."""
    nodes = names(count)
    speeds = {node: (declared or {}).get(node, 1.0) for node in nodes}
    network = Network(nodes, speeds, faults, noise, seed, fabric)
    records: list[Record] = [run_record(nodes, declared, level=level, fabric=fabric)]
    for pairs in plan_rounds(nodes, level, fabric.leaves if fabric else None):
        records += network.run_round(pairs, "plan")
    answer_wishes(records, network, judging)
    on_round(network.round)
    records.append(StageRecord(stage="pairs", status="done", seconds=network.now_s))
    return records, judging(records)


def answer_wishes(records: list[Record], network: Network, judging: Judging = judge) -> None:
    """Measure what the judge wants until it wants nothing more."""
    wishes = 0
    while wanted := judging(records).wanted:
        for one in wanted:
            wishes += 1
            if isinstance(one, WantedFanIn):
                records.append(network.run_fan_in(one.target, one.direction, one.partners))
            else:
                network.pause(one.spacing_s)
                records += network.run_round(one.pairs, one.purpose, one.controls)
        if wishes > WISHES_AT_MOST:
            raise AssertionError(f"the judge still wants {wanted} after {wishes} measurements")


def whole_run(count: int = 4, seed: int = 0, faults: Faults | None = None, noise: Noise | None = None) -> list[Record]:
    """All four stages of a fleet; tests then change the records they are about."""
    nodes = names(count)
    pairs, _ = pairs_stage(count, faults or Faults(), noise or Noise(host_starts=0.0, node_starts=0.0), seed)
    run = run_record(nodes, stages=STAGES)
    return [run, *node_stage(nodes), *reach_records(nodes), *pairs[1:], *later_stages(nodes)]


def node_stage(nodes: Sequence[str]) -> list[Record]:
    checks: list[Record] = [
        NodeCheckRecord(
            node=node, check=check, outcome=Outcome.PASS, measured="right", required="right", origin="inventory"
        )
        for node in nodes
        for check in ("reachable", "clock-offset", "versions")
    ]  # fmt: skip
    return [*checks, StageRecord(stage="node", status="done", seconds=2.0)]


def reach_records(nodes: Sequence[str]) -> list[Record]:
    return [
        ReachRecord(src=src, dst=dst, port=40000, ok=True, connect_ms=0.3)
        for src in nodes
        for dst in nodes
        if src != dst
    ]


def later_stages(nodes: Sequence[str]) -> list[Record]:
    """A good collective and good trainings."""
    seconds = 16e6 * 8 * 2 * (len(nodes) - 1) / len(nodes) / 0.9e9
    records: list[Record] = [
        CollectiveRecord(
            op="all_reduce", nodes=tuple(nodes), bytes=16_000_000, seconds=(seconds,) * 5, busbw_gbps=0.9,
            verified=dict.fromkeys(nodes, True), idle_share=0.4,
        ),
        StageRecord(stage="cluster", status="done", seconds=3.0),
        training("reference", nodes[:1], nodes),
        training("ddp", nodes, nodes),
        *(training("solo", (node,), nodes) for node in nodes),
        StageRecord(stage="training", status="done", seconds=9.0),
    ]  # fmt: skip
    return records


def training(mode: str, nodes: Sequence[str], fleet: Sequence[str]) -> TrainingRecord:
    """A training that learns; solo turns have a smaller global batch."""
    base = TrainingRecord(
        mode="solo", nodes=tuple(nodes), seed=1, global_batch=32, steps=STEPS, warmup_steps=2,
        losses=tuple(2.0 * 0.97**step for step in range(STEPS)),
        step_seconds=dict.fromkeys(nodes, (0.03,) * (STEPS - 2)), compute_seconds=dict.fromkeys(nodes, (0.02,) * 38),
        comm_seconds=dict.fromkeys(nodes, (0.01,) * 38), parameter_sha256=dict.fromkeys(nodes, "a" * 64),
        gradient_bytes=400_000, cpu_share=dict.fromkeys(nodes, 0.98), idle_share=0.5,
    )  # fmt: skip
    batch = 32 if mode == "solo" else 32 * len(fleet)
    return base.model_copy(update={"mode": mode, "global_batch": batch})
