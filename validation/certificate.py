"""The certificate: what a run may say about a cluster, as one JSON document that anybody can check by its hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from inventory.hardware import HardwareLock
from validation.certificate_model import (
    Certificate,
    CheckEntry,
    CollectiveEntry,
    CulpritEntry,
    DirectionEntry,
    LinkEntry,
    NodeEntry,
    TrainingEntry,
)
from validation.model import STAGES, CheckResult, Culprit, Judgement, Outcome, Record, Stage
from validation.report_causes import culprit_effect, culprit_sentence
from validation.report_data import Direction, RunData, gather, samples_per_second, step_seconds
from validation.report_scope import not_tested
from validation.report_words import (
    LINK_SEPARATOR,
    SUBSTRATE_WORDS,
    counted,
    printable,
)

LINKS_IN_FULL = 2016
"""Up to 64 nodes each tried link is in the certificate; beyond, those that did not pass: 200 nodes would be 10 MB."""
CLEAR_SHARE = 0.85
"""Of the declared speed: the threshold that the verdict calls clear."""
VALID_DAYS = 30
"""Some 3 % of a fleet's nodes break in a week: a month is the longest that a clean run may be relied on."""


def build_certificate(records: Sequence[Record], judgement: Judgement, results_sha256: str) -> dict[str, Any]:
    """The certificate of a run, a pure function of what it recorded; ValueError without a run record."""
    data = gather(records)
    run = data.run
    certified = judgement.verdict is Outcome.PASS and not run.partial
    by_subject: dict[str, list[CheckEntry]] = {}
    for result in judgement.results:
        by_subject.setdefault(_subject(result.subject), []).append(_check(result))
    links = _links(data, by_subject)
    lock = HardwareLock.model_validate(run.lock) if run.lock else HardwareLock()
    names = [*dict.fromkeys([*(n for n in run.nodes if n in judgement.nodes), *sorted(judgement.nodes)])]
    shown = {*names, *(link.link for link in links)}
    certificate = Certificate(
        cluster=data.cluster.name,
        certified=certified,
        verdict=judgement.verdict,
        substrate=run.substrate,
        statement=_statement(data, judgement, certified),
        level=run.level,
        partial=run.partial,
        run_id=run.run_id,
        version=run.version,
        launcher=run.launcher,
        started_at=_iso(data.started_at),
        issued_at=_iso(data.ended_at),
        expires_at=_iso(data.ended_at + timedelta(days=VALID_DAYS)),
        inventory_sha256=_sha256(run.inventory),
        hardware_sha256=_sha256(run.lock) if run.lock is not None else None,
        results_sha256=results_sha256,
        coverage=_coverage(data, judgement),
        stages={stage: _stage(data, stage) for stage in STAGES},
        culprits=tuple(_culprit(culprit) for culprit in judgement.culprits),
        nodes={name: _node(name, data, judgement, by_subject.get(name, []), lock) for name in names},
        links=links,
        whole=tuple(check for subject, checks in by_subject.items() if subject not in shown for check in checks),
        collectives=_collectives(data),
        trainings=_trainings(data),
        undecided=tuple(printable(text) for text in judgement.undecided),
        not_tested=not_tested(data, judgement),
    )
    return certificate.model_dump(mode="json")


