"""Bandwidth of every pair against what is declared: which node, link or whole fleet is slow, and in which direction."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from validation.model import CheckResult, Culprit, Outcome
from validation.verdicts import limits
from validation.verdicts.evidence import Directed, Evidence, link_name
from validation.verdicts.findings import Findings
from validation.verdicts.localise import Located, Locator
from validation.verdicts.readings import Readings, to_reading
from validation.verdicts.suspects import DIRECTIONS, Unit, pair_of, partners_of

CAUSES = {frozenset({"out"}): "network-egress", frozenset({"in"}): "network-ingress"}
BOTH_WAYS = "network"
OPEN_WORDS = {
    "more": "more retests were needed than there was time for",
    "mixed": "its retests disagree or lie between 0.77 and 0.85 of what is declared (marginal)",
    "void": "the control pairs were slow in the same rounds: the host or the switch was busy with something else",
    "fan-in": "two flows at once were not measured often enough",
    "undecidable": "too few partners could load it to tell the node from its links",
    "busy": "the processors were busy, or their idle time was not measured",
    "unsteady": "the fleet's bandwidth changed from round to round",
    "unequal": "the fleet's bandwidths differ too much for one common cause",
}


def judge_bandwidth(evidence: Evidence, without: Iterable[str], dead: Iterable[Directed]) -> Findings:
    """`without`: nodes that are named already; `dead`: directed pairs that do not connect at all."""
    gone, cut = set(without) | evidence.failed_nodes("pairs"), set(dead)
    findings = Findings()
    readings = _readings(evidence, gone, cut)
    located = Locator(readings, evidence, fan_ins=True).locate() if readings.pairs else Located()
    findings.wanted += located.wanted
    story = _Story(evidence, readings, located, findings)
    story.nodes()
    story.links()
    story.cluster()
    story.pairs(gone, cut)
    return findings


def _readings(evidence: Evidence, gone: set[str], cut: set[Directed]) -> Readings:
    found = []
    for cell in evidence.cells:
        declared = evidence.declared_gbps(cell.src, cell.dst)
        if gone.intersection((cell.src, cell.dst)) or (cell.src, cell.dst) in cut or declared is None:
            continue
        if cell.repetitions_gbps and not cell.error:
            found.append(to_reading(cell, median(cell.repetitions_gbps) / declared))
        elif cell.error:
            found.append(to_reading(cell, 0.0))
    return Readings(found)


class _Story:
    """Turns the location into culprits, results and sentences."""

    def __init__(self, evidence: Evidence, readings: Readings, located: Located, findings: Findings) -> None:
        self.evidence, self.readings, self.located, self.findings = evidence, readings, located, findings

    def nodes(self) -> None:
        for node in sorted(self.located.named_nodes()):
            units = [unit for unit in sorted(self.located.named) if unit.node == node]
            cause = CAUSES.get(frozenset(unit.direction for unit in units), BOTH_WAYS)
            facts = [fact for unit in units for fact in self._unit_facts(unit)]
            remedy = (
                f"Check cable, port and NIC of {node}: the negotiated speed (ethtool), errors on NIC and switch port, "
                "and any traffic shaping (tc qdisc); then validate again."
            )
            culprit = Culprit(kind="node", subject=node, cause=cause, evidence=tuple(facts), remedy=remedy, node=node)
            self.findings.culprits.append(culprit)
            measured = " / ".join(self._rate(unit) for unit in units)
            self._result(node, Outcome.FAIL, measured, self._required(node), "; ".join(facts), remedy)
        for unit, why in sorted(self.located.open_units.items()):
            if unit.node in self.located.named_nodes():
                continue
            self.findings.doubtful.add(unit.node)
            self._undecided(f"{unit.node} {'sending' if unit.direction == 'out' else 'receiving'}", why)

    def links(self) -> None:
        for a, b in sorted({tuple(sorted(pair)) for pair in self.located.links}):
            slow = [pair for pair in ((a, b), (b, a)) if pair in self.located.links]
            facts = tuple(self._pair_fact(pair) for pair in slow)
            alone = len(self.readings.nodes) == 2
            told = (
                "two nodes alone can't tell the cable from either end: a third node would"
                if alone
                else "both ends are good with other partners"
            )
            cause = "network" if len(slow) == 2 else "network-one-way"
            remedy = f"Check what only {a} and {b} share: cable, switch ports between them, routes and traffic rules."
            self.findings.culprits.append(
                Culprit(kind="link", subject=link_name(a, b), cause=cause, evidence=(*facts, told), remedy=remedy)
            )
            if alone:
                self.findings.doubtful |= {a, b}
                self.findings.undecided.append(f"Which end of {link_name(a, b)} is slow: measure with a third node.")

    def cluster(self) -> None:
        name, located = self.evidence.cluster, self.located
        if located.cluster:
            levels = [level for pair in self.readings.pairs if (level := self.readings.level(pair)) is not None]
            fact = f"all {len(self.readings.nodes)} nodes alike: median {median(levels):.2f} of what is declared"
            remedy = (
                "Check what all nodes share: the switch and its port speed, the declared speed in the inventory "
                "(speed_gbps), and settings of every node (offloads, MTU, firewall)."
            )
            facts = (fact, f"steady over {len(self.readings.fleet_rounds())} spaced rounds on idle processors")
            self.findings.culprits.append(
                Culprit(kind="cluster", subject=name, cause="network", evidence=facts, remedy=remedy)
            )
            required = f"{limits.LOW:.2f} of the declared speed"
            self._result(name, Outcome.FAIL, f"{median(levels):.2f} of it", required, fact, remedy)
        elif located.unclear_cluster:
            why = OPEN_WORDS.get(located.unclear_cluster, located.unclear_cluster)
            self._undecided("the whole fleet's low bandwidth", located.unclear_cluster)
            self._result(name, Outcome.INCONCLUSIVE, "", "", f"nearly every node is slow, but {why}", "")
        if located.cluster or located.unclear_cluster:
            self.findings.doubtful |= set(self.readings.nodes)

    def pairs(self, gone: set[str], cut: set[Directed]) -> None:
        measured = {(min(pair), max(pair)) for pair in self.readings.pairs}
        for a, b in sorted(measured | set(self.evidence.required_pairs)):
            directions = [(a, b), (b, a)]
            outcome, note = self._pair_outcome(directions, gone, cut)
            shown = " / ".join(f"{self._gbps(pair)} {pair[0]}→{pair[1]}" for pair in directions)
            self._result(link_name(a, b), outcome, f"{shown} Gb/s", self._required(a, b), note, "")
            if outcome is Outcome.INCONCLUSIVE and not self.located.unclear_cluster and (a, b) not in measured:
                self.findings.undecided.append(f"Bandwidth of {link_name(a, b)}: it was not measured; run pairs again.")
        for pair, why in sorted(self.located.open_pairs.items()):
            if why not in ("named", "end"):
                self._undecided(f"link {pair[0]}→{pair[1]}", why)
        asked = {name for pair in self.evidence.required_pairs for name in pair} - gone
        for node in sorted(asked | (self.evidence.compute & set(self.readings.nodes))):
            if not all(self._proved(Unit(node, direction)) for direction in DIRECTIONS):
                self.findings.doubtful.add(node)

    def _proved(self, unit: Unit) -> bool:
        """At least one good pair shows that this direction of the node works."""
        return any(self.readings.good(pair_of(unit, p)) for p in partners_of(unit, self.readings))

    def _pair_outcome(self, directions: list[Directed], gone: set[str], cut: set[Directed]) -> tuple[Outcome, str]:
        named = sorted(self.located.named_nodes().intersection(directions[0]))
        absent = sorted(gone.intersection(directions[0]))
        if any(pair in self.located.links for pair in directions):
            return Outcome.FAIL, "; ".join(self._pair_fact(p) for p in directions if p in self.located.links)
        if absent:
            return Outcome.SKIPPED, f"not judged until {' and '.join(absent)} is repaired"
        if any(pair in cut for pair in directions):
            return Outcome.SKIPPED, "no connection to measure over"
        if any(pair not in self.readings.by_pair for pair in directions):
            return Outcome.INCONCLUSIVE, "not measured in both directions"
        if any(self.located.open_pairs.get(pair) == "named" for pair in directions):
            return Outcome.SKIPPED, f"not judged until {' and '.join(named)} is repaired"
        if any(pair in self.located.open_pairs for pair in directions):
            return Outcome.INCONCLUSIVE, "low, and not decided why"
        if self.located.cluster:
            return Outcome.SKIPPED, "as slow as the whole cluster, which is named"
        if self.located.unclear_cluster:
            return Outcome.INCONCLUSIVE, "low with nearly all pairs, and not decided why"
        return Outcome.PASS, f"{sum(len(self.readings.by_pair[p]) for p in directions)} readings"

    def _unit_facts(self, unit: Unit) -> list[str]:
        fan_in = self.located.named[unit]
        partners = partners_of(unit, self.readings)
        pairs = [pair_of(unit, partner) for partner in partners]
        low = [pair for pair in pairs if not self.readings.good(pair)]
        shares = [share for pair in pairs for share in self.readings.retests(pair)]
        verb = "sends" if unit.direction == "out" else "receives"
        facts = [f"{verb} {self._rate(unit)} ({len(low)} of {len(pairs)} partners low)"]
        if shares:
            facts.append(f"{len(shares)} retests all low, median {median(shares):.2f} of what is declared")
        return facts + list(fan_in.evidence[-1:] if fan_in else ())

    def _rate(self, unit: Unit) -> str:
        pairs = [pair_of(unit, partner) for partner in partners_of(unit, self.readings)]
        found = [gbps for pair in pairs if (gbps := self.evidence.pair_gbps.get(pair)) is not None]
        rate = f"{median(found):.3g} Gb/s" if found else "nothing"
        return f"{rate} {'out' if unit.direction == 'out' else 'in'}"

    def _pair_fact(self, pair: Directed) -> str:
        shares = self.readings.retests(pair)
        return f"{pair[0]}→{pair[1]}: {self._gbps(pair)} Gb/s, low in all {len(shares)} retests"

    def _gbps(self, pair: Directed) -> str:
        level, declared = self.readings.level(pair), self.evidence.declared_gbps(*pair)
        return "–" if level is None or declared is None else f"{level * declared:.3g}"

    def _required(self, *nodes: str) -> str:
        declared = self.evidence.declared_gbps(*nodes)
        return "a declared speed" if declared is None else f"≥ {limits.LOW * declared:.3g} Gb/s"

    def _undecided(self, what: str, why: str) -> None:
        remedy = "run again when the hosts are idle" if why in ("void", "busy", "unsteady") else "run again"
        text = f"Bandwidth of {what}: {OPEN_WORDS.get(why, why)}; {remedy}."
        if text not in self.findings.undecided:
            self.findings.undecided.append(text)

    def _result(self, subject: str, outcome: Outcome, measured: str, required: str, note: str, remedy: str) -> None:
        self.findings.results.append(
            CheckResult(
                subject=subject,
                stage="pairs",
                check="bandwidth",
                outcome=outcome,
                measured=measured,
                required=required,
                origin=f"declared speed × {limits.LOW:.2f}" if required else "",
                evidence=note,
                remedy=remedy,
            )
        )
