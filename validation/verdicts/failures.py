"""Ranks that hung, died or never started: whose fault that is, and who only waited."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from validation.model import CheckResult, Culprit, FailureRecord, Outcome, Stage
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings
from validation.verdicts.node_stage import is_common

WAITING = ("all-reduce", "connect", "barrier", "leave", "finished")
"""Phases in which a rank waits for the others: one that waits elsewhere runs another program, it does not hang."""
MISMATCH = re.compile(
    r"ranks are in different collectives|preamble\.length|mismatch between collectives", re.IGNORECASE
)
"""What the launcher, gloo and torch say of a collective that the others are not in; gloo then aborts the rank."""
REMEDIES = {
    "hang": "Look at {node}: dmesg, disk and file servers it waits for, its processes; reboot it if in doubt.",
    "killed": "Find who sent {detail} on {node}: journalctl, the out-of-memory killer, a limit or a person.",
    "out-of-memory": "Free or add memory on {node}, or lower the job's need; see its memory limit and what else runs.",
    "crash": "Read the log of the rank on {node} ({log}) and run it there alone.",
    "unreachable": "Look at {node}: power, cable, address; then ssh to it by hand.",
    "slurm-step": "On the controller: srun -w {node} hostname; then slurmd on {node}: journal, firewall towards srun.",
}


def judge_failures(evidence: Evidence) -> Findings:
    findings = Findings()
    by_stage: dict[Stage, list[FailureRecord]] = defaultdict(list)
    for record in evidence.failures:
        by_stage[record.stage].append(record)
    for stage, records in by_stage.items():
        _judge_stage(stage, records, evidence, findings)
    return findings


def _judge_stage(stage: Stage, records: Sequence[FailureRecord], evidence: Evidence, findings: Findings) -> None:
    mismatched = [record for record in records if _cause(record) == "collective-mismatch"]
    if mismatched:  # the others wait or break for want of it
        findings.doubtful |= {record.node for record in records}
        records = mismatched
    victims = [record for record in records if record.what == "exception" and not mismatched]
    if victims and len(victims) < len(records):
        victims_nodes = {record.node for record in victims}
        records = [record for record in records if record.what != "exception"]
        findings.doubtful |= victims_nodes
    groups: dict[str, list[FailureRecord]] = defaultdict(list)
    for record in records:
        groups[_cause(record)].append(record)
    for cause, group in groups.items():
        nodes = {record.node for record in group}
        if cause in ("collective-mismatch", "not-started") or _same_exception(cause, group, evidence):
            _software(stage, cause, group, findings)
        elif is_common(nodes, evidence):
            _common(stage, cause, group, evidence, findings)
        else:
            for record in _first_a_node(group):
                _blame(record, cause, findings)


def _cause(record: FailureRecord) -> str:
    if record.memory_kill:
        return "out-of-memory"
    if record.what == "hang" and _waits_elsewhere(record.detail):
        return "collective-mismatch"
    if record.what in ("exception", "signal") and any(MISMATCH.search(line) for line in _words(record)):
        return "collective-mismatch"
    names = {"signal": "killed", "exit": "crash", "exception": "crash", "no-start": "not-started"}
    return names.get(record.what, record.what)


def _words(record: FailureRecord) -> tuple[str, ...]:
    return (record.detail, *record.last_lines)


def _waits_elsewhere(detail: str) -> bool:
    found = re.match(r"it is at (?:.*phase )?(\S+) while others", detail)
    return bool(found) and str(found[1]) in WAITING if found else False


def _same_exception(cause: str, group: Sequence[FailureRecord], evidence: Evidence) -> bool:
    """The same exception on every rank (of two or more nodes) is the program's, not the nodes'."""
    if any(record.what != "exception" for record in group) or len({r.node for r in group}) < 2:
        return False
    return len({record.detail for record in group}) == 1 and {r.node for r in group} >= evidence.compute & set(
        evidence.run.nodes
    ) - {w for r in group for w in r.waiting}


def _software(stage: Stage, cause: str, group: Sequence[FailureRecord], findings: Findings) -> None:
    kind, outcome, subject, remedy = {
        "not-started": (
            "validator",
            Outcome.ERROR,
            f"ranks on {', '.join(sorted({r.node for r in group}))}",
            "The rank could not be started, so its node was not tested: read the log, install what is missing.",
        ),
        "collective-mismatch": (
            "software",
            Outcome.FAIL,
            "the training program",
            "Ranks ran different collectives: compare what each rank's code does at this step; no node is at fault.",
        ),
    }.get(cause, ("software", Outcome.FAIL, "the program", "Every rank raised the same: mend the program or torch."))
    facts = tuple(_fact(record) for record in _first_a_node(group))[:6]
    findings.culprits.append(
        Culprit(
            kind="validator" if kind == "validator" else "software",
            subject=subject,
            cause=cause if cause != "crash" else "exception",
            evidence=facts,
            remedy=remedy,
        )
    )
    for record in _first_a_node(group):
        findings.results.append(_row(record, outcome, remedy))
        findings.doubtful.add(record.node)


def _common(stage: Stage, cause: str, group: Sequence[FailureRecord], evidence: Evidence, findings: Findings) -> None:
    nodes = sorted({record.node for record in group})
    facts = (f"{len(nodes)} of {len(evidence.run.nodes)} nodes in stage {stage}", _fact(group[0]))
    remedy = "Look for one reason for all of them: power, the switch, a shared file server, a scheduler's limit."
    findings.culprits.append(
        Culprit(kind="cluster", subject=evidence.cluster, cause=cause, evidence=facts, remedy=remedy)
    )
    for record in _first_a_node(group):
        findings.results.append(_row(record, Outcome.FAIL, remedy))
        findings.doubtful.add(record.node)


def _blame(record: FailureRecord, cause: str, findings: Findings) -> None:
    words = {"node": record.node, "detail": record.detail, "log": record.log or "its log"}
    remedy = REMEDIES.get(cause, REMEDIES["crash"]).format(**words)
    waited = (f"only waited, not to blame: {', '.join(record.waiting)}",) if record.waiting else ()
    facts = (_fact(record), *waited, *record.last_lines[-1:])
    findings.culprits.append(
        Culprit(kind="node", subject=record.node, cause=cause, evidence=facts, remedy=remedy, node=record.node)
    )
    findings.results.append(_row(record, Outcome.FAIL, remedy))


def _first_a_node(group: Sequence[FailureRecord]) -> list[FailureRecord]:
    first: dict[str, FailureRecord] = {}
    for record in group:
        first.setdefault(record.node, record)
    return list(first.values())


def _fact(record: FailureRecord) -> str:
    silent = f", silent for {record.silent_s:.0f} s" if record.silent_s is not None else ""
    state = f", process state {record.process_state}" if record.process_state else ""
    step = f" at {record.step}" if record.step else ""
    return f"stage {record.stage}: rank {record.rank} on {record.node}{step}: {record.detail}{state}{silent}"


def _row(record: FailureRecord, outcome: Outcome, remedy: str) -> CheckResult:
    return CheckResult(
        subject=record.node, stage=record.stage, check="rank", outcome=outcome, measured=record.detail,
        required="the rank finishes", origin="the stage's deadlines", evidence=_fact(record), remedy=remedy,
    )  # fmt: skip
