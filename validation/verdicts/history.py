"""This cluster's own earlier runs as a limit: a fall counts if it is larger than those runs differ among themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from validation.model import CheckResult, Culprit, Outcome, Stage
from validation.verdicts import limits
from validation.verdicts.compute import solo_rates
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings
from validation.verdicts.node_stage import is_common

CAUSE = "slower-than-before"


class Measure(NamedTuple):
    """What is compared from run to run."""

    what: str
    subject: str

    @property
    def key(self) -> str:
        """As it stands in baselines and in the summary of the reports folder."""
        return f"{self.what} {self.subject}"


WORDS: Mapping[str, tuple[str, Stage]] = {
    "sends": ("Gb/s", "pairs"),
    "receives": ("Gb/s", "pairs"),
    "computes": ("samples/s", "training"),
}
"""What of a node is compared: its unit and its stage; all else is a collective of the cluster, in Gb/s."""


def measures(evidence: Evidence) -> dict[Measure, float]:
    """What this run has measured on processors that were not busy; the same function for every run of the history."""
    found: dict[Measure, list[float]] = defaultdict(list)
    for cell in evidence.cells:
        busy = cell.idle_share is not None and cell.idle_share < limits.BUSY_IDLE_SHARE
        if cell.purpose == "plan" and cell.repetitions_gbps and not busy:
            gbps = median(cell.repetitions_gbps)
            found[Measure("sends", cell.src)].append(gbps)
            found[Measure("receives", cell.dst)].append(gbps)
    for node, rate in solo_rates(evidence).items():
        found[Measure("computes", node)].append(rate)
    largest = max((record.bytes for record in evidence.collectives), default=0)
    for record in evidence.collectives:
        busy = record.idle_share is not None and record.idle_share < limits.BUSY_IDLE_SHARE
        if record.bytes == largest >= limits.COLLECTIVE_MIN_BYTES and len(record.nodes) > 1 and not busy:
            what = f"all-reduce of {record.bytes / 1e6:.3g} MB on {len(record.nodes)} nodes:"
            found[Measure(what, evidence.cluster)].append(record.busbw_gbps)
    return {measure: float(f"{median(values):.6g}") for measure, values in found.items()}


@dataclass(frozen=True)
class Fall:
    """A measure far below all earlier runs."""

    measure: Measure
    value: float
    limit: float
    values: Sequence[float]
    last: float | None
    """The run before, if it was not counted because it did not pass either."""

    @property
    def again(self) -> bool:
        return self.last is not None and self.last < self.limit


def limit_of(values: Sequence[float]) -> float:
    """As far below the worst earlier run as those runs lie apart, and by a share of their median at least."""
    spread = (max(values) - min(values)) * (1 + limits.HISTORY_FEW / len(values))
    return min(values) - max(spread, limits.HISTORY_FALL * median(values))


def judge_history(evidence: Evidence, blamed: Collection[str]) -> Findings:
    """A first fall is INCONCLUSIVE; the same fall in the next run names the node (most nodes: the cluster)."""
    findings = Findings()
    history = evidence.run.baselines.get("history") or {}
    known, last = history.get("measures") or {}, history.get("last") or {}
    falls: list[Fall] = []
    for measure, value in measures(evidence).items():
        values = [float(one) for one in known.get(measure.key, ())]
        if len(values) < limits.HISTORY_RUNS:
            continue
        limit = limit_of(values)
        if value >= limit:
            findings.results.append(_row(measure, Outcome.PASS, value, limit, values))
        else:
            falls.append(Fall(measure, value, limit, values, last.get(measure.key)))
    _judge_falls(falls, evidence, blamed, findings)
    if len(evidence.run.nodes) > limits.HISTORY_ROWS_UP_TO:
        findings.results = [row for row in findings.results if row.outcome is not Outcome.PASS]
    return findings


def _judge_falls(falls: Sequence[Fall], evidence: Evidence, blamed: Collection[str], findings: Findings) -> None:
    named: dict[str, list[Fall]] = defaultdict(list)
    for fall in falls:
        measure = fall.measure
        if blamed and (measure.subject in blamed or measure.subject == evidence.cluster):
            note = f"not judged until {', '.join(sorted(blamed))} is repaired"
            findings.results.append(_row(measure, Outcome.SKIPPED, fall.value, fall.limit, fall.values, note))
        elif evidence.rehearsal:
            note = "shown, not judged: the nodes share one machine, which others may use"
            findings.results.append(_row(measure, Outcome.NOT_APPLICABLE, fall.value, fall.limit, fall.values, note))
        elif fall.again:
            named[measure.subject].append(fall)
        else:
            _ask_again(fall, evidence, findings)
    nodes = {subject for subject in named if subject in evidence.run.nodes}
    if is_common(nodes, evidence):
        _name(evidence.cluster, [fall for node in sorted(nodes) for fall in named.pop(node)], evidence, findings)
        findings.doubtful |= nodes
    for subject, mine in named.items():
        _name(subject, mine, evidence, findings)


def _ask_again(fall: Fall, evidence: Evidence, findings: Findings) -> None:
    note = "slower than in any earlier run, though it may still meet what is declared"
    findings.results.append(_row(fall.measure, Outcome.INCONCLUSIVE, fall.value, fall.limit, fall.values, note))
    findings.undecided.append(f"{_fact(fall)}; validate again: a second run as slow names it.")
    if fall.measure.subject in evidence.run.nodes:
        findings.doubtful.add(fall.measure.subject)


def _name(subject: str, falls: Sequence[Fall], evidence: Evidence, findings: Findings) -> None:
    node = subject if subject in evidence.run.nodes else None
    remedy = (
        f"Find what changed {f'on {subject}' if node else 'for all'} since then: cable, port, settings, heat, power, "
        "software. If it was meant, say --new-baseline once."
    )
    facts = tuple(f"{_fact(fall)}; {fall.last:.4g} in the run before" for fall in falls[:6])
    findings.culprits.append(
        Culprit(
            kind="node" if node else "cluster", subject=subject, cause=CAUSE, evidence=facts, remedy=remedy, node=node
        )
    )
    for fall in falls:
        row = _row(fall.measure, Outcome.FAIL, fall.value, fall.limit, fall.values, facts[0])
        findings.results.append(row.model_copy(update={"remedy": remedy}))


def _fact(fall: Fall) -> str:
    what, unit = fall.measure, WORDS.get(fall.measure.what, ("Gb/s", "cluster"))[0]
    low, high = min(fall.values), max(fall.values)
    return f"{what.subject} {what.what} {fall.value:.4g} {unit}, in {len(fall.values)} runs before {low:.4g}–{high:.4g}"


def _row(
    measure: Measure, outcome: Outcome, value: float, limit: float, values: Sequence[float], note: str = ""
) -> CheckResult:
    unit, stage = WORDS.get(measure.what, ("Gb/s", "cluster"))
    return CheckResult(
        subject=measure.subject, stage=stage, check="history", outcome=outcome,
        measured=f"{measure.what} {value:.4g} {unit}", required=f"≥ {limit:.4g} {unit}",
        origin=f"history of {len(values)} runs ({min(values):.4g}–{max(values):.4g})", evidence=note,
    )  # fmt: skip
