"""The certificate: what a run may say about a cluster, as one JSON document that anybody can check by its hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from inventory.hardware import HardwareLock
from inventory.node_part import node_part_sha256
from validation.certificate_entries import (
    check_entry,
    collective_entries,
    culprit_entry,
    direction_entry,
    short,
    training_entries,
)
from validation.certificate_model import (
    Certificate,
    CheckEntry,
    LinkEntry,
    NodeEntry,
)
from validation.model import STAGES, Judgement, Outcome, Record, Stage
from validation.report_data import Direction, RunData, gather
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
    certified = judgement.verdict is Outcome.PASS and _complete(data)
    by_subject: dict[str, list[CheckEntry]] = {}
    for result in judgement.results:
        by_subject.setdefault(_subject(result.subject), []).append(check_entry(result))
    links = _links(data, by_subject)
    lock = HardwareLock.model_validate(run.lock) if run.lock else HardwareLock()
    names = [*dict.fromkeys([*(n for n in run.nodes if n in judgement.nodes), *sorted(judgement.nodes)])]
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
        culprits=tuple(culprit_entry(found) for found in judgement.culprits),
        nodes={name: _node(name, data, judgement, by_subject.get(name, []), lock) for name in names},
        links=links,
        whole=tuple(
            check
            for subject, checks in by_subject.items()
            if subject not in judgement.nodes and LINK_SEPARATOR not in subject
            for check in checks
        ),
        collectives=collective_entries(data),
        trainings=training_entries(data),
        undecided=tuple(printable(text) for text in judgement.undecided),
        not_tested=not_tested(data, judgement),
    )
    return certificate.model_dump(mode="json")


def _complete(data: RunData) -> bool:
    """A second look besides the judge's: nothing was left out, no stage broke, no rank was lost."""
    broken = data.failures or any(stage.status == "error" for stage in data.stages)
    return not data.run.partial and set(STAGES) <= set(data.run.stages) and not broken


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


def _links(data: RunData, checks: Mapping[str, list[CheckEntry]]) -> tuple[LinkEntry, ...]:
    """Links that were tried or judged (in a large cluster: and are not plainly good); the coverage counts all."""
    in_full = len(data.pairs) <= LINKS_IN_FULL
    entries = []
    for a, b in data.pairs:
        ways, judged = (data.directions[a, b], data.directions[b, a]), checks.get(link_name(a, b), [])
        passed = all(check.outcome is Outcome.PASS for check in judged)
        if not in_full and passed and all(_plainly_good(way) for way in ways):
            continue
        if judged or any(way.tried for way in ways):
            entries.append(_link(a, b, ways, judged))
    return tuple(entries)


def _link(a: str, b: str, ways: Sequence[Direction], checks: Sequence[CheckEntry]) -> LinkEntry:
    return LinkEntry(
        link=link_name(a, b),
        verdict=_severest([check.outcome for check in checks]) if checks else None,
        directions=tuple(direction_entry(way) for way in ways),
        checks=tuple(checks),
    )


def _plainly_good(way: Direction) -> bool:
    return bool(way.verified) and (way.share or 0.0) >= CLEAR_SHARE


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
        inventory_sha256=_declared_sha256(name, data),
        versions=data.versions.get(name, {}),
        send_gbps=short(data.sends_gbps(name)),
        receive_gbps=short(data.receives_gbps(name)),
        slowest=direction_entry(slowest) if slowest else None,
        step_seconds=short(times[len(times) // 2]) if times else None,
        checks=tuple(checks),
    )


def _declared_sha256(name: str, data: RunData) -> str:
    declared = next((node for node in data.cluster.nodes if node.name == name), None)
    return node_part_sha256(data.cluster, declared) if declared else ""


def _coverage(data: RunData, judgement: Judgement) -> dict[str, int]:
    counts = {outcome.value: 0 for outcome in Outcome}
    for result in judgement.results:
        counts[result.outcome.value] += 1
    return {**counts, "pairs_tested": data.measured_pairs, "pairs_all": len(data.pairs)}


def _stage(data: RunData, stage: Stage) -> str:
    found = [record for record in data.stages if record.stage == stage]
    if not found:
        return "not finished" if data.begun(stage) else "not run"
    return printable(f"{found[-1].status}: {found[-1].reason}") if found[-1].reason else found[-1].status


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
        said = f"Cluster {cluster} is not certified: what was run passed, but the run was not complete."
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
