"""Training: losses fall, all ranks end with the same parameters, and one process gets the same losses."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from statistics import mean

from validation.model import CheckResult, Culprit, Outcome, TrainingRecord
from validation.verdicts import limits
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings

LEAST_STEPS = 8
"""A quarter of fewer steps is no mean."""


def judge_training(evidence: Evidence, corrupt: Collection[str] = ()) -> Findings:
    """`corrupt`: nodes named for wrong results; what was trained with them says nothing about the program."""
    findings = Findings()
    for record in evidence.trainings:
        if wrong := set(corrupt) & set(record.nodes):
            findings.results.append(_spoilt(record, wrong, evidence))
        elif record.mode in ("reference", "ddp"):
            _judge_losses(record, evidence, findings)
        if record.mode == "ddp" and len(record.nodes) > 1:
            _judge_parameters(record, evidence, findings)
    _judge_solo_results(evidence, findings, corrupt)
    _judge_against_reference(evidence, findings, corrupt)
    return findings


def _spoilt(record: TrainingRecord, wrong: Collection[str], evidence: Evidence) -> CheckResult:
    text = f"{title(record)}: not judged until {', '.join(sorted(wrong))} is repaired, which computes wrong results"
    return _row(evidence.cluster, "loss-falls", Outcome.SKIPPED, text, "", "")


def title(record: TrainingRecord) -> str:
    nodes = f"{len(record.nodes)} nodes" if len(record.nodes) > 1 else record.nodes[0]
    return f"{record.mode} on {nodes}"


def _judge_losses(record: TrainingRecord, evidence: Evidence, findings: Findings) -> None:
    losses, required = record.losses, f"last quarter ≤ {limits.LOSS_FALL:g} × first quarter"
    origin = "the same training's first quarter"
    quarter = max(1, len(losses) // 4)
    if len(losses) < LEAST_STEPS:
        text = f"{title(record)}: {len(losses)} losses are too few to see them fall"
        findings.results.append(_row(evidence.cluster, "loss-falls", Outcome.INCONCLUSIVE, text, required, origin))
        findings.undecided.append(f"{text}; run more steps.")
        return
    first, last = mean(losses[:quarter]), mean(losses[-quarter:])
    text = f"{title(record)}: {first:.4g} → {last:.4g}"
    if last <= limits.LOSS_FALL * first:
        findings.results.append(_row(evidence.cluster, "loss-falls", Outcome.PASS, text, required, origin))
        return
    remedy = "The program does not learn, on whatever nodes: look at model, data and torch; no node is at fault."
    _software(findings, "loss-does-not-fall", text, remedy)
    findings.results.append(_row(evidence.cluster, "loss-falls", Outcome.FAIL, text, required, origin, remedy))
    findings.doubtful |= set(record.nodes)


def _judge_parameters(record: TrainingRecord, evidence: Evidence, findings: Findings) -> None:
    hashes = record.parameter_sha256
    required, origin = "the same on all ranks, bit by bit", "all ranks apply the same update"
    odd = odd_ones(hashes)
    shown = ", ".join(f"{node} {value[:8]}" for node, value in sorted(hashes.items()))
    if set(record.nodes) - set(hashes):
        text = f"{title(record)}: no hash from {', '.join(sorted(set(record.nodes) - set(hashes)))}"
        findings.results.append(_row(evidence.cluster, "parameters", Outcome.INCONCLUSIVE, text, required, origin))
        findings.doubtful |= set(record.nodes) - set(hashes)
    elif len(set(hashes.values())) == 1:
        text = f"{title(record)}: all {next(iter(hashes.values()))[:8]}"
        findings.results.append(_row(evidence.cluster, "parameters", Outcome.PASS, text, required, origin))
    elif odd is None:
        text = f"{title(record)} ended with parameters that differ ({shown}), and no majority says whose are right"
        remedy = "Train on each node with a third one: the majority names the odd one out."
        fact = Culprit(
            kind="cluster", subject=evidence.cluster, cause="parameters-diverge", evidence=(text,), remedy=remedy
        )
        findings.culprits.append(fact)
        findings.doubtful |= set(record.nodes)
        findings.results.append(_row(evidence.cluster, "parameters", Outcome.FAIL, text, required, origin, remedy))
    else:
        for node in odd:
            text = f"{title(record)}: {node} ended with other parameters than {len(hashes) - len(odd)} peers ({shown})"
            _odd_node(findings, node, "parameters-diverge", "parameters", text, required, origin)


def _judge_against_reference(evidence: Evidence, findings: Findings, corrupt: Collection[str]) -> None:
    sound = [r for r in evidence.trainings if not set(corrupt) & set(r.nodes)]
    references = [r for r in sound if r.mode == "reference"]
    for record in (r for r in sound if r.mode == "ddp"):
        same = [r for r in references if (r.seed, r.global_batch) == (record.seed, record.global_batch)]
        if not same:
            continue
        worst_step, worst = largest_difference(record.losses, same[-1].losses)
        text = f"{title(record)}: largest difference {worst:.1e} at step {worst_step}"
        required = f"≤ {limits.LOSS_TOLERANCE:g} of the single process's loss"
        origin = f"reference on {same[-1].nodes[0]}, same seed and global batch"
        if worst <= limits.LOSS_TOLERANCE:
            findings.results.append(_row(evidence.cluster, "loss-reference", Outcome.PASS, text, required, origin))
            continue
        remedy = "Distributed training computes something else than one process: look at the program and at torch."
        if wrong := sorted(findings.blamed_nodes(("silent-data-corruption",))):
            remedy = f"Repair {', '.join(wrong)}, which computes wrong results, then train again."
        else:
            _software(findings, "losses-differ", text, remedy)
        findings.results.append(_row(evidence.cluster, "loss-reference", Outcome.FAIL, text, required, origin, remedy))
        findings.doubtful |= set(record.nodes)


def largest_difference(losses: Sequence[float], reference: Sequence[float]) -> tuple[int, float]:
    """Step and relative difference; a loss near 0 is compared on a tenth of the first loss; no number is infinite."""
    floor = 0.1 * abs(reference[0]) if reference else 0.0
    pairs = enumerate(zip(losses, reference, strict=False))
    differences = [(abs(a - b) / max(abs(b), floor, 1e-12), step) for step, (a, b) in pairs]
    differences = [(math.inf if math.isnan(worst) else worst, step) for worst, step in differences]
    worst, step = max(differences, default=(0.0, 0))
    return step, worst


def _judge_solo_results(evidence: Evidence, findings: Findings, corrupt: Collection[str]) -> None:
    """The same work alone on each node of one processor model must give the same bits: a vote finds silent errors."""
    groups: dict[tuple[str, int, int, int], dict[str, str]] = defaultdict(dict)
    for record in evidence.trainings:
        if record.mode == "solo":
            for node, value in record.parameter_sha256.items():
                key = evidence.cpu_model(node), record.seed, record.global_batch, record.steps
                groups[key][node] = value
    mixed = _software_differs(evidence)
    required, origin = "the same bits on nodes with the same processor", "peers"
    for hashes in groups.values():
        if len(hashes) < 2:
            continue
        shown = ", ".join(f"{node} {value[:8]}" for node, value in sorted(hashes.items()))
        if len(set(hashes.values())) == 1:
            text = f"the same result on {len(hashes)} nodes"
            findings.results.append(_row(evidence.cluster, "silent-errors", Outcome.PASS, text, required, origin))
        elif mixed & set(hashes):
            text = f"withheld: {', '.join(sorted(mixed & set(hashes)))} has other software ({shown})"
            findings.results.append(_row(evidence.cluster, "silent-errors", Outcome.SKIPPED, text, required, origin))
        elif (odd := odd_ones(hashes)) is None and set(corrupt) & set(hashes):
            text = f"solo turns: not judged until {', '.join(sorted(set(corrupt) & set(hashes)))} is repaired ({shown})"
            findings.results.append(_row(evidence.cluster, "silent-errors", Outcome.SKIPPED, text, required, origin))
        elif odd is None:
            text = f"the same work alone gave different results ({shown}), and no majority says whose is right"
            findings.results.append(
                _row(evidence.cluster, "silent-errors", Outcome.INCONCLUSIVE, text, required, origin)
            )
            findings.undecided.append(f"Silent errors: {text}; a third node with the same processor would tell.")
            findings.doubtful |= set(hashes)
        else:
            for node in odd:
                peers = len(hashes) - len(odd)
                text = f"the same work alone gave another result on {node} than on {peers} peers ({shown})"
                _odd_node(findings, node, "silent-data-corruption", "silent-errors", text, required, origin)


def _software_differs(evidence: Evidence) -> set[str]:
    return {
        r.node for r in evidence.checks if r.check == "versions" and r.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)
    }


def odd_ones(hashes: dict[str, str]) -> list[str] | None:
    """Nodes without the value of more than half; None if no value has that many, as with two that differ."""
    value, count = sorted(Counter(hashes.values()).items(), key=lambda item: (-item[1], item[0]))[0]
    return sorted(node for node, own in hashes.items() if own != value) if 2 * count > len(hashes) else None


def _odd_node(findings: Findings, node: str, cause: str, check: str, text: str, required: str, origin: str) -> None:
    remedy = f"Do not train on {node}: test its memory (memtest86+), processor and GPU under load; replace what fails."
    findings.culprits.append(
        Culprit(kind="node", subject=node, cause=cause, evidence=(text,), remedy=remedy, node=node)
    )
    findings.results.append(_row(node, check, Outcome.FAIL, text, required, origin, remedy))


def _software(findings: Findings, cause: str, text: str, remedy: str) -> None:
    if cause not in {culprit.cause for culprit in findings.culprits}:
        findings.culprits.append(
            Culprit(kind="software", subject="the training program", cause=cause, evidence=(text,), remedy=remedy)
        )


def _row(
    subject: str, check: str, outcome: Outcome, measured: str, required: str, origin: str, remedy: str = ""
) -> CheckResult:
    return CheckResult(
        subject=subject, stage="training", check=check, outcome=outcome, measured=measured, required=required,
        origin=origin, remedy=remedy,
    )  # fmt: skip
