"""Simulated fleets on leaf switches, several random faults at once: what is named, what it costs; a table of it all."""

from __future__ import annotations

import random
import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean

from tests.simulator.campaign import noise
from tests.simulator.network import Fabric, Faults
from tests.simulator.run import names, pairs_stage
from validation.model import Judgement, Level, Outcome, Record
from validation.verdict import judge
from validation.verdicts.evidence import link_name

LEAF_NODES = {8: 4, 64: 8, 512: 32, 1000: 40}
"""Nodes on a leaf; as in the table that is to be beaten, where there is one."""
MIXES = ("one", "several", "bad switches", "all slow", "all slow and one")
Named = tuple[str, str]
"""Kind and subject of a culprit."""


@dataclass(frozen=True)
class Case:
    """A faulty fleet, what must be named, and what may be named besides."""

    faults: Faults
    guilty: frozenset[Named]


@dataclass
class Score:
    """Counts over the runs of one fleet size and mix."""

    runs: int = 0
    alarms: int = 0
    passed: int = 0
    guilty: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    drained_wrongly: int = 0
    rounds: list[int] = field(default_factory=list)
    longest_s: float = 0.0
    """Processor time of the longest judging."""

    def judging(self, records: Sequence[Record]) -> Judgement:
        began = time.process_time()
        found = judge(records)
        self.longest_s = max(self.longest_s, time.process_time() - began)
        return found

    def count(self, guilty: frozenset[Named], judgement: Judgement) -> None:
        named = {(culprit.kind, culprit.subject) for culprit in judgement.culprits}
        self.runs += 1
        self.alarms += bool(named - guilty)
        self.passed += judgement.verdict is not Outcome.FAIL
        for counter, found in ((self.guilty, guilty), (self.hits, guilty & named), (self.wrong, named - guilty)):
            counter.update(kind for kind, _ in found)
        innocent = {culprit.node for culprit in judgement.culprits if culprit.node} - {name for _, name in guilty}
        self.drained_wrongly += len(innocent)


def fabric(count: int, oversubscription: float = 1.0) -> Fabric:
    per = LEAF_NODES.get(count, max(4, count // 8))
    leaves = {node: f"leaf{number // per + 1}" for number, node in enumerate(names(count))}
    return Fabric(leaves, oversubscription)


class Breaker:
    """Puts faults at random places, each where no other hides it."""

    def __init__(self, count: int, rng: random.Random, built: Fabric) -> None:
        self.rng, self.built = rng, built
        self.free = list(names(count))
        rng.shuffle(self.free)
        self.leaves = sorted(set(built.leaves.values()))
        rng.shuffle(self.leaves)
        self.faults = Faults()
        self.guilty: set[Named] = set()

    def share(self) -> float:
        return self.rng.uniform(0.05, 0.7)

    def node(self) -> None:
        node, share, kind = self.free.pop(), self.share(), self.rng.choice(("both", "send", "receive"))
        if kind != "receive":
            self.faults.send[node] = share
        if kind != "send":
            self.faults.receive[node] = share
        self.guilty.add(("node", node))

    def link(self) -> None:
        a, b, share = self.free.pop(), self.free.pop(), self.share()
        self.faults.links.update({(a, b): share, (b, a): share})
        self.guilty.add(("link", link_name(a, b)))

    def switch(self) -> None:
        """An uplink or a whole leaf; nothing else is broken on that leaf, since it would be hidden."""
        leaf, share = self.leaves.pop(), self.share()
        kind = self.faults.switches if len(self.leaves) < 2 or self.rng.random() < 0.4 else self.faults.uplinks
        kind[leaf] = share
        self.free = [node for node in self.free if self.built.leaves[node] != leaf]
        self.guilty.add(("switch", leaf))


def case(mix: str, count: int, rng: random.Random, built: Fabric) -> Case:
    broken = Breaker(count, rng, built)
    most = max(1, len(broken.leaves) // 4)
    if mix == "one":
        rng.choice((broken.node, broken.link, broken.switch))()
    elif mix == "several":
        for _ in range(rng.randint(0, min(2, most)) if len(broken.leaves) > 2 else 0):
            broken.switch()
        for _ in range(rng.randint(2, 3 if count <= 16 else 8)):
            rng.choice((broken.node, broken.node, broken.link))()
    elif mix == "bad switches":
        for _ in range(rng.randint(1, most)):
            broken.switch()
    else:
        return _all_slow(mix, broken, rng)
    return Case(broken.faults, frozenset(broken.guilty))


def _all_slow(mix: str, broken: Breaker, rng: random.Random) -> Case:
    level = rng.uniform(0.3, 0.7)
    guilty: set[Named] = {("cluster", "sim")}
    worse: dict[str, float] = {}
    if mix == "all slow and one":
        node = broken.free.pop()
        worse = {node: level * rng.uniform(0.1, 0.5)}
        guilty.add(("node", node))
    return Case(Faults(send=worse, receive=dict(worse), everything=level), frozenset(guilty))


def score(count: int, mix: str, runs: int, family: str, level: Level, seed: int = 0, thin: float = 1.0) -> Score:
    """`mix` "healthy" or one of MIXES; every run has faults and noise of its own."""
    found = Score()
    built = fabric(count, thin)
    for number in range(runs):
        rng = random.Random(f"{mix}-{count}-{family}-{seed}-{number}")  # noqa: S311 - noise, not a secret
        one = Case(Faults(), frozenset()) if mix == "healthy" else case(mix, count, rng, built)
        quiet = noise(rng, family, 0.4)
        _, judgement = pairs_stage(
            count, one.faults, quiet, number, level=level, on_round=found.rounds.append, fabric=built,
            judging=found.judging,
        )  # fmt: skip
        found.count(one.guilty, judgement)
    return found


def table(sizes: Sequence[int], runs: int, level: Level, families: Sequence[str], thin: float = 1.0) -> Iterator[str]:
    """Lines of Markdown: a row a size, noise family and mix."""
    yield "| N | noise | mix | runs | rounds | wrong | drained wrongly | nodes found | links | switches | cluster |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for count in sizes:
        longest = 0.0
        for family in families:
            for mix in ("healthy", *MIXES):
                times = runs if mix == "healthy" else max(1, runs // 2)
                found = score(count, mix, times, family, level, thin=thin)
                longest = max(longest, found.longest_s)
                kinds = [_found(found, kind) for kind in ("node", "link", "switch", "cluster")]
                cells = [str(count), family, mix, str(times), f"{mean(found.rounds):.1f}", str(found.alarms)]
                yield f"| {' | '.join([*cells, str(found.drained_wrongly), *kinds])} |"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cost = f"longest judging {longest:.2f} s of processor time, memory up to {memory:.0f} MiB"
        yield f"<!-- {count} nodes: {cost} -->"


def _found(score_: Score, kind: str) -> str:
    guilty = score_.guilty[kind]
    text = f"{score_.hits[kind]} of {guilty}" if guilty else "–"
    return text + (f", {score_.wrong[kind]} wrong" if score_.wrong[kind] else "")
