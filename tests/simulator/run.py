"""A whole simulated run: plan, judge, measure what is wanted, until the judge has no more wishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulator.network import Faults, Network, Noise
from validation.model import Judgement, Level, Record, RunRecord, Stage, StageRecord, WantedFanIn
from validation.schedule import plan_rounds
from validation.verdict import judge

WISHES_AT_MOST = 400
"""A judge that wants more than so many measurements does not come to an end."""


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, count + 1))


def run_record(
    nodes: Sequence[str],
    declared: dict[str, float] | None = None,
    stages: tuple[Stage, ...] = ("pairs",),
    level: Level = "standard",
) -> RunRecord:
    """A run of a fleet of equal machines with 1 Gb/s, or with what `declared` says."""
    speeds = declared or {}
    inventory = {
        "name": "sim",
        "networks": [{"name": "lan", "cidr": "10.9.0.0/16", "speed_gbps": 1.0}],
        "nodes": [
            {
                "name": node,
                "address": f"10.9.{number // 250}.{number % 250 + 1}",
                "roles": ["compute"],
                "links": [{"network": "lan", "speed_gbps": speeds[node]}] if node in speeds else [],
            }
            for number, node in enumerate(nodes)
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
) -> tuple[list[Record], Judgement]:
    """The pairs stage to its end; the records close with the stage's own, the judgement is final."""
    nodes = names(count)
    speeds = {node: (declared or {}).get(node, 1.0) for node in nodes}
    network = Network(nodes, speeds, faults, noise, seed)
    records: list[Record] = [run_record(nodes, declared, level=level)]
    for pairs in plan_rounds(nodes, level):
        records += network.run_round(pairs, "plan")
    judgement = judge(records)
    wishes = 0
    while judgement.wanted:
        for wanted in judgement.wanted:
            wishes += 1
            if isinstance(wanted, WantedFanIn):
                records.append(network.run_fan_in(wanted.target, wanted.direction, wanted.partners))
            else:
                network.pause(wanted.spacing_s)
                records += network.run_round(wanted.pairs, wanted.purpose, wanted.controls)
        if wishes > WISHES_AT_MOST:
            raise AssertionError(f"the judge still wants {judgement.wanted} after {wishes} measurements")
        judgement = judge(records)
    on_round(network.round)
    records.append(StageRecord(stage="pairs", status="done", seconds=network.now_s))
    return records, judge(records)
