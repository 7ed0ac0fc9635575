"""What the raw records measured, gathered by link, size and training, for certificate, report and metrics alike."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations
from statistics import median, median_high

from inventory.model import Cluster
from inventory.networks import link_for
from validation.model import (
    CellRecord,
    CollectiveRecord,
    FailureRecord,
    FanInRecord,
    NodeCheckRecord,
    ReachRecord,
    Record,
    RunRecord,
    Stage,
    StageRecord,
    TrainingRecord,
)


@dataclass(frozen=True)
class Direction:
    """All that was measured from `src` to `dst`, each round a median of its repetitions."""

    src: str
    dst: str
    declared_gbps: float | None
    gbps: float | None
    """What the pair can do: the upper quartile of its rounds, since noise only takes away. None: no bytes arrived."""
    lowest_gbps: float | None
    highest_gbps: float | None
    rounds: int
    latency_p50_us: float | None
    latency_p99_us: float | None
    verified: bool | None
    """False: data arrived other than sent in at least one round. None: nothing arrived that could be verified."""
    error: str
    """Why nothing arrived; empty if something did, or if it was not tried."""

    @property
    def share(self) -> float | None:
        """Measured ÷ declared speed of the slower end."""
        return self.gbps / self.declared_gbps if self.gbps is not None and self.declared_gbps else None

    @property
    def tried(self) -> bool:
        return self.gbps is not None or bool(self.error)


@dataclass(frozen=True)
class RunData:
    """A run as its records tell it."""

    run: RunRecord
    cluster: Cluster
    stages: tuple[StageRecord, ...]
    directions: dict[tuple[str, str], Direction]
    by_src: dict[str, list[Direction]]
    by_dst: dict[str, list[Direction]]
    collectives: tuple[CollectiveRecord, ...]
    trainings: tuple[TrainingRecord, ...]
    failures: tuple[FailureRecord, ...]
    versions: dict[str, dict[str, str]]
    """Node → what of its software was found, where its node stage got that far."""
    started_at: datetime
    ended_at: datetime

    def begun(self, stage: Stage) -> bool:
        """Whether anything of a stage was recorded, even if its end was not."""
        found = {"pairs": any(way.tried for way in self.directions.values()), "cluster": bool(self.collectives)}
        lost = any(failure.stage == stage for failure in self.failures)
        ended = any(record.stage == stage and record.status != "skipped" for record in self.stages)
        return ended or lost or found.get(stage, stage == "training" and bool(self.trainings))

    @property
    def duration_s(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every pair of the cluster's nodes, in the inventory's order."""
        return list(combinations([node.name for node in self.cluster.nodes], 2))

    @property
    def measured_pairs(self) -> int:
        """Pairs whose bandwidth is known in both directions."""
        return sum(
            self.directions[a, b].gbps is not None and self.directions[b, a].gbps is not None for a, b in self.pairs
        )

    @property
    def ddp(self) -> list[TrainingRecord]:
        """Distributed trainings from few to many nodes; the last one of each size, should one have been repeated."""
        by_size = {len(training.nodes): training for training in self.trainings if training.mode == "ddp"}
        return [by_size[size] for size in sorted(by_size)]

    def sends_gbps(self, node: str) -> float | None:
        """What a node sends at: its (upper) median over partners, since one bad partner is not the node's fault."""
        return _usual(self.by_src.get(node, []))

    def receives_gbps(self, node: str) -> float | None:
        """What a node receives at, likewise."""
        return _usual(self.by_dst.get(node, []))

    def slowest_gbps(self, nodes: Iterable[str]) -> float | None:
        """The slowest measured direction among these nodes."""
        names = set(nodes)
        found = [d.gbps for d in self.directions.values() if d.gbps and d.src in names and d.dst in names]
        return min(found, default=None)


