"""The records of a run, sorted by kind, with the questions that every part of the verdict asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from statistics import median
from typing import Any, TypeVar

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

R = TypeVar("R")
Directed = tuple[str, str]


class NoRunRecordError(ValueError):
    """The records do not begin with what the run was about, so nothing can be judged."""


class Evidence:
    """Read-only view of the records; every order in it is the records' own or alphabetical."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = tuple(records)
        runs = self.of(RunRecord)
        if len(runs) != 1:
            raise NoRunRecordError(f"expected one run record, found {len(runs)}; is this the file of one run?")
        self.run = runs[0]
        self.checks = self.of(NodeCheckRecord)
        self.reaches = self.of(ReachRecord)
        self.cells = self.of(CellRecord)
        self.fan_ins = self.of(FanInRecord)
        self.collectives = self.of(CollectiveRecord)
        self.trainings = self.of(TrainingRecord)
        self.failures = self.of(FailureRecord)
        self.stages: dict[Stage, StageRecord] = {record.stage: record for record in self.of(StageRecord)}

    def of(self, kind: type[R]) -> tuple[R, ...]:
        return tuple(record for record in self.records if isinstance(record, kind))

    @property
    def cluster(self) -> str:
        return str(self.run.inventory.get("name", "cluster"))

    @property
    def rehearsal(self) -> bool:
        """True where nodes share processors, so that times say little about a cluster of machines."""
        return self.run.substrate != "hardware"

    @property
    def pairs_open(self) -> bool:
        """True while the stage still runs, so that a wanted measurement can be had."""
        return "pairs" in self.run.stages and "pairs" not in self.stages

    def done(self, stage: Stage) -> bool:
        return stage in self.stages and self.stages[stage].status == "done"

    @cached_property
    def _declared(self) -> dict[str, float]:
        networks = self.run.inventory.get("networks") or [{}]
        first = next((one for one in networks if "compute" in (one.get("purposes") or ())), networks[0])
        speeds: dict[str, float] = {}
        for node in self.run.inventory.get("nodes") or []:
            own = [link for link in node.get("links") or [] if link.get("network") == first.get("name")]
            speed = (own[0].get("speed_gbps") if own else None) or first.get("speed_gbps")
            if speed:
                speeds[str(node["name"])] = float(speed)
        return speeds

    def declared_gbps(self, *nodes: str) -> float | None:
        """The slowest declared link of these nodes; None if one of them is not declared."""
        speeds = [self._declared.get(node) for node in nodes]
        return min((speed for speed in speeds if speed), default=None) if all(speeds) else None

    @cached_property
    def compute(self) -> frozenset[str]:
        """Nodes that train; all nodes of the run where the inventory says nothing about roles."""
        declared = self.run.inventory.get("nodes") or []
        names = {str(node["name"]) for node in declared if "compute" in (node.get("roles") or ["compute"])}
        return frozenset(names if declared else self.run.nodes)

    @cached_property
    def partners(self) -> tuple[str, ...]:
        """Nodes that took part in the pairs stage, alphabetically."""
        seen = {name for cell in self.cells for name in (cell.src, cell.dst)}
        seen |= {name for reach in self.reaches for name in (reach.src, reach.dst)}
        return tuple(sorted(seen))

    @cached_property
    def required_pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of compute nodes that this run was asked about."""
        names = sorted(self.compute & set(self.run.nodes))
        return tuple((a, b) for index, a in enumerate(names) for b in names[index + 1 :])

    def cpu_model(self, node: str) -> str:
        return str(self._found(node).get("cpu_model", ""))

    def cpus(self, node: str) -> int | None:
        found = self._found(node)
        try:
            return int(found["sockets"]) * int(found["cores_per_socket"]) * int(found["threads_per_core"])
        except KeyError:
            return None

    def _found(self, node: str) -> dict[str, Any]:
        nodes = (self.run.lock or {}).get("nodes") or {}
        return dict(nodes.get(node) or {})

    def failed_nodes(self, stage: Stage) -> frozenset[str]:
        """Nodes whose rank failed in this stage: what their partners then measured is not about the network."""
        return frozenset(record.node for record in self.failures if record.stage == stage)

    @cached_property
    def pair_gbps(self) -> dict[Directed, float]:
        """Median measured bandwidth of every directed pair, over all rounds."""
        found: dict[Directed, list[float]] = {}
        for cell in self.cells:
            if cell.repetitions_gbps:
                found.setdefault((cell.src, cell.dst), []).append(median(cell.repetitions_gbps))
        return {pair: median(values) for pair, values in found.items()}


def link_name(a: str, b: str) -> str:
    """The subject of a pair: `a–b`, alphabetically."""
    first, second = sorted((a, b))
    return f"{first}–{second}"
