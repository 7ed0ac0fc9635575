"""Many simulated runs with known faults: how often the verdict blames the innocent, and finds the guilty."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulator.network import Faults, Noise
from tests.simulator.run import names, pairs_stage
from validation.model import Level, Outcome
from validation.verdicts.evidence import link_name

KINDS = ("node", "one-sided", "link", "two links", "two nodes", "mixed", "all slow", "all slow and one")


@dataclass
class Score:
    """Counts over the runs of one fleet size."""

    healthy: int = 0
    false_alarms: int = 0
    healthy_passed: int = 0
    rounds_healthy: list[int] = field(default_factory=list)
    guilty: int = 0
    named: int = 0
    hits: int = 0
    by_kind: dict[str, list[int]] = field(default_factory=dict)

    @property
    def precision(self) -> float:
        return self.hits / self.named if self.named else 1.0

    @property
    def recall(self) -> float:
        return self.hits / self.guilty if self.guilty else 1.0


@dataclass(frozen=True)
class Case:
    """One faulty fleet and the subjects that must be named."""

    kind: str
    faults: Faults
    guilty: frozenset[str]


HEAVY = 1.0
"""Episodes take up to a third of a node's time."""
USUAL = 0.4
"""Episodes take up to a seventh of a node's time."""


def noise(rng: random.Random, family: str = "lognormal", heaviness: float = HEAVY) -> Noise:
    return Noise(
        family="lognormal" if family == "lognormal" else "dips",
        sigma=rng.uniform(0.03, 0.10),
        host_starts=heaviness * rng.uniform(0.0, 0.06),
        node_starts=heaviness * rng.uniform(0.0, 0.04),
        level=rng.choice((0.94, 1.0)),
    )


def case(kind: str, count: int, rng: random.Random) -> Case:
    """A fault of this kind at random places, leaving 5 to 70 % of the declared speed."""
    nodes = names(count)
    a, b, c, *_ = rng.sample(nodes, 3)
    share, other = rng.uniform(0.05, 0.7), rng.uniform(0.05, 0.7)
    if kind == "node":
        return Case(kind, Faults.nodes(**{a: share}), frozenset({a}))
    if kind == "one-sided":
        faults = Faults(send={a: share}) if rng.random() < 0.5 else Faults(receive={a: share})
        return Case(kind, faults, frozenset({a}))
    if kind == "link":
        return Case(kind, Faults.link(a, b, share), frozenset({link_name(a, b)}))
    if kind == "two links":
        both = {(a, b): share, (b, a): share, (a, c): other, (c, a): other}
        return Case(kind, Faults(links=both), frozenset({link_name(a, b), link_name(a, c)}))
    if kind == "two nodes":
        return Case(kind, Faults.nodes(**{a: share, b: other}), frozenset({a, b}))
    if kind == "mixed":
        faults = Faults(send={a: share}, receive={a: share}, links={(b, c): other, (c, b): other})
        return Case(kind, faults, frozenset({a, link_name(b, c)}))
    if kind == "all slow":
        return Case(kind, Faults(everything=share), frozenset({"sim"}))
    slow = rng.uniform(0.4, 0.7)
    worse = slow * rng.uniform(0.1, 0.5)
    return Case(kind, Faults(send={a: worse}, receive={a: worse}, everything=slow), frozenset({"sim", a}))


def campaign(
    count: int,
    healthy: int,
    faulty: int,
    *,
    family: str = "lognormal",
    level: Level = "standard",
    seed: int = 0,
    heaviness: float = HEAVY,
) -> Score:
    """`faulty` runs of each kind of fault and `healthy` runs without any."""
    score = Score()
    for number in range(healthy):
        rng = random.Random(f"healthy-{count}-{family}-{seed}-{number}")  # noqa: S311 - noise, not a secret
        _, judgement = pairs_stage(
            count, Faults(), noise(rng, family, heaviness), number, level=level, on_round=score.rounds_healthy.append
        )
        score.healthy += 1
        score.false_alarms += bool(judgement.culprits)
        score.healthy_passed += set(judgement.nodes.values()) == {Outcome.PASS}
    for number, (one, quiet) in enumerate(cases(count, faulty, family, seed, heaviness)):
        _, judgement = pairs_stage(count, one.faults, quiet, number, level=level)
        named = {culprit.subject for culprit in judgement.culprits}
        counts = score.by_kind.setdefault(one.kind, [0, 0, 0])
        for index, amount in enumerate((len(one.guilty), len(named & one.guilty), len(named - one.guilty))):
            counts[index] += amount
        score.guilty += len(one.guilty)
        score.named += len(named)
        score.hits += len(named & one.guilty)
    return score


def cases(count: int, faulty: int, family: str, seed: int, heaviness: float = HEAVY) -> Iterator[tuple[Case, Noise]]:
    for kind in KINDS:
        for number in range(faulty):
            rng = random.Random(f"{kind}-{count}-{family}-{seed}-{number}")  # noqa: S311 - noise, not a secret
            yield case(kind, count, rng), noise(rng, family, heaviness)
