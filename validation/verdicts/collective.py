"""All-reduce over all nodes: verified first, then its bandwidth against what the slowest pair allows."""

from __future__ import annotations

from collections.abc import Collection

from validation.model import CheckResult, CollectiveRecord, Culprit, Outcome
from validation.verdicts import limits
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings

LEAST_PARTNERS = 2
"""One slow partner may be the link's or the partner's fault."""


def judge_collectives(evidence: Evidence, blamed: Collection[str]) -> Findings:
    """`blamed`: nodes that pairs have named; a collective over them is slow because of them."""
    findings = Findings()
    for record in evidence.collectives:
        _judge_data(record, evidence, findings)
    whole = [record for record in evidence.collectives if not record.part_of]
    full = [r for r in whole if r.bytes >= limits.COLLECTIVE_MIN_BYTES and len(r.nodes) > 1]
    if full:
        largest = max(record.bytes for record in full)
        for record in full:
            if record.bytes == largest:
                _judge_speed(record, evidence, blamed, findings)
    return findings


def _judge_data(record: CollectiveRecord, evidence: Evidence, findings: Findings) -> None:
    wrong = sorted(node for node, right in record.verified.items() if not right)
    size = f"all-reduce of {record.bytes / 1e6:.3g} MB"
    if not wrong:
        note = f"{size}: right on {len(record.verified)} nodes"
        findings.results.append(_row(evidence.cluster, "collective-data", Outcome.PASS, note))
        return
    fact = f"{size}: wrong on {', '.join(wrong)} of {len(record.nodes)} nodes"
    few = 2 * len(wrong) < len(record.nodes)
    carried = [r for r in evidence.transports if set(r.nodes) == set(record.nodes) and not any(r.wrong.values())]
    remedy = (
        f"Do not train on {', '.join(wrong)}: test memory and NIC there."
        if few
        else "Every part of an all-gather arrives as sent, so a rank adds wrongly: halves of the cluster say which."
        if carried
        else "Every rank gets the same wrong sum, so the sum can't say whose it is; halves of the cluster can."
    )
    for node in wrong if few else [None]:
        findings.culprits.append(
            Culprit(
                kind="node" if node else "cluster",
                subject=node or evidence.cluster,
                cause="data-corruption",
                evidence=(fact,),
                remedy=remedy,
                node=node,
            )
        )
    if not few:
        findings.doubtful |= set(record.nodes)
    findings.results.append(_row(wrong[0] if few else evidence.cluster, "collective-data", Outcome.FAIL, fact, remedy))


def _judge_speed(record: CollectiveRecord, evidence: Evidence, blamed: Collection[str], findings: Findings) -> None:
    slowest = slowest_pair_gbps(record.nodes, evidence)
    size = f"all-reduce of {record.bytes / 1e6:.3g} MB on {len(record.nodes)} nodes"
    measured = f"{record.busbw_gbps:.3g} Gb/s bus bandwidth"
    if slowest is None:
        note = "its pairs were not measured, so there is nothing to compare with"
        findings.results.append(_speed(evidence.cluster, Outcome.INCONCLUSIVE, measured, "", note))
        findings.undecided.append(f"Bandwidth of the {size}: {note}; run stage pairs too.")
        return
    due = slowest / limits.COLLECTIVE_SLACK
    required = f"≥ {due:.3g} Gb/s"
    best = _best_gbps(record)
    busy = record.idle_share is not None and record.idle_share < limits.BUSY_IDLE_SHARE
    if record.busbw_gbps >= due or best >= due:
        advice = "" if record.busbw_gbps >= due else f"unsteady: {best:.3g} Gb/s at best, the median is below the limit"
        findings.results.append(_speed(evidence.cluster, Outcome.PASS, measured, required, size, advice))
    elif blamed:
        note = f"{size}: with {', '.join(sorted(blamed))} in it, not judged until that is repaired"
        findings.results.append(_speed(evidence.cluster, Outcome.SKIPPED, measured, required, note))
    elif busy:
        note = f"{size}: the processors were busy (idle share {record.idle_share:.2f})"
        findings.results.append(_speed(evidence.cluster, Outcome.INCONCLUSIVE, measured, required, note))
        findings.undecided.append(f"{note[0].upper()}{note[1:]}; run again when the hosts are idle.")
        findings.doubtful |= set(record.nodes)
    elif slow := slow_in_every_part(record, evidence):
        for node in slow:
            _blame_node(node, record, evidence, findings, f"{size}: {measured}, {required} by the slowest pair")
        findings.results.append(_speed(evidence.cluster, Outcome.FAIL, measured, required, size))
    else:
        _blame(record, evidence, findings, f"{size}: {measured}, {required} by the slowest pair", required, measured)


