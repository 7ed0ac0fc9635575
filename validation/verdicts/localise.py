"""From readings of pairs to the nodes, links or the cluster at fault, or to the measurement that would tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from validation.model import WantedFanIn, WantedRound
from validation.schedule import circle_rounds
from validation.verdicts import limits
from validation.verdicts.evidence import Directed, Evidence
from validation.verdicts.fan_in import FanIn, rule, wish
from validation.verdicts.readings import Reading, Readings
from validation.verdicts.retests import Decision, Need, RoundBuilder, decide, decide_one_of_many, undirected
from validation.verdicts.suspects import Unit, ends, pair_of, partners_of, suspects

FLEET_NODES = 3
"""Two nodes alone have one link, and nothing tells it from its ends."""
FEW_NODES = 4
"""Up to here two slow nodes look like a slow cluster; fan-ins tell them apart."""


@dataclass
class Located:
    """Where the fault is; whatever is in `open_units` or `open_pairs` could not be decided (yet)."""

    named: dict[Unit, FanIn | None] = field(default_factory=dict)
    links: set[Directed] = field(default_factory=set)
    cluster: bool = False
    open_units: dict[Unit, str] = field(default_factory=dict)
    open_pairs: dict[Directed, str] = field(default_factory=dict)
    unclear_cluster: str = ""
    wanted: list[WantedRound | WantedFanIn] = field(default_factory=list)

    def named_nodes(self) -> set[str]:
        return {unit.node for unit in self.named}


class Locator:
    """One metric's readings and the fan-ins (None for a metric that two flows at once say nothing about)."""

    def __init__(self, readings: Readings, evidence: Evidence, *, fan_ins: bool, scale: float = 1.0) -> None:
        self.readings, self.evidence, self.fan_ins, self.scale = readings, evidence, fan_ins, scale
        self.first = suspects(readings)
        self.found = Located()
        self.cleared: set[Unit] = set()
        self.needs: list[Need] = []

    def locate(self) -> Located:
        if repeats := self._void_rounds():
            self.found.wanted += repeats
            return self.found
        if len(self.readings.nodes) < FLEET_NODES:
            self._judge_links()
        elif self._fleet_is_suspect():
            self._judge_fleet()
        else:
            self._judge_units(sorted(self.first), self._unit_retests)
            self._judge_links()
        builder = RoundBuilder(self.readings, self._is_clear)
        self.found.wanted[:0] = builder.next_rounds(self.needs)
        return self.found

    # --- units ---------------------------------------------------------------------------------------------------

    def _judge_units(self, units: list[Unit], decision: Callable[[Unit], Decision]) -> None:
        for unit in units:
            said = decision(unit)
            if said == "good":
                self.cleared.add(unit)
            elif said == "low":
                self._low_unit(unit)
            else:
                self.found.open_units[unit] = said
                if said == "more":
                    self.needs.append(self._need(unit))

    def _unit_retests(self, unit: Unit) -> Decision:
        pairs = self._telling_pairs(unit)
        shares = [share for pair in pairs for share in self.readings.retests(pair)]
        return decide(shares, self.readings.voids(pairs))

    def _telling_pairs(self, unit: Unit) -> list[Directed]:
        """Pairs with partners that are clear in their direction; with any partner where none is."""
        pairs = [pair_of(unit, partner) for partner in partners_of(unit, self.readings)]
        return [pair for pair in pairs if not self.first.intersection(set(ends(pair)) - {unit})] or pairs

    def _need(self, unit: Unit) -> Need:
        """The partner least used so far comes first."""
        rounds = {pair: self._retest_rounds(pair) for pair in self._telling_pairs(unit)}
        return Need(sorted(rounds, key=lambda pair: (rounds[pair], pair)), sum(rounds.values()))

    def _retest_rounds(self, pair: Directed) -> int:
        return sum(r.purpose == "retest" for r in self.readings.by_pair[pair])

    def _low_unit(self, unit: Unit) -> None:
        """Low in every retest: with two or more low partners a fan-in says whether it is the node or its links."""
        low = [p for p in partners_of(unit, self.readings) if not self.readings.good(pair_of(unit, p))]
        if not self.fan_ins or all(not self.readings.level(pair_of(unit, p)) for p in low):
            ruling = FanIn("node" if len(low) > 1 else "undecidable", (), None)
        else:
            ruling = rule(unit, self.evidence, self.readings, self.scale)
        if ruling.ruling == "node":
            self.found.named[unit] = ruling
        elif ruling.ruling == "links":
            self.cleared.add(unit)
        else:
            self.found.open_units[unit] = "fan-in" if ruling.ruling == "open" else "undecidable"
            asked = wish(unit, self.evidence, self.readings, self._calm_partners(unit))
            if ruling.ruling == "open" and asked:
                self.found.wanted.append(asked)
            elif ruling.ruling == "undecidable":
                self._weaker_links(unit, low)

    def _calm_partners(self, unit: Unit) -> list[str]:
        return [p for p in partners_of(unit, self.readings) if self._is_clear(p)]

    def _is_clear(self, node: str) -> bool:
        return not any(unit.node == node for unit in self.first)

    # --- links ---------------------------------------------------------------------------------------------------

    def _judge_links(self) -> None:
        for pair in self.readings.pairs:
            if self._pair_is_fine(pair):
                continue
            units = ends(pair)
            if pair in self.found.links:
                continue
            if any(unit in self.found.named for unit in units):
                self.found.open_pairs[pair] = "named"
            elif any(unit in self.found.open_units for unit in units):
                self.found.open_pairs[pair] = "end"
            else:
                self._judge_link(pair)

    def _pair_is_fine(self, pair: Directed) -> bool:
        level = self.readings.plan_level(pair)
        enough = limits.CLEAR if self.readings.small else limits.LOW
        return self.readings.good(pair) or (level is not None and level >= enough)

    def _judge_link(self, pair: Directed) -> None:
        said = self._link_retests(pair)
        if said == "low":
            self.found.links.add(pair)
        elif said != "good":
            self.found.open_pairs[pair] = said
            if said == "more":
                self.needs.append(Need([pair], self._retest_rounds(pair)))

    def _link_retests(self, pair: Directed) -> Decision:
        controlled = self.readings.small and len(self.readings.nodes) >= FLEET_NODES
        rule_of = decide if controlled else decide_one_of_many
        return rule_of(self.readings.retests(pair), self.readings.voids([pair]))

    def _weaker_links(self, unit: Unit, low: list[str]) -> None:
        """The node carries its best pair: a pair far below that, with a clear partner, is slow by itself."""
        best = max(self.readings.capability(pair_of(unit, partner)) for partner in low)
        for pair in (pair_of(unit, partner) for partner in low):
            other = set(ends(pair)) - {unit}
            weak = self.readings.capability(pair) * limits.FLEET_EQUAL < best
            if weak and not self.first.intersection(other) and not self.readings.good(pair):
                said = self._link_retests(pair)
                if said == "low":
                    self.found.links.add(pair)
                elif said == "more":
                    self.needs.append(Need([pair], self._retest_rounds(pair)))

    # --- the fleet as a whole ------------------------------------------------------------------------------------

    def _fleet_is_suspect(self) -> bool:
        count = len(self.readings.nodes)
        unclear = {d: {u.node for u in self.first if u.direction == d} for d in ("out", "in")}
        return max(len(nodes) for nodes in unclear.values()) > limits.CLUSTER_SHARE * count

    def _judge_fleet(self) -> None:
        """Spaced rounds over all nodes come first; on a busy host nothing is named."""
        rounds = self.readings.fleet_rounds()
        if any(r.idle_ok is not True for readings in rounds for r in readings if r.share < limits.CLEAR):
            self.found.unclear_cluster = "busy"
        elif missing := self._fleet_rounds(len(rounds)):
            self.found.unclear_cluster = "more"
            self.found.wanted += missing
        elif self._few():
            self._judge_few()
        else:
            self._judge_many(rounds)

    def _fleet_rounds(self, done: int) -> list[WantedRound]:
        """What is missing of three circles (few nodes) or three rounds (many); at most one circle at a time."""
        known = {undirected(pair) for pair in self.readings.pairs}
        kept = [tuple(p for p in pairs if undirected(p) in known) for pairs in circle_rounds(self.readings.nodes)]
        circle = [pairs for pairs in kept if pairs]
        needed = limits.FLEET_ROUNDS * (len(circle) if self._few() else 1)
        return [
            WantedRound(purpose="fleet", pairs=circle[number % len(circle)], spacing_s=limits.SPACING_S)
            for number in range(done, min(needed, done + len(circle)))
        ]

    def _few(self) -> bool:
        return len(self.readings.nodes) <= FEW_NODES and self.fan_ins

    def _judge_few(self) -> None:
        """Three or four nodes: fan-ins measure each node by itself, then only links are left, or it is everybody."""
        self._judge_units(sorted(self.first), self._unit_fleet)
        if any(said in ("more", "fan-in") for said in self.found.open_units.values()):
            return
        everybody = {unit.node for unit in self.found.named} == set(self.readings.nodes)
        nobody = not self.found.named and not self.found.open_units
        if everybody or self._most_and_no_good_one():
            self._everybody_named()
        elif nobody and self._equal([self.readings.level(p) or 0 for p in self.readings.pairs]):
            self.found.cluster = True
        else:
            self._judge_links()

    def _most_and_no_good_one(self) -> bool:
        """More than half of the nodes are limited and no other is proved good: the cluster, or it stays open."""
        named = self.found.named_nodes()
        return bool(self.found.open_units) and not self.cleared and 2 * len(named) > len(self.readings.nodes)

    def _unit_fleet(self, unit: Unit) -> Decision:
        pairs = [pair_of(unit, partner) for partner in partners_of(unit, self.readings)]
        said = decide([share for pair in pairs for share in self.readings.retests(pair)], 0)
        return "mixed" if said == "more" else said

    def _everybody_named(self) -> None:
        """All nodes are limited; a node's capacity is at least its best pair's, whatever disturbed a fan-in."""
        capacities = {
            unit: max(found.capacity, *(self.readings.level(p) or 0.0 for p in self._telling_pairs(unit)))
            for unit, found in self.found.named.items()
            if found is not None and found.capacity
        }
        usual = median(capacities.values()) if capacities else 0.0
        worse = {unit for unit, capacity in capacities.items() if capacity * limits.FLEET_EQUAL < usual}
        if self._equal([c for unit, c in capacities.items() if unit not in worse]):
            self.found.cluster = True
            self.found.named = {unit: found for unit, found in self.found.named.items() if unit in worse}
        elif self.found.open_units:
            self.found.unclear_cluster, self.found.named = "unequal", {}

    def _judge_many(self, rounds: list[list[Reading]]) -> None:
        """More than four: steady and equal is the cluster; then each against the fleet, to find who is worse still."""
        medians = sorted(median(r.share for r in readings) for readings in rounds)
        steady = medians[-1] <= limits.STEADY * median(medians)
        levels = sorted(self.readings.level(p) or 0 for p in self.readings.pairs)
        if not steady or not self._most_are_equal():
            self.found.unclear_cluster = "unsteady" if not steady else "unequal"
            return
        self.found.cluster = True
        scale = 1.0 / median(levels)
        relative = Locator(
            self.readings.scaled(scale), self.evidence, fan_ins=self.fan_ins, scale=scale * self.scale
        ).locate()
        if not relative.cluster and not relative.unclear_cluster:
            self.found.named, self.found.links = relative.named, relative.links
            self.found.wanted += relative.wanted
            self.found.open_units, self.found.open_pairs = relative.open_units, relative.open_pairs

    def _most_are_equal(self) -> bool:
        """But for less than a third of the nodes, which may be worse still, all can do the same."""
        best: dict[str, float] = dict.fromkeys(self.readings.nodes, 0.0)
        for pair in self.readings.pairs:
            for node in pair:
                best[node] = max(best[node], self.readings.level(pair) or 0.0)
        usual = median(best.values())
        equal = [share for share in best.values() if share * limits.FLEET_EQUAL >= usual]
        return 3 * (len(best) - len(equal)) < len(best) and self._equal(equal)

    @staticmethod
    def _equal(shares: list[float]) -> bool:
        return bool(shares) and max(shares) <= limits.FLEET_EQUAL * min(shares)

    # --- void rounds ---------------------------------------------------------------------------------------------

    def _void_rounds(self) -> list[WantedRound]:
        """Plan rounds in which the whole fleet was slow are measured again before anybody is suspected."""
        missing = self.readings.unrepeated()
        rounds: dict[int, set[Directed]] = {}
        for pair in missing:
            number = min(r.round for r in self.readings.by_pair[pair])
            rounds.setdefault(number, set()).add(undirected(pair))
        return [
            WantedRound(purpose="fleet", pairs=tuple(sorted(pairs)), spacing_s=limits.SPACING_S)
            for _, pairs in sorted(rounds.items())
        ]
