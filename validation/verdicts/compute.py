"""Compute stragglers by solo turns, and scaling: step time against computation and communication apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median

from validation.model import CheckResult, Culprit, Outcome, TrainingRecord
from validation.verdicts import limits
from validation.verdicts.collective import slowest_pair_gbps
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings
from validation.verdicts.step_split import split_step

IDLE_CORES = 1.0
"""Without a whole idle processor a slow rank may only have had to share."""
IDLE_MARGIN = 0.15
"""Daemons and the launcher use this much of a processor themselves."""
LEAST_GRADIENT_BYTES = 1_000_000
LOOK_AT = {
    "communication": "Pairs are good, the step is not: look at what all flows share (switch under load, pause frames).",
    "compute spread": "Ranks wait for one that computes longer now and then: look at what else runs there (cron, top).",
    "data wait": "Ranks wait for their batch: look at storage, its caches, and the number of loader processes.",
}
"""By the largest part of the lost time."""


@dataclass(frozen=True)
class Turn:
    """A node's best solo turn: noise only slows down."""

    node: str
    rate: float
    cpu_share: float | None
    idle_cores: float | None
    check: str = "compute"
    unit: str = "samples/s"
    detail: str = ""


def judge_compute(evidence: Evidence) -> Findings:
    findings = Findings()
    turns = _turns(evidence)
    groups: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        groups[evidence.cpu_model(turn.node)].append(turn)
    for group in groups.values():
        for turn in group:
            peers = [other for other in group if other.node != turn.node]
            if peers:
                judge_turn(turn, peers, evidence, findings)
    return findings


def solo_rates(evidence: Evidence) -> dict[str, float]:
    """Samples/s of every node's best solo turn on a host that was not busy."""
    calm = [t for t in _turns(evidence) if t.idle_cores is None or t.idle_cores >= IDLE_CORES - IDLE_MARGIN]
    return {turn.node: turn.rate for turn in calm}


def _turns(evidence: Evidence) -> list[Turn]:
    best: dict[str, Turn] = {}
    for record in evidence.trainings:
        if record.mode != "solo" or len(record.nodes) != 1:
            continue
        (node,) = record.nodes
        times = record.step_seconds.get(node, ())
        if not times or sum(times) <= 0:
            continue
        cpus = evidence.cpus(node)
        idle = record.idle_share * cpus if record.idle_share is not None and cpus else None
        rate = record.global_batch * len(times) / sum(times)
        turn = Turn(node, rate, record.cpu_share.get(node), idle)
        if node not in best or turn.rate > best[node].rate:
            best[node] = turn
    return [best[node] for node in sorted(best)]


def judge_turn(turn: Turn, peers: Sequence[Turn], evidence: Evidence, findings: Findings) -> None:
    """Slow beside its peers is the node's own fault only on an idle host, and (sharing one) without processor time."""
    usual = median(peer.rate for peer in peers)
    share = turn.rate / usual if usual else 1.0
    shares = [peer.cpu_share for peer in peers if peer.cpu_share is not None]
    withheld = turn.cpu_share is not None and bool(shares) and turn.cpu_share < limits.CPU_SHARE * median(shares)
    idle = turn.idle_cores is not None and turn.idle_cores >= IDLE_CORES - IDLE_MARGIN
    measured = f"{turn.rate:.4g} {turn.unit}, {share:.2f} of its peers{turn.detail}"
    cpu = f"own processor share {turn.cpu_share:.2f}" if turn.cpu_share is not None else "processor share unknown"
    cores = f"{turn.idle_cores:.1f} processors idle" if turn.idle_cores is not None else "idle time unknown"
    note = f"{cpu}, {cores}"
    if share >= limits.COMPUTE_SHARE:
        findings.results.append(_row(turn, Outcome.PASS, measured, note))
    elif idle and (withheld or not evidence.rehearsal):
        remedy = (
            f"Look on {turn.node} for a processor limit (systemd CPUQuota, cgroup cpu.max), heat and clock speed "
            "(turbostat, sensors), a power profile, empty memory channels (dmidecode), and other processes (top)."
        )
        fact = f"alone it computes {measured}: {note}"
        findings.culprits.append(
            Culprit(kind="node", subject=turn.node, cause="compute", evidence=(fact,), remedy=remedy, node=turn.node)
        )
        findings.results.append(_row(turn, Outcome.FAIL, measured, note, remedy=remedy))
    elif evidence.rehearsal and shares and turn.cpu_share is not None and not withheld:
        advice = "slower than its peers although it had its processor time: nodes of a rehearsal share one machine"
        findings.results.append(_row(turn, Outcome.PASS, measured, note, advice=advice))
    else:
        findings.results.append(_row(turn, Outcome.INCONCLUSIVE, measured, note))
        findings.undecided.append(
            f"{turn.check.capitalize()} of {turn.node}: {measured}, but {note}; run again when it is idle."
        )
        findings.doubtful.add(turn.node)


