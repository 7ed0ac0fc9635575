"""Bandwidth of every pair against what is declared: which node, link or whole fleet is slow, and in which direction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from validation.model import Culprit, Outcome
from validation.verdicts import limits
from validation.verdicts.bandwidth_rows import (
    OPEN_WORDS,
    PairRows,
    bandwidth_row,
    pair_fact,
    required_gbps,
    tell_undecided,
)
from validation.verdicts.evidence import Directed, Evidence, link_name
from validation.verdicts.findings import Findings
from validation.verdicts.leaf_words import tell_leaves
from validation.verdicts.leaves import judge_leaves
from validation.verdicts.localise import Located, Locator
from validation.verdicts.readings import Reading, Readings, to_reading
from validation.verdicts.suspects import Unit, pair_of, partners_of

CAUSES = {frozenset({"out"}): "network-egress", frozenset({"in"}): "network-ingress"}
BOTH_WAYS = "network"


def judge_bandwidth(evidence: Evidence, without: Iterable[str], dead: Iterable[Directed]) -> Findings:
    """`without`: nodes that are named already; `dead`: directed pairs that do not connect at all."""
    gone, cut = set(without) | evidence.failed_nodes("pairs"), set(dead)
    findings = Findings()
    found, of_leaves, thinner = _readings(evidence, gone, cut)
    readings = Readings(found, thinner)
    leaves = judge_leaves(readings, of_leaves, evidence)
    if leaves.ports or leaves.whole or leaves.spine or leaves.trunk:
        readings = Readings((r for r in found if not leaves.withheld(r.pair)), thinner)
    located = Locator(readings, evidence, fan_ins=True).locate() if readings.pairs else Located()
    _leave_to_leaf(located, evidence)
    findings.wanted += [*leaves.wanted, *located.wanted]
    tell_leaves(leaves, evidence, findings)
    story = _Story(evidence, readings, located, findings)
    story.nodes()
    story.links()
    story.cluster()
    PairRows(evidence, readings, located, leaves, findings).tell(gone, cut)
    return findings


def _readings(
    evidence: Evidence, gone: set[str], cut: set[Directed]
) -> tuple[list[Reading], list[Reading], dict[Directed, float]]:
    """Readings of nodes and links, those of whole-leaf rounds, and by how much pairs across are due less."""
    found, of_leaves, thinner = list[Reading](), list[Reading](), dict[Directed, float]()
    for cell in evidence.cells:
        pair = cell.src, cell.dst
        declared = evidence.declared_gbps(*pair)
        if gone.intersection(pair) or pair in cut or declared is None:
            continue
        share = 0.0 if cell.error else median(cell.repetitions_gbps) / declared if cell.repetitions_gbps else None
        thin = evidence.dilution(pair)
        if share is None or (thin is None and share < limits.CLEAR):
            continue  # nothing says how much of a low reading the uplinks explain
        reading = to_reading(cell, share * (thin or 1.0))
        (of_leaves if cell.purpose == "leaf" else found).append(reading)
        if thin and thin > 1.0:
            thinner[pair] = thin
    return found, of_leaves, thinner


def _leave_to_leaf(located: Located, evidence: Evidence) -> None:
    """Slow links across of most nodes of one leaf: nobody believes in so many cables, so none is named."""
    links: dict[str, set[Directed]] = defaultdict(set)
    for pair in located.links:
        if evidence.crosses(pair):
            for node in pair:
                links[evidence.leaves[node]].add((node, link_name(*pair)))
    for leaf, found in links.items():
        size = sum(other == leaf for other in evidence.leaves.values())
        many = len({link for _, link in found}) >= limits.LEAF_LINKS
        if many and 2 * len({node for node, _ in found}) > size:
            mine = {pair for pair in located.links if leaf in {evidence.leaves.get(node) for node in pair}}
            located.links -= mine
            located.open_pairs.update(dict.fromkeys(sorted(mine), "leaf"))


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
            measured = " / ".join(f"{self._rate(unit)} {unit.direction}" for unit in units)
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
        return f"{median(found):.3g} Gb/s" if found else "nothing"

    def _pair_fact(self, pair: Directed) -> str:
        return pair_fact(pair, self.readings, self.evidence)

    def _required(self, *nodes: str) -> str:
        return required_gbps(self.evidence.declared_gbps(*nodes))

    def _undecided(self, what: str, why: str) -> None:
        tell_undecided(self.findings, what, why)

    def _result(self, subject: str, outcome: Outcome, measured: str, required: str, evidence: str, remedy: str) -> None:
        self.findings.results.append(bandwidth_row(subject, outcome, measured, required, evidence, remedy))