def _blame(
    record: CollectiveRecord, evidence: Evidence, findings: Findings, fact: str, required: str, measured: str
) -> None:
    remedy = (
        "All pairs are good one at a time: look at the switch under full load (drops, pause frames, its backplane)."
    )
    findings.culprits.append(
        Culprit(
            kind="cluster",
            subject=evidence.cluster,
            cause="collective",
            remedy=remedy,
            evidence=(fact, "all pairs are good when they are measured alone"),
        )
    )
    findings.doubtful |= set(record.nodes)
    row = _speed(evidence.cluster, Outcome.FAIL, measured, required, fact)
    findings.results.append(row.model_copy(update={"remedy": remedy}))


def slow_in_every_part(record: CollectiveRecord, evidence: Evidence) -> list[str]:
    """Nodes that were slow with every single partner, if they explain all that was slow and are a minority."""
    parts = [part for part in evidence.collectives if part.part_of == record.nodes]
    slow = [part for part in parts if _is_slow(part, evidence)]
    good = {node for part in parts if part not in slow for node in part.nodes}
    tried = [node for part in slow for node in part.nodes]
    named = sorted(node for node in set(tried) - good if tried.count(node) >= LEAST_PARTNERS)
    explained = all(set(part.nodes) & set(named) for part in slow)
    return named if named and explained and 2 * len(named) < len(record.nodes) else []


def _is_slow(part: CollectiveRecord, evidence: Evidence) -> bool:
    slowest = slowest_pair_gbps(part.nodes, evidence)
    return slowest is not None and _best_gbps(part) < slowest / limits.COLLECTIVE_SLACK


def _blame_node(node: str, record: CollectiveRecord, evidence: Evidence, findings: Findings, fact: str) -> None:
    parts = [part for part in evidence.collectives if part.part_of == record.nodes]
    with_it = [f"{part.busbw_gbps:.3g}" for part in parts if node in part.nodes]
    without = [f"{part.busbw_gbps:.3g}" for part in parts if node not in part.nodes and not _is_slow(part, evidence)]
    remedy = (
        f"Compare {node}'s network settings with the others': sysctl -a | grep -E 'net.(core|ipv4.tcp)', ethtool -k, "
        "ethtool -l, interrupts: it sends or receives alone well enough, and not both at once."
    )
    facts = (
        fact,
        f"all-reduces of two nodes with {node}: {', '.join(with_it)} Gb/s",
        f"without it: {', '.join(without) or 'none'} Gb/s",
    )
    findings.culprits.append(
        Culprit(kind="node", subject=node, cause="network-both-ways", evidence=facts, remedy=remedy, node=node)
    )


def slowest_pair_gbps(nodes: Collection[str], evidence: Evidence) -> float | None:
    """The slowest directed pair among these nodes, by the median of its rounds; None unless enough were measured.

    Enough: all pairs, or where the level's plan holds a part of them, some of every node in both directions.
    """
    among = set(nodes)
    known = {pair: gbps for pair, gbps in evidence.pair_gbps.items() if among.issuperset(pair)}
    if evidence.every_pair:
        enough = len(known) == len(among) * (len(among) - 1)
    else:
        enough = among == {src for src, _ in known} == {dst for _, dst in known}
    return min(known.values()) if known and enough else None


def _best_gbps(record: CollectiveRecord) -> float:
    """Bus bandwidth of the best repetition, Gb/s: bytes·8/s × 2(n−1)/n as nccl-tests defines it."""
    times = [seconds for seconds in record.seconds if seconds > 0]
    count = len(record.nodes)
    return record.bytes * 8 / min(times) * 2 * (count - 1) / count / 1e9 if times else 0.0


def _row(subject: str, check: str, outcome: Outcome, measured: str, remedy: str = "") -> CheckResult:
    return CheckResult(
        subject=subject, stage="cluster", check=check, outcome=outcome, measured=measured,
        required="every element is the exact sum", origin="computed", remedy=remedy,
    )  # fmt: skip


def _speed(subject: str, outcome: Outcome, measured: str, required: str, note: str, advice: str = "") -> CheckResult:
    return CheckResult(
        subject=subject, stage="cluster", check="collective-bandwidth", outcome=outcome, measured=measured,
        required=required, origin=f"slowest pair ÷ {limits.COLLECTIVE_SLACK:g}", evidence=note, advice=advice,
    )  # fmt: skip
