"""A simulated network: pair bandwidth is the least of sender, receiver and link, times noise that comes in episodes."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from validation.model import CellRecord, FanInRecord

Pair = tuple[str, str]
Purpose = Literal["plan", "retest", "control", "fleet", "leaf"]
ROUND_S = 1.5
"""A round of one pair a node at 1 Gb/s takes about so long."""


@dataclass(frozen=True)
class Faults:
    """Shares of the declared speed that are left; whatever is not listed is healthy."""

    send: dict[str, float] = field(default_factory=dict)
    receive: dict[str, float] = field(default_factory=dict)
    links: dict[Pair, float] = field(default_factory=dict)
    everything: float = 1.0
    uplinks: dict[str, float] = field(default_factory=dict)
    """Leaf → share of its uplinks' capacity that is left."""
    switches: dict[str, float] = field(default_factory=dict)
    """Leaf → share left of every flow through it."""
    spine: float = 1.0

    @classmethod
    def nodes(cls, **shares: float) -> Faults:
        return cls(send=dict(shares), receive=dict(shares))

    @classmethod
    def link(cls, a: str, b: str, share: float) -> Faults:
        return cls(links={(a, b): share, (b, a): share})


@dataclass(frozen=True)
class Fabric:
    """Node → leaf, and by what the uplinks are thinner than the nodes' ports together; one switch without leaves."""

    leaves: dict[str, str] = field(default_factory=dict)
    oversubscription: float = 1.0


@dataclass(frozen=True)
class Noise:
    """`sigma` a repetition; episodes start with `starts` a round and last `rounds` on average."""

    family: Literal["lognormal", "dips"] = "lognormal"
    sigma: float = 0.05
    host_starts: float = 0.03
    node_starts: float = 0.02
    rounds: float = 2.0
    level: float = 0.94
    busy: bool = False
    """The host is busy all the time: everything is slow and the processors are never idle."""
    shows_idle: bool = False
    """Host-wide episodes are seen in the idle share; else the judge has only its controls."""


@dataclass
class Episode:
    until_s: float = -1.0
    factor: float = 1.0


class Network:
    """Measures rounds and fan-ins; time goes on with every round and every pause."""

    def __init__(
        self, nodes: Sequence[str], declared: dict[str, float], faults: Faults, noise: Noise, seed: int,
        fabric: Fabric | None = None,
    ) -> None:  # fmt: skip
        self.nodes, self.declared, self.faults, self.noise = tuple(nodes), declared, faults, noise
        self.fabric = fabric or Fabric()
        self.uplink_gbps: dict[str, float] = defaultdict(float)
        for node, leaf in self.fabric.leaves.items():
            left = faults.uplinks.get(leaf, 1.0) * faults.spine
            self.uplink_gbps[leaf] += declared[node] * left / self.fabric.oversubscription
        self.random = random.Random(seed)  # noqa: S311 - noise, not a secret
        self.now_s, self.round = 0.0, 0
        self.host = Episode()
        self.node = {name: Episode() for name in nodes}

    def run_round(
        self,
        pairs: Iterable[Pair],
        purpose: Purpose,
        controls: Iterable[Pair] = (),
    ) -> list[CellRecord]:
        """All pairs at the same time, both directions one after the other."""
        checked, pairs = set(controls), tuple(pairs)
        cells: list[CellRecord] = []
        for ways in (pairs, [(b, a) for a, b in pairs]):
            loads = Counter(port for src, dst in ways for port in self._ports(src, dst))
            for src, dst in ways:
                control = checked.intersection([(src, dst), (dst, src)])
                cells.append(self._cell(src, dst, "control" if control else purpose, loads))
        self._advance(ROUND_S)
        return cells

    def run_fan_in(self, target: str, direction: Literal["in", "out"], partners: Pair) -> FanInRecord:
        flows = [(p, target) if direction == "in" else (target, p) for p in partners]
        own = (self.faults.receive if direction == "in" else self.faults.send).get(target, 1.0)
        cap = self.declared[target] * min(own, self.faults.everything) * self.noise.level
        noise = self._episodes(target, *partners)
        single = self._true_gbps(*flows[0], Counter()) * noise * self._wobble()
        loads = Counter(port for flow in flows for port in self._ports(*flow))
        total = min(cap, sum(self._true_gbps(*flow, loads) for flow in flows)) * noise * self._wobble()
        record = FanInRecord(
            round=self.round, target=target, direction=direction, partners=partners, single_gbps=single,
            total_gbps=total, at_s=self.now_s,
        )  # fmt: skip
        self._advance(2 * ROUND_S)
        return record

    def pause(self, seconds: float) -> None:
        self._advance(seconds, counts=False)

    def _cell(self, src: str, dst: str, purpose: Purpose, loads: Counter[tuple[str, str]]) -> CellRecord:
        gbps = self._true_gbps(src, dst, loads) * self._episodes(src, dst)
        repetitions = tuple(gbps * self._wobble() for _ in range(3))
        calm = self.host.until_s <= self.now_s or not self.noise.shows_idle
        idle = 0.02 if self.noise.busy or not calm else 0.5
        p50 = 120.0 * self._wobble()
        return CellRecord(
            round=self.round, purpose=purpose, src=src, dst=dst, message_bytes=16_000_000, repetitions_gbps=repetitions,
            latency_us=(p50, 4 * p50), verified=True, at_s=self.now_s, idle_share=idle,
        )  # fmt: skip

    def _ports(self, src: str, dst: str) -> list[tuple[str, str]]:
        """The uplinks that this flow shares with others."""
        a, b = self.fabric.leaves.get(src, ""), self.fabric.leaves.get(dst, "")
        return [] if a == b else [(a, "out"), (b, "in")]

    def _true_gbps(self, src: str, dst: str, loads: Counter[tuple[str, str]]) -> float:
        """The least of both ends, the link, their switches, and a fair share of each uplink on the way."""
        f = self.faults
        share = min(f.send.get(src, 1.0), f.receive.get(dst, 1.0), f.links.get((src, dst), 1.0), f.everything)
        share = min(share, *(f.switches.get(self.fabric.leaves.get(node, ""), 1.0) for node in (src, dst)))
        gbps = min(self.declared[src], self.declared[dst]) * share
        parts = [self.uplink_gbps[port[0]] / max(1, loads[port]) for port in self._ports(src, dst)]
        return min([gbps, *parts]) * self.noise.level

    def _wobble(self) -> float:
        if self.noise.family == "lognormal":
            return math.exp(self.random.gauss(0.0, self.noise.sigma))
        dip = self.random.uniform(0.2, 0.9) if self.random.random() < self.noise.sigma else 1.0
        return max(0.05, dip * (1.0 + self.random.gauss(0.0, self.noise.sigma / 4)))

    def _episodes(self, *nodes: str) -> float:
        factors = [self.host.factor if self.host.until_s > self.now_s else 1.0]
        factors += [self.node[n].factor if self.node[n].until_s > self.now_s else 1.0 for n in nodes]
        if self.noise.busy:
            factors.append(self.random.uniform(0.3, 0.8))
        return min(factors)

    def _advance(self, seconds: float, counts: bool = True) -> None:
        self.now_s += seconds
        self.round += counts
        share = seconds / ROUND_S
        for episode, starts in [
            (self.host, self.noise.host_starts),
            *((e, self.noise.node_starts) for e in self.node.values()),
        ]:
            if episode.until_s <= self.now_s and self.random.random() < starts * share:
                episode.until_s = self.now_s + self.random.expovariate(1.0 / (self.noise.rounds * ROUND_S))
                episode.factor = self.random.uniform(0.3, 0.8)
