"""Puts the records of a believable run together, stage by stage, with the faults that a test asks for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations

from inventory.hardware import FoundNic, FoundNode, HardwareLock
from inventory.model import Cluster, Network, Node, Substrate
from validation.model import (
    CellRecord,
    CheckResult,
    CollectiveRecord,
    Culprit,
    Judgement,
    NodeCheckRecord,
    Outcome,
    ReachRecord,
    Record,
    RunRecord,
    StageRecord,
    TrainingRecord,
)

RESULTS_SHA256 = "5e" * 32
VERSIONS = {"python": "3.13.5", "torch": "2.6.0", "numpy": "2.2.4", "slurm": "24.11.5", "kernel": "6.12.117"}
_NODE_CHECKS = (
    ("host-name", "{node}", "{node}", "inventory"),
    ("clock-offset", "0.4 ms", "≤ 1 s", "munge refuses credentials at 5 min"),
    ("services", "munge, slurmd, ssh, chrony active", "all active", "role of the node"),
    ("name-resolution", "itself and 3 peers", "itself and every peer, none to 127.0.0.0/8", "inventory"),
    ("disk-space", "/ 61 %, /tmp 61 %, /var 61 % used", "≤ 90 % used", "room for one run's logs"),
    ("versions", "torch 2.6.0, numpy 2.2.4, Slurm 24.11.5", "as the majority of nodes", "peers"),
    ("hardware-lock", "2 cores, 23.4 GiB", "2 cores, 23.4 GiB ± 5 %", "hardware lock"),
    ("shm", "11.7 GiB", "≥ 1 GiB", "data loaders share batches there"),
)


@dataclass
class Sample:
    """A run's records and what a judge would say of them."""

    records: list[Record]
    judgement: Judgement
    results_sha256: str = RESULTS_SHA256


