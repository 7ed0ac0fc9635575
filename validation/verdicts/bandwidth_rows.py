"""The rows of the bandwidth verdict: one a pair in a small fleet, in a large one those that are not good."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property

from validation.model import CheckResult, Outcome
from validation.verdicts import limits
from validation.verdicts.evidence import Directed, Evidence, link_name
from validation.verdicts.findings import Findings
from validation.verdicts.leaves import Leaves
from validation.verdicts.localise import Located
from validation.verdicts.readings import Readings
from validation.verdicts.suspects import DIRECTIONS, Unit, pair_of, partners_of

ROWS_AT_MOST = 2016
"""All pairs of 64 nodes; beyond, good pairs are counted in one row."""
PARTNERS = 4
"""So many partners a node must have met where the plan holds a part of the circle (of six rounds, two may be byes)."""
LISTED = 6
OPEN_WORDS = {
    "more": "more retests were needed than there was time for",
    "mixed": "its retests disagree or lie between 0.77 and 0.85 of what is declared (marginal)",
    "void": "the control pairs were slow in the same rounds: the host or the switch was busy with something else",
    "fan-in": "two flows at once were not measured often enough",
    "undecidable": "too few partners could load it to tell the node from its links",
    "busy": "the processors were busy, or their idle time was not measured",
    "unsteady": "the fleet's bandwidth changed from round to round",
    "unequal": "the fleet's bandwidths differ too much for one common cause",
    "leaf": "so many slow links of one leaf point at its uplinks, which were good when measured alone",
    "trunk": "low across and good inside both: either end of the way between them may be slow",
}


WAYS_TO_DECIDE = {
    "void": "run again when the hosts are idle",
    "busy": "run again when the hosts are idle",
    "unsteady": "run again when the hosts are idle",
    "more": "run pairs again",
    "mixed": "run pairs again at --level standard; if it stays between, compare cable and port with a good one's",
    "undecidable": "repair what is named first, or let one more node take part, then run pairs again",
    "unequal": "measure a few nodes at a time (--nodes A,B,C)",
    "leaf": "swap the uplinks' ports and cables of that leaf and run pairs again",
}
"""The test that would decide."""


class PairRows:
    """Each pair's outcome, and which nodes no pair has proved."""

    def __init__(
        self, evidence: Evidence, readings: Readings, located: Located, leaves: Leaves, findings: Findings
    ) -> None:
        self.evidence, self.readings, self.located, self.leaves = evidence, readings, located, leaves
        self.findings = findings

    def tell(self, gone: set[str], cut: set[Directed]) -> None:
        measured = {(min(pair), max(pair)) for pair in self.evidence.pair_gbps} | {
            (min(pair), max(pair)) for pair in self.readings.pairs
        }
        pairs = sorted(measured.union(self.evidence.required_pairs))
        few, passed, unmeasured = len(pairs) <= ROWS_AT_MOST, 0, list[str]()
        for a, b in pairs:
            outcome, note = self._outcome(a, b, gone, cut)
            if outcome is Outcome.PASS and not few:
                passed += 1
                continue
            self._row(a, b, outcome, note)
            if outcome is Outcome.INCONCLUSIVE and not self.located.unclear_cluster and (a, b) not in measured:
                unmeasured.append(link_name(a, b))
        if unmeasured:
            what = _listed(unmeasured)
            self.findings.undecided.append(f"Bandwidth of {what}: not measured; run pairs again.")
        if passed or not self.evidence.every_pair:
            self._counted(len(measured), passed)
        self._open_links()
        self._unproved(gone)

    def _row(self, a: str, b: str, outcome: Outcome, note: str) -> None:
        shown = " / ".join(
            f"{shown_gbps(pair, self.readings, self.evidence)} {pair[0]}→{pair[1]}" for pair in ((a, b), (b, a))
        )
        required = required_gbps(self.evidence.due_gbps((a, b)) or self.evidence.declared_gbps(a, b))
        self.findings.results.append(bandwidth_row(link_name(a, b), outcome, f"{shown} Gb/s", required, note))

    def _counted(self, measured: int, passed: int) -> None:
        """One row for all good pairs; where the plan holds a part of the circle it says what that can't find."""
        count = len(self.evidence.required_nodes)
        total = count * (count - 1) // 2
        advice = "" if self.evidence.every_pair else "a part finds slow nodes and leaves; single links need all pairs"
        row = bandwidth_row(
            self.evidence.cluster,
            Outcome.PASS if passed or measured else Outcome.INCONCLUSIVE,
            f"{measured:,} of {total:,} pairs measured",
            f"≥ {limits.LOW:.2f} of what each is due",
            f"{passed:,} good ones are not listed" if passed else "",
        )
        self.findings.results.append(row.model_copy(update={"advice": advice}))

    def _open_links(self) -> None:
        by_reason: dict[str, list[str]] = defaultdict(list)
        for pair, why in sorted(self.located.open_pairs.items()):
            if why not in ("named", "end"):
                by_reason[why].append(f"{pair[0]}→{pair[1]}")
        for why, ways in by_reason.items():
            for what in ways if len(ways) <= LISTED else [_listed(ways)]:
                tell_undecided(self.findings, f"link {what}", why)

    def _unproved(self, gone: set[str]) -> None:
        asked = set(self.evidence.required_nodes) - gone if len(self.evidence.required_nodes) > 1 else set[str]()
        partners = min(PARTNERS, len(asked) - 1)
        alone = []
        for node in sorted(asked | (self.evidence.compute & set(self.readings.nodes))):
            if not all(self._proved(Unit(node, direction)) for direction in DIRECTIONS):
                self.findings.doubtful.add(node)
            elif node in asked and not self.evidence.every_pair and self._met(node) < partners:
                alone.append(node)
        if alone:
            self.findings.doubtful.update(alone)
            what = _listed(alone)
            text = f"Bandwidth of {what}: met fewer than {partners} partners; run pairs again."
            self.findings.undecided.append(text)

    def _proved(self, unit: Unit) -> bool:
        """At least one good pair shows that this direction of the node works."""
        return any(self.readings.good(pair_of(unit, p)) for p in partners_of(unit, self.readings))

    def _met(self, node: str) -> int:
        return min(self._seen[Unit(node, direction)] for direction in DIRECTIONS)

    @cached_property
    def _seen(self) -> Counter[Unit]:
        """Partners with which each direction was measured, whatever it says."""
        pairs = self.evidence.pair_gbps
        return Counter([*(Unit(src, "out") for src, _ in pairs), *(Unit(dst, "in") for _, dst in pairs)])

    def _outcome(self, a: str, b: str, gone: set[str], cut: set[Directed]) -> tuple[Outcome, str]:
        ways = ((a, b), (b, a))
        if any(pair in self.located.links for pair in ways):
            slow = [pair for pair in ways if pair in self.located.links]
            return Outcome.FAIL, "; ".join(pair_fact(pair, self.readings, self.evidence) for pair in slow)
        if absent := sorted(gone.intersection(ways[0])):
            return Outcome.SKIPPED, f"not judged until {' and '.join(absent)} is repaired"
        if any(pair in cut for pair in ways):
            return Outcome.SKIPPED, "no connection to measure over"
        if withheld := next((leaf for pair in ways if (leaf := self.leaves.withheld(pair))), ""):
            named = withheld in self.leaves.named
            why = f"not judged until {withheld} is repaired" if named else f"low, as all over {withheld}"
            return Outcome.SKIPPED if named else Outcome.INCONCLUSIVE, why
        if any(pair not in self.readings.by_pair for pair in ways):
            if self.evidence.dilution((a, b)) is None and (a, b) in self.evidence.pair_gbps:
                return Outcome.INCONCLUSIVE, "the oversubscription of its leaves is not declared"
            return Outcome.INCONCLUSIVE, "not measured in both directions"
        return self._judged(ways)

    def _judged(self, ways: tuple[Directed, Directed]) -> tuple[Outcome, str]:
        if any(self.located.open_pairs.get(pair) == "named" for pair in ways):
            named = sorted(self.located.named_nodes().intersection(ways[0]))
            return Outcome.SKIPPED, f"not judged until {' and '.join(named)} is repaired"
        if any(pair in self.located.open_pairs for pair in ways):
            return Outcome.INCONCLUSIVE, "low, and not decided why"
        if self.located.cluster:
            return Outcome.SKIPPED, "as slow as the whole cluster, which is named"
        if self.located.unclear_cluster:
            return Outcome.INCONCLUSIVE, "low with nearly all pairs, and not decided why"
        return Outcome.PASS, f"{sum(len(self.readings.by_pair[p]) for p in ways)} readings"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def shown_gbps(pair: Directed, readings: Readings, evidence: Evidence) -> str:
    level, due = readings.level(pair) if pair in readings.by_pair else None, evidence.due_gbps(pair)
    gbps = level * due if level is not None and due is not None else evidence.pair_gbps.get(pair)
    return "–" if gbps is None else f"{gbps:.3g}"


def pair_fact(pair: Directed, readings: Readings, evidence: Evidence) -> str:
    count = len(readings.retests(pair))
    return f"{pair[0]}→{pair[1]}: {shown_gbps(pair, readings, evidence)} Gb/s, low in all {count} retests"


def required_gbps(due: float | None) -> str:
    return "a declared speed" if due is None else f"≥ {limits.LOW * due:.3g} Gb/s"


def tell_undecided(findings: Findings, what: str, why: str) -> None:
    remedy = WAYS_TO_DECIDE.get(why, "run pairs again")
    text = f"Bandwidth of {what}: {OPEN_WORDS.get(why, why)}; {remedy}."
    if text not in findings.undecided:
        findings.undecided.append(text)


def bandwidth_row(
    subject: str, outcome: Outcome, measured: str, required: str, evidence: str = "", remedy: str = ""
) -> CheckResult:
    return CheckResult(
        subject=subject, stage="pairs", check="bandwidth", outcome=outcome, measured=measured, required=required,
        origin=f"declared speed × {limits.LOW:.2f}" if required else "", evidence=evidence, remedy=remedy,
    )  # fmt: skip
