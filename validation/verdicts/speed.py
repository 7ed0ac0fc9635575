"""Products and memory bandwidth of each node by itself: right first, then fast beside its like, steady, and not hot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from validation.model import CheckResult, Culprit, Outcome, SpeedRecord
from validation.verdicts import limits
from validation.verdicts.compute import IDLE_CORES, IDLE_MARGIN, Turn, judge_turn
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings

UNITS = {"copy": "GB/s", "triad": "GB/s"}
SUSTAINED_SHARE = 0.90
"""Rate of the last quarter of a long run ÷ of the first quarter: below it, heat or power slows the node down."""
LEAST_REPETITIONS = 40
"""A quarter of fewer repetitions says nothing about heat."""
WITH_ITS_PROCESSOR = 0.90
"""Own processor share from which a slowing down isn't the sharing of processors."""


def judge_speeds(evidence: Evidence) -> Findings:
    findings = Findings()
    groups: dict[tuple[str, str], dict[str, SpeedRecord]] = defaultdict(dict)
    wrong: set[tuple[str, str]] = set()
    for record in evidence.speeds:
        if record.error:
            _not_done(record, findings)
        elif not record.verified:
            if (record.node, record.what) not in wrong:  # a turn may have been repeated
                _wrong(record, findings)
            wrong.add((record.node, record.what))
        elif record.sustained:
            _judge_heat(record, evidence, findings)
        else:
            group = groups[record.what, record.device or evidence.cpu_model(record.node)]
            if record.node not in group or rate(record) > rate(group[record.node]):
                group[record.node] = record
    for (what, _), best in groups.items():
        turns = [_turn(record, evidence) for record in best.values()]
        for turn in turns:
            _judge_beside(turn, [other for other in turns if other.node != turn.node], what, evidence, findings)
    return findings


def _judge_beside(turn: Turn, peers: Sequence[Turn], what: str, evidence: Evidence, findings: Findings) -> None:
    if not peers:
        findings.results.append(_alone(turn, what))
    elif evidence.rehearsal and _only_shared(turn, peers):
        findings.results.append(_shared(turn))
    elif evidence.rehearsal and _busy(turn) and _slow(turn, peers):
        findings.results.append(_one_machine(turn))
    else:
        judge_turn(turn, peers, evidence, findings)


def rate(record: SpeedRecord) -> float:
    return record.work * len(record.seconds) / max(sum(record.seconds), 1e-9)


def _turn(record: SpeedRecord, evidence: Evidence) -> Turn:
    cpus = evidence.cpus(record.node)
    idle = record.idle_share * cpus if record.idle_share is not None and cpus else None
    check = "memory-bandwidth" if record.what in UNITS else "products"
    unit = f"{UNITS.get(record.what, 'GFLOP/s')} {record.what}"
    return Turn(record.node, rate(record) / 1e9, record.cpu_share, idle, check, unit, f", {_jitter(record)}")


def _only_shared(turn: Turn, peers: Sequence[Turn]) -> bool:
    """On a busy host of a rehearsal: as fast as its peers by the processor time that it got. These turns are short."""
    shares = [one.cpu_share for one in (turn, *peers)]
    if not _busy(turn) or not all(shares):
        return False
    own, *others = (one.rate / (one.cpu_share or 1.0) for one in (turn, *peers))
    return own >= limits.COMPUTE_SHARE * median(others)


def _busy(turn: Turn) -> bool:
    return turn.idle_cores is not None and turn.idle_cores < IDLE_CORES - IDLE_MARGIN


def _slow(turn: Turn, peers: Sequence[Turn]) -> bool:
    return turn.rate < limits.COMPUTE_SHARE * median(peer.rate for peer in peers)


def _one_machine(turn: Turn) -> CheckResult:
    """Lab nodes share processors and memory, and these turns are short; the training's longer ones judge computing."""
    note = "shown, not judged: the nodes share one machine, which was busy; what was computed was right"
    measured = f"{turn.rate:.4g} {turn.unit}{turn.detail}"
    return _row(turn.node, turn.check, Outcome.NOT_APPLICABLE, measured, "", note)