def _row(turn: Turn, outcome: Outcome, measured: str, note: str, remedy: str = "", advice: str = "") -> CheckResult:
    return CheckResult(
        subject=turn.node, stage="training", check=turn.check, outcome=outcome, measured=measured,
        required=f"≥ {limits.COMPUTE_SHARE:g} of the peers' median",
        origin="solo turns of nodes with the same processor",
        evidence=note, remedy=remedy, advice=advice,
    )  # fmt: skip


# --- scaling -----------------------------------------------------------------------------------------------------


def judge_scaling(evidence: Evidence, blamed: Collection[str]) -> Findings:
    """Shown, not judged, in a rehearsal: its nodes share processors, so a rank waits for the others' computing."""
    findings = Findings()
    for record in (r for r in evidence.trainings if r.mode == "ddp" and len(r.nodes) > 1):
        split = split_step(record)
        if split is None:
            continue
        step, computing, waiting = split.step_s, split.compute_s + split.spread_s, split.comm_s
        limit = limits.SCALING_SLACK * (computing + _allowed_s(record, evidence))
        measured = (
            f"{len(record.nodes)} nodes: step {step * 1e3:.4g} ms, computing {computing * 1e3:.4g} ms, "
            f"all-reduce {waiting * 1e3:.4g} ms; {split.words}"
        )
        required = f"≤ {limit * 1e3:.4g} ms"
        if evidence.rehearsal or record.gradient_bytes < LEAST_GRADIENT_BYTES:
            why = "nodes share processors" if evidence.rehearsal else "gradients are too small to say anything"
            findings.results.append(
                _scaling(evidence, Outcome.NOT_APPLICABLE, measured, "", f"shown, not judged: {why}")
            )
        elif step <= limit:
            findings.results.append(_scaling(evidence, Outcome.PASS, measured, required, ""))
        elif blamed or record.idle_share is None or record.idle_share < limits.BUSY_IDLE_SHARE:
            why = f"{', '.join(sorted(blamed))} is named already" if blamed else "the processors were busy"
            outcome = Outcome.SKIPPED if blamed else Outcome.INCONCLUSIVE
            findings.results.append(_scaling(evidence, outcome, measured, required, why))
            if not blamed:
                findings.undecided.append(f"Scaling on {len(record.nodes)} nodes: {why}; run again when they are idle.")
        else:
            remedy = LOOK_AT[split.lost[0][0]]
            findings.culprits.append(
                Culprit(
                    kind="cluster",
                    subject=evidence.cluster,
                    cause="scaling",
                    evidence=(measured, f"limit {required}"),
                    remedy=remedy,
                )
            )
            findings.results.append(_scaling(evidence, Outcome.FAIL, measured, required, remedy))
            findings.doubtful |= set(record.nodes)
    return findings


def _allowed_s(record: TrainingRecord, evidence: Evidence) -> float:
    """All-reduce of the gradients: by the slowest pair, or as long as the collective stage took for as many bytes."""
    count, bits = len(record.nodes), record.gradient_bytes * 8
    slowest = slowest_pair_gbps(record.nodes, evidence)
    by_pairs = 2 * (count - 1) / count * bits / (slowest * 1e9) if slowest else 0.0
    larger = [
        median(r.seconds)
        for r in evidence.collectives
        if set(r.nodes) == set(record.nodes) and r.bytes >= record.gradient_bytes and r.seconds
    ]
    return max(by_pairs, min(larger, default=0.0))


def _scaling(evidence: Evidence, outcome: Outcome, measured: str, required: str, note: str) -> CheckResult:
    origin = f"{limits.SCALING_SLACK:g} × (computing + all-reduce as the pairs allow)" if required else ""
    return CheckResult(
        subject=evidence.cluster, stage="training", check="scaling", outcome=outcome, measured=measured,
        required=required, origin=origin, evidence=note,
    )  # fmt: skip
