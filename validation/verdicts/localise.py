"""From readings of pairs to the nodes, links or the cluster at fault, or to the measurement that would tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from validation.model import WantedFanIn, WantedRound
from validation.schedule import MEDIUM_FLEET
from validation.verdicts import limits
from validation.verdicts.evidence import Directed, Evidence
from validation.verdicts.fan_in import FanIn, rule, wish
from validation.verdicts.fleet import judge_fleet
from validation.verdicts.readings import Readings
from validation.verdicts.retests import Decision, Need, RoundBuilder, decide, decide_link, undirected
from validation.verdicts.suspects import Unit, ends, pair_of, partners_of, suspects

FLEET_NODES = 3
"""Two nodes alone have one link, and nothing tells it from its ends."""


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
        self._suspected = {unit.node for unit in self.first}
        self.found = Located()
        self.cleared: set[Unit] = set()
        self.needs: list[Need] = []

    def locate(self) -> Located:
        if repeats := self._void_rounds():
            self.found.wanted += repeats
            return self.found
        if len(self.readings.nodes) < FLEET_NODES:
            self.judge_links()
        elif self._fleet_is_suspect():
            judge_fleet(self)
        else:
            self.judge_units(sorted(self.first), self._unit_retests)
            self.judge_links()
        builder = RoundBuilder(self.readings, self._is_clear)
        self.found.wanted[:0] = builder.next_rounds(self.needs)
        return self.found

    # --- units ---------------------------------------------------------------------------------------------------

    def judge_units(self, units: list[Unit], decision: Callable[[Unit], Decision]) -> None:
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
        pairs = self.telling_pairs(unit)
        shares = [share for pair in pairs for share in self.readings.retests(pair)]
        return decide(shares, self.readings.voids(pairs))

    def telling_pairs(self, unit: Unit) -> list[Directed]:
        """Pairs with partners that are clear in their direction; with any partner where none is."""
        every = [pair_of(unit, partner) for partner in partners_of(unit, self.readings)]
        pairs = [pair for pair in every if not self.readings.thin(pair)] or every
        return [pair for pair in pairs if not self.first.intersection(set(ends(pair)) - {unit})] or pairs

    def _need(self, unit: Unit) -> Need:
        """The partner least used so far comes first."""
        rounds = {pair: self._retest_rounds(pair) for pair in self.telling_pairs(unit)}
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
        return node not in self._suspected

    # --- links ---------------------------------------------------------------------------------------------------

    def judge_links(self) -> None:
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
        options = [pair]
        if said == "low" and len(self.readings.nodes) > MEDIUM_FLEET:  # thousands of pairs: some episode is long enough
            said, options = self._ends_between(pair)
        if said == "low":
            self.found.links.add(pair)
        elif said != "good":
            self.found.open_pairs[pair] = said
            if said == "more":
                self.needs.append(Need(options, self._retest_rounds(pair)))

    def _link_retests(self, pair: Directed) -> Decision:
        return decide_link(self.readings.retests(pair), self.readings.voids([pair]))

    def _ends_between(self, pair: Directed) -> tuple[Decision, list[Directed]]:
        """Each end must be good with another partner between two low readings of the link; else what to measure.

        An episode on one end may last as long as all retests; it does not end and begin again around a good one.
        """
        low = sorted(r.round for r in self.readings.by_pair[pair] if r.purpose == "retest" and r.share < limits.LOW)
        for unit in ends(pair):
            others = [p for p in self.telling_pairs(unit) if p != pair and self.readings.good(p)]
            later = [r for p in others for r in self.readings.by_pair[p] if r.round > low[0]]
            good = [r.round for r in later if r.share >= limits.CLEAR]
            if not others or any(number < low[-1] for number in good):
                continue
            if good:
                spent = self._retest_rounds(pair) > limits.ALIKE_AT_MOST
                return ("mixed" if spent else "more"), [pair]
            spent = len(later) >= limits.RETESTS_AT_MOST
            return ("mixed" if spent else "more"), sorted(others, key=lambda p: (self._retest_rounds(p), p))
        return "low", [pair]

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

    def relative(self, scale: float) -> Locator:
        """The same question against the fleet's own level: who is worse still?"""
        scaled = self.readings.scaled(scale)
        return Locator(scaled, self.evidence, fan_ins=self.fan_ins, scale=scale * self.scale)

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
