"""Fan-in: two flows at once tell a slow node (the total is one flow's) from slow links (the total is their sum)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from validation.model import FanInRecord, WantedFanIn
from validation.verdicts import limits
from validation.verdicts.evidence import Evidence
from validation.verdicts.readings import Readings
from validation.verdicts.suspects import Unit, pair_of, partners_of

Ruling = Literal["node", "links", "open", "undecidable"]
CALM = 0.8
"""A single flow from this share of its pair's level on was not disturbed."""
ALIKE = 1.2
"""A disturbed measurement still tells of the node if both flows brought at most this much more than the one before."""


@dataclass(frozen=True)
class FanIn:
    """All fan-in measurements of one direction of one node."""

    ruling: Ruling
    evidence: tuple[str, ...]
    capacity: float | None
    """The node's own share of its declared speed, where the node is the limit."""


def rule(unit: Unit, evidence: Evidence, readings: Readings, scale: float = 1.0) -> FanIn:
    """What the fan-ins say; `undecidable` when no two partners can load the node or they keep disagreeing."""
    records = [r for r in evidence.fan_ins if (r.target, r.direction) == unit]
    if not candidates(unit, readings):
        return FanIn("undecidable", (), None)
    votes = [vote(record, unit, evidence, readings, scale) for record in records]
    node, links = votes.count("node"), votes.count("links")
    told = tuple(_words(record) for record, said in zip(records, votes, strict=True) if said)
    if node - links >= limits.FAN_IN_VOTES:
        totals = sorted(r.total_gbps for r, said in zip(records, votes, strict=True) if said == "node")
        declared = evidence.declared_gbps(unit.node)
        return FanIn("node", told, totals[len(totals) // 2] * scale / declared if declared else None)
    if links - node >= limits.FAN_IN_VOTES:
        return FanIn("links", told, None)
    return FanIn("open" if len(records) < limits.FAN_IN_AT_MOST else "undecidable", told, None)


def vote(record: FanInRecord, unit: Unit, evidence: Evidence, readings: Readings, scale: float) -> str:
    """`node`, `links`, or an empty text for a measurement that was disturbed or lies between."""
    declared = evidence.declared_gbps(unit.node)
    flows = [_flow_gbps(unit, partner, evidence, readings, scale) for partner in record.partners]
    if record.error or declared is None or any(flow is None for flow in flows):
        return ""
    first, both = flows[0] or 0.0, sum(flow or 0.0 for flow in flows)
    due = min(declared / scale, both)
    if record.total_gbps >= limits.CLEAR * due:
        return "links"
    calm = record.single_gbps >= CALM * first
    alike = record.total_gbps <= ALIKE * record.single_gbps
    return "node" if record.total_gbps < limits.LOW * due and (calm or alike) else ""


def wish(unit: Unit, evidence: Evidence, readings: Readings, preferred: Iterable[str]) -> WantedFanIn | None:
    """The next fan-in of this unit: other partners than last time where there is a choice."""
    chosen = candidates(unit, readings)
    calm = set(preferred)
    best = [pair for pair in chosen if calm.issuperset(pair)] or chosen
    if not best:
        return None
    done = sum((r.target, r.direction) == unit for r in evidence.fan_ins)
    first, second = best[done % len(best)]
    return WantedFanIn(target=unit.node, direction=unit.direction, partners=(first, second))


def candidates(unit: Unit, readings: Readings) -> list[tuple[str, str]]:
    """Pairs of partners with comparable flows; alike ones only, where there are any."""
    flows = {p: flow for p in partners_of(unit, readings) if (flow := readings.capability(pair_of(unit, p)))}
    alike = {(a, b): min(flows[a], flows[b]) / max(flows[a], flows[b]) for a, b in combinations(sorted(flows), 2)}
    best = [pair for pair, ratio in alike.items() if ratio >= limits.FAN_IN_ALIKE]
    return best or [pair for pair, ratio in alike.items() if ratio >= limits.FAN_IN_COMPARABLE]


def _flow_gbps(unit: Unit, partner: str, evidence: Evidence, readings: Readings, scale: float) -> float | None:
    """What one flow alone brings, in real Gb/s also where the readings are relative to a slow fleet."""
    pair = pair_of(unit, partner)
    share, due = readings.capability(pair), evidence.due_gbps(pair)
    return share * due / scale if due else None


def _words(record: FanInRecord) -> str:
    a, b = record.partners
    arrow = f"{a} and {b} → {record.target}" if record.direction == "in" else f"{record.target} → {a} and {b}"
    return f"{arrow} at once: {record.total_gbps:.3g} Gb/s together, {record.single_gbps:.3g} Gb/s for one flow alone"
