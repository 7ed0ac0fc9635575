"""What another node or a faster network would bring: measured where it was, computed where it says so."""

from __future__ import annotations

from dataclasses import dataclass

from validation.model import TrainingRecord
from validation.report_data import RunData
from validation.report_words import significant
from validation.verdicts.step_split import Split, split_step

CLASSES_GBPS = (1.0, 2.5, 10.0, 25.0, 100.0, 200.0, 400.0)
PAYLOAD_SHARE = 0.94
"""Of a link's speed that TCP's payload gets on Ethernet."""
LITTLE = 0.05
"""A faster network that brings less than this share more isn't worth a sentence."""


@dataclass(frozen=True)
class Row:
    """One number of nodes: efficiencies (None where not measured, or where nodes share processors), and the split."""

    nodes: int
    weak: float | None
    strong: float | None
    split: Split


def rows(data: RunData) -> list[Row]:
    """Weak E(n) = T(n)/(n·T(1)) of throughputs, strong E(n) = t₁/(n·tₙ) of steps; never naive ones of a rehearsal."""
    own = data.run.substrate == "hardware"
    strong = {len(t.nodes): found for t in data.trainings if t.mode == "strong" and (found := split_step(t))}
    weak = {len(t.nodes): (t, found) for t in data.ddp if (found := split_step(t))}
    return [
        Row(
            nodes=count,
            weak=_weak(weak, count) if own else None,
            strong=strong[1].step_s / (count * strong[count].step_s) if own and {1, count} <= set(strong) else None,
            split=split,
        )
        for count, (_, split) in sorted(weak.items())
        if count > 1
    ]


def _weak(found: dict[int, tuple[TrainingRecord, Split]], count: int) -> float | None:
    if 1 not in found:
        return None
    alone, here = (found[n][0].global_batch / found[n][1].step_s for n in (1, count))
    return here / (count * alone)


@dataclass(frozen=True)
class Law:
    """A step of n nodes by computing alone and the ring's all-reduce: T(n) = T₁ + 2(n−1)/n · S ÷ B."""

    compute_s: float
    gradient_bytes: int

    def step_s(self, nodes: int, gbps: float) -> float:
        return self.compute_s + 2 * (nodes - 1) / nodes * self.gradient_bytes * 8 / (gbps * 1e9)

    def speedup(self, nodes: int, gbps: float) -> float:
        return nodes * self.compute_s / self.step_s(nodes, gbps)


def sentence(data: RunData) -> str:
    """One sentence a person can act on; empty without what it needs."""
    alone = next((split for t in data.ddp if len(t.nodes) == 1 and (split := split_step(t))), None)
    largest = data.ddp[-1] if data.ddp else None
    gbps = data.slowest_gbps(largest.nodes) if largest else None
    if alone is None or largest is None or len(largest.nodes) < 2 or not gbps or not largest.gradient_bytes:
        return ""
    law, nodes = Law(alone.step_s, largest.gradient_bytes), len(largest.nodes)
    own = data.run.substrate == "hardware"
    return f"{_first(data, law, nodes, gbps, own)} {_network(law, nodes, gbps)} {_another(law, nodes, gbps)}"


def _first(data: RunData, law: Law, nodes: int, gbps: float, own: bool) -> str:
    row = next((row for row in rows(data) if row.nodes == nodes and row.weak is not None), None)
    basis = (
        f"{significant(law.compute_s * 1e3)} ms of computing and {significant(law.gradient_bytes / 1e6)} MB of "
        f"gradients a step over {significant(gbps)} Gb/s"
    )
    if own and row and row.weak is not None:
        most, lost_s = row.split.lost[0]
        return (
            f"{nodes} nodes train {significant(nodes * row.weak, 2)} times as fast as one; most of what is lost is "
            f"{most} ({significant(lost_s * 1e3)} of {significant(row.split.step_s * 1e3)} ms a step)."
        )
    return (
        f"Computed for nodes with processors of their own, from {basis}: {nodes} nodes train "
        f"{significant(law.speedup(nodes, gbps), 2)} times as fast as one."
    )


def _network(law: Law, nodes: int, gbps: float) -> str:
    now = law.speedup(nodes, gbps)
    faster = [speed for speed in CLASSES_GBPS if speed * PAYLOAD_SHARE > 1.5 * gbps]
    worth = [speed for speed in faster if law.speedup(nodes, speed * PAYLOAD_SHARE) > (1 + LITTLE) * now]
    if not worth:
        return "A faster network would bring little."
    best = worth[0] if len(worth) == 1 else next((s for s in worth if s >= 10.0), worth[-1])
    brings = law.speedup(nodes, best * PAYLOAD_SHARE)
    return f"The link is the limit: {significant(best)} Gb/s would bring {significant(brings, 2)} times (computed)."


def _another(law: Law, nodes: int, gbps: float) -> str:
    more = law.speedup(nodes + 1, gbps)
    return f"One node more would bring {significant(more, 2)} times (computed)."
