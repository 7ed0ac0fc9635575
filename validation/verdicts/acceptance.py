"""Trainings as acceptance: each way of training against the losses of one process with the same seed and data."""

from __future__ import annotations

from collections.abc import Collection

from validation.model import AcceptanceRecord, CheckResult, Culprit, Outcome
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings
from validation.verdicts.training import largest_difference


def judge_acceptance(evidence: Evidence, corrupt: Collection[str] = ()) -> Findings:
    """Other losses are the software's fault, unless a node of that training is named for wrong results already."""
    findings = Findings()
    for record in evidence.acceptances:
        _judge(record, set(corrupt) & set(record.nodes), evidence, findings)
    return findings


def _judge(record: AcceptanceRecord, corrupt: Collection[str], evidence: Evidence, findings: Findings) -> None:
    if record.skipped:
        findings.results.append(_row(evidence, record, Outcome.NOT_APPLICABLE, f"{record.name}: {record.skipped}"))
    elif corrupt:
        text = f"{record.name}: not judged until {', '.join(sorted(corrupt))} is repaired"
        findings.results.append(_row(evidence, record, Outcome.SKIPPED, text))
    elif record.error:
        remedy = "This way of training could not be tried: see the ranks' logs in the run's folder."
        findings.results.append(_row(evidence, record, Outcome.ERROR, f"{record.name}: {record.error}", remedy))
        findings.undecided.append(f"Training {record.name}: {record.error}.")
    else:
        _judge_losses(record, evidence, findings)


def _judge_losses(record: AcceptanceRecord, evidence: Evidence, findings: Findings) -> None:
    step, worst = largest_difference(record.losses, record.reference)
    complete = len(record.losses) == len(record.reference) > 0
    text = (
        f"{record.name}: loss {record.losses[0]:.4g} → {record.losses[-1]:.4g}, largest difference {worst:.1e} "
        f"at step {step + 1} of {len(record.reference)}"
        if complete
        else f"{record.name}: {len(record.losses)} losses instead of {len(record.reference)}"
    )
    if complete and worst <= record.tolerance:
        findings.results.append(_row(evidence, record, Outcome.PASS, text))
        return
    remedy = f"Run train_parallel.py by hand on these nodes: compare torch and its settings; {record.name} is at fault."
    findings.culprits.append(
        Culprit(
            kind="software", subject=f"{record.name} training", cause="losses-differ", evidence=(text,), remedy=remedy
        )
    )
    findings.results.append(_row(evidence, record, Outcome.FAIL, text, remedy))
    findings.doubtful |= set(record.nodes)


def _row(
    evidence: Evidence, record: AcceptanceRecord, outcome: Outcome, measured: str, remedy: str = ""
) -> CheckResult:
    return CheckResult(
        subject=evidence.cluster, stage="training", check="acceptance", outcome=outcome, measured=measured,
        required=f"relative difference ≤ {record.tolerance:g}", origin="one process, same seed and global batch",
        evidence=record.detail, remedy=remedy,
    )  # fmt: skip
