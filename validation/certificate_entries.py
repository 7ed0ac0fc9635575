"""One entry of the certificate each: what a check, a culprit, a direction, a collective or a training becomes."""

from __future__ import annotations

from validation.certificate_model import CheckEntry, CollectiveEntry, CulpritEntry, DirectionEntry, TrainingEntry
from validation.model import CheckResult, Culprit
from validation.report_causes import culprit_effect, culprit_sentence
from validation.report_data import Direction, RunData, samples_per_second, step_seconds
from validation.report_words import printable


def check_entry(result: CheckResult) -> CheckEntry:
    return CheckEntry(
        subject=printable(result.subject),
        check=printable(result.check),
        stage=result.stage,
        outcome=result.outcome,
        measured=printable(result.measured),
        required=printable(result.required),
        origin=printable(result.origin),
        evidence=printable(result.evidence),
        remedy=printable(result.remedy),
        advice=printable(result.advice),
    )


def culprit_entry(found: Culprit) -> CulpritEntry:
    return CulpritEntry(
        kind=found.kind,
        subject=printable(found.subject),
        cause=printable(found.cause),
        sentence=culprit_sentence(found),
        evidence=tuple(printable(line) for line in found.evidence),
        remedy=printable(found.remedy),
        node=found.node,
        effect=culprit_effect(found),
    )


def short(value: float | None) -> float | None:
    """Six digits: more is noise, and would make two equal certificates look different."""
    return None if value is None else float(f"{value:.6g}")


def direction_entry(found: Direction) -> DirectionEntry:
    error = found.error or ("data arrived other than it was sent" if found.verified is False else "")
    return DirectionEntry(
        src=found.src,
        dst=found.dst,
        bandwidth_gbps=short(found.gbps),
        lowest_gbps=short(found.lowest_gbps),
        declared_gbps=found.declared_gbps,
        share=short(found.share),
        latency_p50_us=short(found.latency_p50_us),
        latency_p99_us=short(found.latency_p99_us),
        verified=found.verified,
        error=printable(error),
    )


def collective_entries(data: RunData) -> tuple[CollectiveEntry, ...]:
    return tuple(
        CollectiveEntry(
            op=found.op,
            nodes=len(found.nodes),
            bytes=found.bytes,
            busbw_gbps=float(f"{found.busbw_gbps:.6g}"),
            verified=bool(found.verified) and all(found.verified.values()),
        )
        for found in sorted(data.collectives, key=lambda c: (len(c.nodes), c.bytes))
    )


def training_entries(data: RunData) -> tuple[TrainingEntry, ...]:
    return tuple(
        TrainingEntry(
            nodes=len(found.nodes),
            global_batch=found.global_batch,
            steps=found.steps,
            samples_per_second=short(samples_per_second(found)),
            step_seconds=short(step_seconds(found, found.step_seconds)),
            compute_seconds=short(step_seconds(found, found.compute_seconds)),
            comm_seconds=short(step_seconds(found, found.comm_seconds)),
            first_loss=short(found.losses[0]) if found.losses else None,
            last_loss=short(found.losses[-1]) if found.losses else None,
        )
        for found in data.ddp
    )
