"""The records of a run, sorted by kind, with the questions that every part of the verdict asks of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from statistics import median
from typing import Any, TypeVar

from validation.model import (
    AcceptanceRecord,
    CellRecord,
    CollectiveRecord,
    FailureRecord,
    FanInRecord,
    FingerprintRecord,
    NodeCheckRecord,
    ReachRecord,
    Record,
    RunRecord,
    SpeedRecord,
    Stage,
    StageRecord,
    TrainingRecord,
    TransportRecord,
)
from validation.schedule import circles

R = TypeVar("R")
Directed = tuple[str, str]
LEAF_NODES = 2
"""One node on a leaf of its own can't be told from the leaf."""


class NoRunRecordError(ValueError):
    """The records do not begin with what the run was about, so nothing can be judged."""


class Evidence:
    """Read-only view of the records; every order in it is the records' own or alphabetical."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = tuple(records)
        self._by_kind: dict[type, list[Record]] = {}
        for record in self.records:
            self._by_kind.setdefault(type(record), []).append(record)
        runs = self.of(RunRecord)
        if len(runs) != 1:
            raise NoRunRecordError(f"expected one run record, found {len(runs)}; is this the file of one run?")
        self.run = runs[0]
        self.checks = self.of(NodeCheckRecord)
        self.reaches = self.of(ReachRecord)
        self.cells = self.of(CellRecord)
        self.fan_ins = self.of(FanInRecord)
        self.collectives = self.of(CollectiveRecord)
        self.transports = self.of(TransportRecord)
        self.trainings = self.of(TrainingRecord)
        self.fingerprints = self.of(FingerprintRecord)
        self.speeds = self.of(SpeedRecord)
        self.acceptances = self.of(AcceptanceRecord)
        self.failures = self.of(FailureRecord)
        self.stages: dict[Stage, StageRecord] = {record.stage: record for record in self.of(StageRecord)}

    def of(self, kind: type[R]) -> tuple[R, ...]:
        return tuple(record for record in self._by_kind.get(kind, ()) if isinstance(record, kind))

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

    # --- leaf switches of the measured network -------------------------------------------------------------------

    @cached_property
    def leaves(self) -> dict[str, str]:
        """Node → its leaf switch; empty where one switch is all there is."""
        declared = self.run.inventory.get("nodes") or []
        return {str(node["name"]): str(node["leaf"]) for node in declared if node.get("leaf")}

    @cached_property
    def _oversubscription(self) -> dict[str, float]:
        declared = self.run.inventory.get("leaves") or []
        return {str(leaf["name"]): float(leaf["oversubscription"]) for leaf in declared if leaf.get("oversubscription")}

    def oversubscription(self, leaf: str) -> float | None:
        return self._oversubscription.get(leaf)

    def crosses(self, pair: Directed) -> bool:
        """True for nodes on two leaves."""
        return self.leaves.get(pair[0]) != self.leaves.get(pair[1])

    def dilution(self, pair: Directed) -> float | None:
        """By what a flow may be thinner because its leaf's uplinks are; 1 inside a leaf, None if not declared."""
        if not self.crosses(pair):
            return 1.0
        found = [self._oversubscription.get(self.leaves.get(node, "")) for node in pair]
        return max((one for one in found if one), default=None) if all(found) else None

    def due_gbps(self, pair: Directed) -> float | None:
        """What a pair must carry while its whole leaf is busy: the declared speed over the oversubscription."""
        speed, thinner = self.declared_gbps(*pair), self.dilution(pair)
        return speed / thinner if speed and thinner else None

    def switch_of(self, nodes: set[str]) -> str | None:
        """The switch (of any network) on which exactly these nodes hang, of at least two and not of all."""
        asked = set(self.run.nodes)
        found: dict[str, set[str]] = {}
        for node in self.run.inventory.get("nodes") or []:
            for leaf in (node.get("leaf"), *(link.get("leaf") for link in node.get("links") or [])):
                if leaf and node["name"] in asked:
                    found.setdefault(str(leaf), set()).add(str(node["name"]))
        few = len(nodes) < LEAF_NODES or nodes >= asked
        return None if few else next((leaf for leaf in sorted(found) if found[leaf] == nodes), None)

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
    def required_nodes(self) -> tuple[str, ...]:
        """Compute nodes that this run was asked about, alphabetically."""
        return tuple(sorted(self.compute & set(self.run.nodes)))

    @property
    def every_pair(self) -> bool:
        """True where the level's plan holds the whole circle; else a node meets a few partners only."""
        return circles(len(self.required_nodes), self.run.level) > 0

    @property
    def required_pairs(self) -> Iterator[tuple[str, str]]:
        """Pairs that this run was asked about: of every two compute nodes, or none where the plan holds a part."""
        return combinations(self.required_nodes if self.every_pair else (), 2)

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
        return frozenset(r.node for r in self.failures if r.stage == stage and r.what != "slurm-step")

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