def certificate_json(certificate: Mapping[str, Any]) -> str:
    """The certificate as text, byte-identical for the same run."""
    return json.dumps(certificate, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _sha256(document: Mapping[str, Any]) -> str:
    """Of the compact JSON with sorted keys, as the hardware lock hashes a node."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def link_name(a: str, b: str) -> str:
    """Both ends in alphabetical order, so that a link has one name."""
    return LINK_SEPARATOR.join(sorted((a, b)))


def _subject(subject: str) -> str:
    return link_name(*subject.split(LINK_SEPARATOR, 1)) if LINK_SEPARATOR in subject else subject


def _check(result: CheckResult) -> CheckEntry:
    return CheckEntry(
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


def _culprit(culprit: Culprit) -> CulpritEntry:
    return CulpritEntry(
        kind=culprit.kind,
        subject=printable(culprit.subject),
        cause=printable(culprit.cause),
        sentence=culprit_sentence(culprit),
        evidence=tuple(printable(line) for line in culprit.evidence),
        remedy=printable(culprit.remedy),
        node=culprit.node,
        effect=culprit_effect(culprit),
    )


def _short(value: float | None) -> float | None:
    """Six digits: more is noise, and would make two equal certificates look different."""
    return None if value is None else float(f"{value:.6g}")


def _direction(found: Direction) -> DirectionEntry:
    error = found.error or ("data arrived other than it was sent" if found.verified is False else "")
    return DirectionEntry(
        src=found.src,
        dst=found.dst,
        bandwidth_gbps=_short(found.gbps),
        declared_gbps=found.declared_gbps,
        share=_short(found.share),
        latency_p50_us=_short(found.latency_p50_us),
        latency_p99_us=_short(found.latency_p99_us),
        verified=found.verified,
        error=printable(error),
    )


def _links(data: RunData, checks: Mapping[str, list[CheckEntry]]) -> tuple[LinkEntry, ...]:
    """Links that were tried or judged (in a large cluster: and are not plainly good); the coverage counts all."""
    entries = [_link(a, b, data, checks.get(link_name(a, b), [])) for a, b in data.pairs]
    tried = [entry for entry in entries if entry.checks or any(d.share or d.error for d in entry.directions)]
    if len(data.pairs) > LINKS_IN_FULL:
        tried = [entry for entry in tried if not _plainly_good(entry)]
    return tuple(tried)


def _link(a: str, b: str, data: RunData, checks: Sequence[CheckEntry]) -> LinkEntry:
    return LinkEntry(
        link=link_name(a, b),
        verdict=_severest([check.outcome for check in checks]) if checks else None,
        directions=(_direction(data.directions[a, b]), _direction(data.directions[b, a])),
        checks=tuple(checks),
    )


def _plainly_good(link: LinkEntry) -> bool:
    fast = all((d.share or 0.0) >= CLEAR_SHARE and d.verified for d in link.directions)
    return fast and link.verdict in (None, Outcome.PASS)


_WORST_FIRST = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.SKIPPED, Outcome.PASS)


def _severest(outcomes: Sequence[Outcome]) -> Outcome:
    return next((outcome for outcome in _WORST_FIRST if outcome in outcomes), Outcome.NOT_APPLICABLE)


def _node(
    name: str, data: RunData, judgement: Judgement, checks: Sequence[CheckEntry], lock: HardwareLock
) -> NodeEntry:
    found = lock.nodes.get(name)
    own = [d for d in [*data.by_src.get(name, []), *data.by_dst.get(name, [])] if d.share is not None]
    slowest = min(own, key=lambda d: (d.share or 0.0, d.src, d.dst), default=None)
    largest = data.ddp[-1] if data.ddp else None
    times = sorted(largest.step_seconds.get(name, ())) if largest else []
    return NodeEntry(
        verdict=judgement.nodes[name],
        hardware_sha256=found.sha256 if found else None,
        send_gbps=_short(data.sends_gbps(name)),
        receive_gbps=_short(data.receives_gbps(name)),
        slowest=_direction(slowest) if slowest else None,
        step_seconds=_short(times[len(times) // 2]) if times else None,
        checks=tuple(checks),
    )


def _coverage(data: RunData, judgement: Judgement) -> dict[str, int]:
    counts = {outcome.value: 0 for outcome in Outcome}
    for result in judgement.results:
        counts[result.outcome.value] += 1
    return {**counts, "pairs_tested": data.measured_pairs, "pairs_all": len(data.pairs)}


def _stage(data: RunData, stage: Stage) -> str:
    found = [record for record in data.stages if record.stage == stage]
    if not found:
        return "not run"
    return printable(f"{found[-1].status}: {found[-1].reason}") if found[-1].reason else found[-1].status


def _collectives(data: RunData) -> tuple[CollectiveEntry, ...]:
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


def _trainings(data: RunData) -> tuple[TrainingEntry, ...]:
    return tuple(
        TrainingEntry(
            nodes=len(found.nodes),
            global_batch=found.global_batch,
            steps=found.steps,
            samples_per_second=_short(samples_per_second(found)),
            step_seconds=_short(step_seconds(found, found.step_seconds)),
            compute_seconds=_short(step_seconds(found, found.compute_seconds)),
            comm_seconds=_short(step_seconds(found, found.comm_seconds)),
            first_loss=_short(found.losses[0]) if found.losses else None,
            last_loss=_short(found.losses[-1]) if found.losses else None,
        )
        for found in data.ddp
    )


def _statement(data: RunData, judgement: Judgement, certified: bool) -> str:
    """The verdict as sentences; what substrate it was comes first, since it limits everything after it."""
    cluster, run = data.cluster.name, data.run
    if certified:
        passed = (
            f"Cluster {cluster} is certified"
            if run.substrate == "hardware"
            else f"The {run.substrate} of {cluster} passed"
        )
        said = f"{passed} at level {run.level}: {_scope(data, judgement)}."
    elif judgement.verdict is Outcome.PASS:
        said = f"Cluster {cluster} is not certified: what was run passed, but only a part was run."
    elif judgement.verdict is Outcome.FAIL:
        named = counted(len(judgement.culprits), "cause")
        said = f"Cluster {cluster} is not certified: {named} of failure found."
    elif judgement.verdict is Outcome.ERROR:
        said = f"Cluster {cluster} is not certified: the validator itself could not do its work. No node is blamed."
    else:
        said = f"Cluster {cluster} is not certified: the run could not decide. No node is blamed for that."
    return " ".join(part for part in (SUBSTRATE_WORDS[run.substrate], said) if part)


def _scope(data: RunData, judgement: Judgement) -> str:
    subjects = [counted(len(judgement.nodes), "node")]
    if data.pairs:
        subjects.append(f"{data.measured_pairs:,} of {counted(len(data.pairs), 'pair')}")
    together = ", and the nodes trained together" if data.ddp and len(data.ddp[-1].nodes) > 1 else ""
    return f"{' and '.join(subjects)} passed every check of this run{together}"