def _shared(turn: Turn) -> CheckResult:
    note = f"own processor share {turn.cpu_share:.2f}, no processor idle: judged by the processor time that it got"
    required, origin = f"≥ {limits.COMPUTE_SHARE:g} of the peers' median", "solo turns of nodes with the same processor"
    return _row(
        turn.node, turn.check, Outcome.PASS, f"{turn.rate:.4g} {turn.unit}{turn.detail}", required, note, origin
    )


def _jitter(record: SpeedRecord) -> str:
    times = sorted(record.seconds)
    p50, p99 = median(times), times[min(len(times) - 1, int(0.99 * len(times)))]
    return f"p50 {p50 * 1e3:.3g} ms, p99 {p99 * 1e3:.3g} ms"


def _alone(turn: Turn, what: str) -> CheckResult:
    measured = f"{turn.rate:.4g} {turn.unit}{turn.detail}"
    return _row(turn.node, turn.check, Outcome.NOT_APPLICABLE, measured, "", f"{what}: no node with the same processor")


def _wrong(record: SpeedRecord, findings: Findings) -> None:
    fact = f"{record.what} gave a wrong result, or other bits from one repetition to the next, on the same numbers"
    remedy = (
        f"Do not train on {record.node}: test its memory (memtest86+) and what computes there under load; replace it."
    )
    findings.culprits.append(
        Culprit(kind="gpu" if record.device else "node", subject=record.node, cause="silent-data-corruption",
                evidence=(fact,), remedy=remedy, node=record.node)
    )  # fmt: skip
    check = "memory-bandwidth" if record.what in UNITS else "products"
    required, origin = "right, and the same bits each time", "computed in double precision"
    findings.results.append(_row(record.node, check, Outcome.FAIL, fact, required, "", origin, remedy))


def _not_done(record: SpeedRecord, findings: Findings) -> None:
    remedy = "The check broke, not the node: read the rank's log in the run's folder, run again."
    findings.results.append(_row(record.node, "products", Outcome.ERROR, record.error, "", "", "", remedy))
    findings.doubtful.add(record.node)


def _judge_heat(record: SpeedRecord, evidence: Evidence, findings: Findings) -> None:
    """Only a node that had its processor throughout can have been slowed by heat."""
    quarter = len(record.seconds) // 4
    measured = f"{rate(record) / 1e9:.4g} GFLOP/s for {sum(record.seconds):.0f} s, {_jitter(record)}"
    required, origin = f"last quarter ≥ {SUSTAINED_SHARE:g} of the first", "the same run's first quarter"
    if len(record.seconds) < LEAST_REPETITIONS:
        findings.results.append(_row(record.node, "sustained", Outcome.INCONCLUSIVE, measured, required, "too short"))
        findings.doubtful.add(record.node)
        return
    kept = sum(record.seconds[:quarter]) / sum(record.seconds[-quarter:])
    text = f"{measured}, last quarter {kept:.2f} of the first"
    if kept >= SUSTAINED_SHARE:
        findings.results.append(_row(record.node, "sustained", Outcome.PASS, text, required, "", origin))
    elif evidence.rehearsal:
        note = "shown, not judged: nodes share processors"
        findings.results.append(_row(record.node, "sustained", Outcome.NOT_APPLICABLE, text, required, note, origin))
    elif not record.device and (record.cpu_share or 0.0) < WITH_ITS_PROCESSOR:
        note = f"own processor share {record.cpu_share}: something else ran; run again when it is idle"
        findings.results.append(_row(record.node, "sustained", Outcome.INCONCLUSIVE, text, required, note, origin))
        findings.undecided.append(f"Heat of {record.node}: {text}; {note}.")
        findings.doubtful.add(record.node)
    else:
        remedy = f"Look at {record.node}'s fans, dust, heat sink and power limits (sensors, turbostat, nvidia-smi -q)."
        findings.culprits.append(
            Culprit(kind="node", subject=record.node, cause="heat", evidence=(text,), remedy=remedy, node=record.node)
        )
        findings.results.append(_row(record.node, "sustained", Outcome.FAIL, text, required, "", origin, remedy))


def _row(
    node: str, check: str, outcome: Outcome, measured: str, required: str, evidence: str = "", origin: str = "",
    remedy: str = "",
) -> CheckResult:  # fmt: skip
    return CheckResult(
        subject=node, stage="training", check=check, outcome=outcome, measured=measured, required=required,
        origin=origin, evidence=evidence, remedy=remedy,
    )  # fmt: skip