@dataclass
class Builder:
    """Puts a run together; `slow` gives the share of the declared speed that a direction reaches."""

    nodes: tuple[str, ...] = ("head", "n1", "n2", "n3")
    substrate: Substrate = "rehearsal"
    slow: dict[tuple[str, str], float] = field(default_factory=dict)
    cut: frozenset[frozenset[str]] = frozenset()
    partial: bool = False
    records: list[Record] = field(default_factory=list)
    noise: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - not for secrets

    @property
    def cluster(self) -> Cluster:
        return Cluster(
            name="lab",
            substrate=self.substrate,
            networks=(Network(name="lan", cidr="10.77.0.0/16", speed_gbps=1),),
            nodes=tuple(
                Node(
                    name=name,
                    address=f"10.77.{(10 + at) // 250}.{(10 + at) % 250 + 1}",
                    roles=("compute",) if at else ("controller",),
                )
                for at, name in enumerate(self.nodes)
            ),
        )

    @property
    def lock(self) -> HardwareLock:
        nic = FoundNic(name="host0", speed_mbps=None, mtu=1500, address="")
        node = FoundNode(architecture="x86_64", virtualisation="systemd-nspawn", distribution="debian", release="13",
                         cpu_model="Intel Xeon Platinum 8481C", sockets=1, cores_per_socket=2, threads_per_core=1,
                         memory_mib=24_000, gpus=(), nics=(nic,), disks=(), cgroup_controllers=())  # fmt: skip
        return HardwareLock(nodes=dict.fromkeys(self.nodes, node))

    @property
    def ranks(self) -> tuple[str, ...]:
        return self.nodes[1:]

    def begin(self) -> None:
        self.records.append(
            RunRecord(
                run_id="20261003T101500Z-4f2a",
                version="0.1.0",
                level="quick",
                stages=("node", "pairs", "cluster", "training"),
                nodes=self.nodes,
                partial=self.partial,
                launcher="ssh",
                started_at="2026-10-03T10:15:00.250000+00:00",
                inventory=self.cluster.model_dump(mode="json"),
                lock=self.lock.model_dump(mode="json"),
                substrate=self.substrate,
            )
        )

    def stage(self, stage: str, seconds: float, status: str = "done", reason: str = "") -> None:
        self.records.append(
            StageRecord.model_validate({"stage": stage, "status": status, "reason": reason, "seconds": seconds})
        )

    def node_checks(self, failed: Sequence[NodeCheckRecord] = ()) -> None:
        bad = {(record.node, record.check): record for record in failed}
        for node in self.nodes:
            for check, measured, required, origin in _NODE_CHECKS:
                self.records.append(
                    bad.get((node, check))
                    or NodeCheckRecord(
                        node=node,
                        check=check,
                        outcome=Outcome.PASS,
                        measured=measured.format(node=node),
                        required=required.format(node=node),
                        origin=origin,
                        facts=dict(VERSIONS) if check == "versions" else {},
                    )
                )
        self.stage("node", 6.2)

    def share(self, src: str, dst: str) -> float:
        return self.slow.get((src, dst), 0.944)

    def pairs(self, rounds: int = 2) -> None:
        at_s = 6.5
        for src, dst in permutations(self.nodes, 2):
            cut = frozenset((src, dst)) in self.cut
            self.records.append(
                ReachRecord(src=src, dst=dst, port=40001, ok=not cut, connect_ms=None if cut else 0.2,
                            error="timeout" if cut else "")
            )  # fmt: skip
        for at in range(rounds):
            for src, dst in permutations(self.nodes, 2):
                if frozenset((src, dst)) not in self.cut:
                    self.records.append(self._cell(src, dst, at, at_s))
            at_s += 4.0
        self.stage("pairs", 19.4)

    def _cell(self, src: str, dst: str, at: int, at_s: float) -> CellRecord:
        share = self.share(src, dst)
        rates = tuple(round(share * self.noise.uniform(0.985, 1.0), 4) for _ in range(3))
        p50 = self.noise.uniform(48, 64) / min(1.0, share + 0.2)
        return CellRecord(
            round=at,
            purpose="plan",
            src=src,
            dst=dst,
            message_bytes=16_000_000,
            repetitions_gbps=rates,
            latency_us=(round(p50, 1), round(p50 * 2.1, 1)),
            verified=True,
            at_s=at_s,
            idle_share=0.6,
        )

    def collectives(self) -> None:
        slowest = min(self.share(a, b) for a, b in permutations(self.ranks, 2))
        for size, efficiency in ((4_000, 0.02), (1_000_000, 0.62), (16_000_000, 0.96)):
            busbw = slowest * efficiency
            n = len(self.ranks)
            took = size * 8 / 1e9 * 2 * (n - 1) / n / busbw
            self.records.append(
                CollectiveRecord(
                    op="all_reduce",
                    nodes=self.ranks,
                    bytes=size,
                    seconds=tuple(round(took * self.noise.uniform(0.98, 1.06), 6) for _ in range(5)),
                    busbw_gbps=round(busbw, 4),
                    verified=dict.fromkeys(self.ranks, True),
                )
            )
        self.stage("cluster", 4.1)

    def training(self) -> None:
        for count in sorted({1, 2, len(self.ranks)}):
            self.records.append(self._training(self.ranks[:count]))
        self.stage("training", 14.8)

    def _training(self, nodes: tuple[str, ...]) -> TrainingRecord:
        slowest = min((self.share(a, b) for a, b in permutations(nodes, 2)), default=1.0)
        count, steps = len(nodes), 40
        compute, gradient_bytes = 0.020 * max(1.0, count / 2), 1_600_000
        comm = 2 * (count - 1) / count * gradient_bytes * 8 / (slowest * 1e9)

        def times(base: float) -> dict[str, tuple[float, ...]]:
            return {
                node: tuple(round(base * self.noise.lognormvariate(0.02, 0.08), 6) for _ in range(steps - 5))
                for node in nodes
            }

        computing, waiting = times(compute), times(comm) if count > 1 else {}
        return TrainingRecord(
            mode="ddp",
            nodes=nodes,
            seed=17,
            global_batch=192,
            steps=steps,
            warmup_steps=5,
            losses=tuple(round(2.3 * 0.93**step + 0.12 + self.noise.uniform(0, 0.02), 5) for step in range(steps)),
            step_seconds={
                node: tuple(a + b for a, b in zip(computing[node], waiting.get(node, (0.0,) * steps), strict=False))
                for node in nodes
            },
            compute_seconds=computing,
            comm_seconds=waiting,
            parameter_sha256=dict.fromkeys(nodes, "ab" * 32),
            gradient_bytes=gradient_bytes,
            cpu_share=dict.fromkeys(nodes, 0.6),
            idle_share=0.2,
        )

    def judged(self, culprits: Sequence[Culprit] = (), results: Sequence[CheckResult] = (), **extra: object) -> Sample:
        """A judgement with PASS for every node check and link, but for what `results` says of the same subject."""
        said = {(result.subject, result.check) for result in results}
        found = [
            CheckResult(subject=record.node, stage="node", check=record.check, outcome=record.outcome,
                        measured=record.measured, required=record.required, origin=record.origin,
                        evidence=record.evidence, remedy=record.remedy, advice=record.advice)
            for record in self.records if isinstance(record, NodeCheckRecord)
        ]  # fmt: skip
        whole = (
            CheckResult(subject="lab", stage="cluster", check="all-reduce", outcome=Outcome.PASS,
                        measured="0.91 Gb/s at 16 MB", required="≥ 0.79 Gb/s", origin="slowest pair ÷ 1.15"),
            CheckResult(subject="lab", stage="training", check="loss-falls", outcome=Outcome.PASS,
                        measured="2.4 → 0.27", required="last quarter < 0.9 × first", origin="same seed, fixed data"),
        )  # fmt: skip
        found += [
            CheckResult(subject=f"{a}–{b}", stage="pairs", check="bandwidth", outcome=Outcome.PASS,
                        measured="0.94 / 0.94 Gb/s", required="≥ 0.80 Gb/s", origin="declared 1 Gb/s × 0.80")
            for a, b in combinations(self.nodes, 2)
            if frozenset((a, b)) not in self.cut and (f"{a}–{b}", "bandwidth") not in said
            and not {(a, b), (b, a)} & set(self.slow)
        ]  # fmt: skip
        found += [result for result in whole if (result.subject, result.check) not in said]
        found += results
        verdict = Outcome(str(extra.pop("verdict", Outcome.FAIL if culprits else Outcome.PASS)))
        drained = {culprit.node for culprit in culprits}
        nodes = {name: Outcome.FAIL if name in drained else Outcome.PASS for name in self.nodes}
        judgement = Judgement.model_validate(
            {"verdict": verdict, "culprits": tuple(culprits), "results": tuple(found), "nodes": nodes, **extra}
        )
        return Sample(records=self.records, judgement=judgement)
