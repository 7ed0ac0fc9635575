"""Results of the node stage: whose fault a failed check is, and one line where many nodes share one cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, cast

from validation.model import CheckResult, Culprit, NodeCheckRecord, Outcome
from validation.verdicts import limits
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings

Kind = Literal["gpu", "node", "link", "switch", "service", "configuration", "cluster", "validator", "software"]
SHOWN = 6
OVER_THE_SWITCH = frozenset({"unreachable", "storage-stale", "mount", "link-speed", "name-resolution", "dns"})
"""What a dead or slow switch brings about on all nodes that hang on it."""


def judge_node_stage(evidence: Evidence) -> Findings:
    findings = Findings()
    failed: dict[tuple[str, str, str], list[NodeCheckRecord]] = defaultdict(list)
    for record in evidence.checks:
        findings.results.append(_result(record))
        if record.outcome is Outcome.FAIL:
            failed[record.culprit_kind, record.culprit, record.cause or record.check].append(record)
        elif record.outcome is Outcome.ERROR:
            findings.doubtful.add(record.node)
        elif record.outcome is Outcome.INCONCLUSIVE:
            findings.doubtful.add(record.node)
            findings.undecided.append(f"{record.check} on {record.node}: {_fact(record)}.")
    for (_, subject, cause), records in failed.items():
        nodes = {record.node for record in records}
        if subject and subject not in nodes and records[0].culprit_kind in ("service", "configuration", "cluster"):
            if _works_elsewhere(records, evidence):
                findings.culprits += [_at_node(record, cause) for record in records]
                continue
            findings.culprits.append(_shared(records, subject, cause, cast(Kind, records[0].culprit_kind)))
        elif cause in OVER_THE_SWITCH and (switch := evidence.switch_of(nodes)):
            findings.culprits.append(_of_switch(evidence, switch, records, cause))
            findings.doubtful |= nodes
        elif is_common(nodes, evidence):
            findings.culprits.append(_common(evidence, records, cause))
            findings.doubtful |= nodes
        else:
            findings.culprits += [_own(record, cause) for record in records]
    _errors(evidence, findings)
    return findings


def _works_elsewhere(records: Sequence[NodeCheckRecord], evidence: Evidence) -> bool:
    """What one node alone misses of a service that others use is that node's: its mount, its way there."""
    first = records[0]
    its_own = first.culprit.endswith(f" on {first.node}")
    alone = first.culprit_kind == "service" and not its_own and len({record.node for record in records}) == 1
    well = {r.node for r in evidence.checks if r.check == first.check and r.outcome is Outcome.PASS}
    return alone and len(well) >= 2


def _at_node(record: NodeCheckRecord, cause: str) -> Culprit:
    facts = (f"{record.check}: {_fact(record)}", f"{record.culprit} works for the other nodes")
    return Culprit(
        kind="node", subject=record.node, cause=cause, evidence=facts, remedy=record.remedy, node=record.node
    )


def is_common(nodes: set[str], evidence: Evidence) -> bool:
    """The same cause on more than half of at least three nodes has its reason outside of them."""
    count = len(evidence.run.nodes)
    return count >= limits.MAJORITY_NODES and len(nodes) > limits.MAJORITY * count


def _own(record: NodeCheckRecord, cause: str) -> Culprit:
    return Culprit(
        kind=cast(Kind, record.culprit_kind),
        subject=record.culprit or record.node,
        cause=cause,
        evidence=(f"{record.check}: {_fact(record)}",),
        remedy=record.remedy,
        node=None if record.culprit_kind in ("validator", "software", "cluster", "switch", "link") else record.node,
    )


def _shared(records: Sequence[NodeCheckRecord], subject: str, cause: str, kind: Kind) -> Culprit:
    """Something that a node needs but that is not its own: a server, a file on the head."""
    facts = tuple(f"{record.node}: {record.check}: {_fact(record)}" for record in records[:SHOWN])
    return Culprit(kind=kind, subject=subject, cause=cause, evidence=facts, remedy=records[0].remedy)


def _common(evidence: Evidence, records: Sequence[NodeCheckRecord], cause: str) -> Culprit:
    nodes = sorted({record.node for record in records})
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    facts = (
        f"{len(nodes)} of {len(evidence.run.nodes)} nodes: {', '.join(nodes[:SHOWN])}{more}",
        f"{records[0].check}: {_fact(records[0])}",
    )
    kind: Kind = "configuration" if records[0].culprit_kind == "configuration" else "cluster"
    then = records[0].remedy
    remedy = f"Look for one reason for all of them first. {then[:1].upper()}{then[1:]}".strip()
    return Culprit(kind=kind, subject=evidence.cluster, cause=cause, evidence=facts, remedy=remedy)


def _of_switch(evidence: Evidence, switch: str, records: Sequence[NodeCheckRecord], cause: str) -> Culprit:
    """Exactly the nodes of one switch have it, and all of them."""
    nodes = sorted({record.node for record in records})
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    facts = (
        f"exactly its {len(nodes)} nodes: {', '.join(nodes[:SHOWN])}{more}",
        f"{records[0].check}: {_fact(records[0])}",
    )
    remedy = f"Look at switch {switch} first: power, uplinks, VLAN; its nodes may be well."
    return Culprit(kind="switch", subject=switch, cause=cause, evidence=facts, remedy=remedy)


def _errors(evidence: Evidence, findings: Findings) -> None:
    """A check that broke is the validator's: one culprit a check, and nobody is drained for it."""
    broken: dict[str, list[NodeCheckRecord]] = defaultdict(list)
    for record in evidence.checks:
        if record.outcome is Outcome.ERROR:
            broken[record.check].append(record)
    for check, records in broken.items():
        facts = tuple(f"{record.node}: {_fact(record)}" for record in records[:SHOWN])
        remedy = records[0].remedy or "The check itself broke, not the node: read the log, mend the check, run again."
        cause = records[0].cause or "check-broken"
        findings.culprits.append(
            Culprit(kind="validator", subject=f"check {check}", cause=cause, evidence=facts, remedy=remedy)
        )


def _fact(record: NodeCheckRecord) -> str:
    parts = [record.measured, f"required {record.required}" if record.required else "", record.evidence]
    return "; ".join(part for part in parts if part) or record.outcome.value


def _result(record: NodeCheckRecord) -> CheckResult:
    return CheckResult(
        subject=record.node, stage="node", check=record.check, outcome=record.outcome, measured=record.measured,
        required=record.required, origin=record.origin, evidence=record.evidence, remedy=record.remedy,
        advice=record.advice,
    )  # fmt: skip
