"""Data that arrived other than it was sent: never noise, so one case fails; the partners' majority says whose it is."""

from __future__ import annotations

from collections import Counter

from validation.model import CheckResult, Culprit, Outcome
from validation.verdicts.evidence import Directed, Evidence, link_name
from validation.verdicts.findings import Findings


def judge_corruption(evidence: Evidence) -> Findings:
    findings = Findings()
    seen: Counter[Directed] = Counter((c.src, c.dst) for c in evidence.cells if c.verified is not None)
    bad: Counter[Directed] = Counter((c.src, c.dst) for c in evidence.cells if c.verified is False)
    left = set(bad)
    while left:
        node = _common_node(left)
        mine = {pair for pair in left if node in pair} if node else {min(left), min(left)[::-1]} & left
        facts = tuple(
            f"{src}→{dst}: {bad[src, dst]} of {seen[src, dst]} transfers corrupt" for src, dst in sorted(mine)
        )
        _blame(findings, node, sorted(mine), facts)
        left -= mine
    if seen and not bad:
        count = sum(seen.values())
        findings.results.append(_row(evidence.cluster, Outcome.PASS, f"{count} transfers, every byte as sent", ""))
    return findings


def _common_node(pairs: set[Directed]) -> str | None:
    """The node with more corrupt partners than any other; a single pair has none."""
    partners = {
        n: {m for pair in pairs if n in pair for m in pair} - {n} for n in sorted({n for p in pairs for n in p})
    }
    counts = sorted((len(found) for found in partners.values()), reverse=True)
    if len(counts) < 2 or counts[1] == counts[0]:
        return None
    return next(node for node, found in partners.items() if len(found) == counts[0])


def _blame(findings: Findings, node: str | None, pairs: list[Directed], facts: tuple[str, ...]) -> None:
    subject = node or link_name(*pairs[0])
    remedy = (
        f"Do not train on {node}: test its memory (memtest86+), then its NIC, cable and driver offloads (ethtool -K)."
        if node
        else f"Don't train over {subject}: swap the cable, then test the memory and NIC of both ends."
    )
    findings.culprits.append(
        Culprit(
            kind="node" if node else "link",
            subject=subject,
            cause="data-corruption",
            evidence=facts,
            remedy=remedy,
            node=node,
        )
    )
    findings.results.append(_row(subject, Outcome.FAIL, "; ".join(facts), remedy))
    if not node:
        findings.doubtful |= set(pairs[0])


def _row(subject: str, outcome: Outcome, measured: str, remedy: str) -> CheckResult:
    return CheckResult(
        subject=subject, stage="pairs", check="data", outcome=outcome, measured=measured, remedy=remedy,
        required="every byte arrives as sent", origin="known pattern",
    )  # fmt: skip
