"""All-gather: nothing is computed, so a part that arrives wrong is the transport's, its sender's or its receiver's."""

from __future__ import annotations

from collections.abc import Sequence

from validation.model import CheckResult, Culprit, Outcome, TransportRecord
from validation.verdicts.evidence import Evidence, link_name
from validation.verdicts.findings import Findings


def judge_transport(evidence: Evidence) -> Findings:
    """Nodes named already for corrupt transfers between pairs are not named twice: merging does that."""
    findings = Findings()
    for record in evidence.transports:
        bad = sorted((src, dst) for dst, sources in record.wrong.items() for src in sources)
        if not bad:
            text = f"{record.bytes / 1e6:.3g} MB from each of {len(record.nodes)} nodes arrived everywhere as sent"
            findings.results.append(_row(evidence.cluster, Outcome.PASS, text))
            continue
        _blame(record, bad, findings)
    return findings


def _blame(record: TransportRecord, bad: Sequence[tuple[str, str]], findings: Findings) -> None:
    """The node that all wrong parts have in common; with several, the link or the nodes stay undecided."""
    fact = f"all-gather: wrong parts {', '.join(f'{src}→{dst}' for src, dst in bad[:6])}"
    common = set.intersection(*(set(pair) for pair in bad))
    partners = {name for pair in bad for name in pair} - common
    node = next(iter(common)) if len(common) == 1 and (len(partners) > 1 or _itself(bad)) else None
    subject = node or (
        link_name(*bad[0]) if len({frozenset(pair) for pair in bad}) == 1 else ", ".join(sorted(partners))
    )
    remedy = (
        f"Do not train on {node}: test its memory (memtest86+), then its NIC, cable and driver offloads (ethtool -K)."
        if node
        else f"Don't train over {subject}: swap cables, then test memory and NIC of the nodes."
    )
    if node or len({frozenset(pair) for pair in bad}) == 1:
        findings.culprits.append(
            Culprit(kind="node" if node else "link", subject=subject, cause="data-corruption", evidence=(fact,),
                    remedy=remedy, node=node)
        )  # fmt: skip
    if not node:
        findings.doubtful |= {name for pair in bad for name in pair}
    findings.results.append(_row(subject, Outcome.FAIL, fact, remedy))


def _itself(bad: Sequence[tuple[str, str]]) -> bool:
    """A node's own part is wrong in its own hands: no network took part in that."""
    return all(src == dst for src, dst in bad)


def _row(subject: str, outcome: Outcome, measured: str, remedy: str = "") -> CheckResult:
    return CheckResult(
        subject=subject, stage="cluster", check="transport", outcome=outcome, measured=measured,
        required="every part arrives as sent", origin="known pattern", remedy=remedy,
    )  # fmt: skip