def gather(records: Sequence[Record]) -> RunData:
    """Sort the records of one run by what they are about; ValueError if the run's own record is missing."""
    run = next((record for record in records if isinstance(record, RunRecord)), None)
    if run is None:
        raise ValueError(f"no run record among {len(records)} records: results.jsonl must begin with one")
    cluster = Cluster.model_validate(run.inventory)
    stages = tuple(record for record in records if isinstance(record, StageRecord))
    started_at = _utc(run.started_at)
    directions = _directions(cluster, records)
    by_src, by_dst = defaultdict(list), defaultdict(list)
    for found in directions.values():
        by_src[found.src].append(found)
        by_dst[found.dst].append(found)
    return RunData(
        run=run,
        cluster=cluster,
        stages=stages,
        directions=directions,
        by_src=dict(by_src),
        by_dst=dict(by_dst),
        collectives=tuple(record for record in records if isinstance(record, CollectiveRecord)),
        trainings=tuple(record for record in records if isinstance(record, TrainingRecord)),
        failures=tuple(record for record in records if isinstance(record, FailureRecord)),
        versions={r.node: r.facts for r in records if isinstance(r, NodeCheckRecord) and r.check == "versions"},
        started_at=started_at,
        ended_at=started_at + timedelta(seconds=_length_s(records)),
    )


def _utc(text: str) -> datetime:
    """An ISO 8601 time to the whole second, so that a certificate's times read well."""
    return datetime.fromisoformat(text).astimezone(UTC).replace(microsecond=0)


def _length_s(records: Sequence[Record]) -> int:
    """Length of the run by its own records and never by the clock: judging again must give the same times."""
    stages = sum(record.seconds for record in records if isinstance(record, StageRecord))
    last = max((record.at_s for record in records if isinstance(record, CellRecord | FanInRecord)), default=0.0)
    return math.ceil(max(stages, last))


def _directions(cluster: Cluster, records: Sequence[Record]) -> dict[tuple[str, str], Direction]:
    cells: dict[tuple[str, str], list[CellRecord]] = defaultdict(list)
    reaches: dict[tuple[str, str], list[ReachRecord]] = defaultdict(list)
    for record in records:
        if isinstance(record, CellRecord):
            cells[record.src, record.dst].append(record)
        elif isinstance(record, ReachRecord):
            reaches[record.src, record.dst].append(record)
    speeds = {node.name: link_for(cluster, node, "compute").speed_gbps or 0.0 for node in cluster.nodes}
    known = [(a, b) for a in speeds for b in speeds if a != b]
    others = sorted({*cells, *reaches} - set(known))
    return {
        (a, b): _direction(a, b, min(speeds.get(a, 0.0), speeds.get(b, 0.0)), cells[a, b], reaches[a, b])
        for a, b in [*known, *others]
    }


def _direction(
    src: str, dst: str, declared_gbps: float, cells: list[CellRecord], reaches: list[ReachRecord]
) -> Direction:
    rates = sorted(median(cell.repetitions_gbps) for cell in cells if cell.repetitions_gbps)
    halves = [cell.latency_us for cell in cells if cell.latency_us]
    errors = [cell.error for cell in cells if cell.error]
    if reaches and not any(reach.ok for reach in reaches):
        errors += [reach.error or "no connection" for reach in reaches]
    return Direction(
        src=src,
        dst=dst,
        declared_gbps=declared_gbps or None,
        gbps=rates[3 * len(rates) // 4] if rates else None,
        lowest_gbps=rates[0] if rates else None,
        highest_gbps=rates[-1] if rates else None,
        rounds=len(rates),
        latency_p50_us=median(half[0] for half in halves) if halves else None,
        latency_p99_us=median(half[-1] for half in halves) if halves else None,
        verified=_all_verified([cell.verified for cell in cells if cell.repetitions_gbps or cell.verified is False]),
        error=errors[-1] if errors and not rates else "",
    )


def _all_verified(verified: list[bool | None]) -> bool | None:
    if False in verified:
        return False
    return True if verified and None not in verified else None


def _usual(directions: Iterable[Direction]) -> float | None:
    found = [direction.gbps for direction in directions if direction.gbps is not None]
    return median_high(found) if found else None


def middle(values: Iterable[float]) -> float | None:
    """The median, or None of nothing."""
    found = list(values)
    return median(found) if found else None


def step_seconds(training: TrainingRecord, part: dict[str, tuple[float, ...]]) -> float | None:
    """Median over the nodes of each node's median step (or part of a step): what one step took."""
    return middle(median(times) for node in training.nodes if (times := part.get(node)))


def samples_per_second(training: TrainingRecord) -> float | None:
    """Global batch ÷ median step; warm-up steps are left out of the times already."""
    step = step_seconds(training, training.step_seconds)
    return training.global_batch / step if step else None
