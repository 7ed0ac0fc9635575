"""Believable runs made by hand, healthy and broken, for the tests of what a run tells.

They are made once and shared: tests copy what they change.
To look at them: `python -m tests.validation.sample_run FOLDER`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from inventory.model import Substrate
from tests.validation.sample_builder import Builder, Sample
from validation.certificate import build_certificate, certificate_json
from validation.metrics import render_metrics
from validation.model import CheckResult, Culprit, FailureRecord, JournalRecord, Outcome
from validation.report import render_report
from validation.summary import render_summary


@cache
def healthy(substrate: Substrate = "rehearsal", nodes: tuple[str, ...] = ("head", "n1", "n2", "n3")) -> Sample:
    """Nothing wrong."""
    run = Builder(substrate=substrate, nodes=nodes)
    run.begin()
    run.node_checks()
    run.pairs()
    run.collectives()
    run.training()
    return run.judged()


@cache
def slow_network() -> Sample:
    """n3's network at 50 Mb/s instead of 1 Gb/s, and its resolver dead."""
    slow = {pair: 0.048 for node in ("head", "n1", "n2") for pair in ((node, "n3"), ("n3", node))}
    run = Builder(slow=slow)
    run.begin()
    run.node_checks()
    run.pairs(rounds=3)
    run.collectives()
    run.training()
    culprit = Culprit(
        kind="node",
        subject="n3",
        cause="network",
        evidence=(
            "3 of 3 retests low: 0.048 Gb/s with head, n1 and n2, in both directions (declared 1 Gb/s)",
            "control pair n1–n2 in the same rounds: 0.94 Gb/s",
            "fan-in: head and n1 together reach 0.047 Gb/s into n3, one alone 0.047 Gb/s",
        ),
        remedy="Look at n3's cable, switch port and its negotiated speed: ethtool on its interface must say 1000Mb/s.",
        node="n3",
    )
    low = CheckResult(
        subject="n3", stage="pairs", check="bandwidth", outcome=Outcome.FAIL, measured="0.048 Gb/s",
        required="≥ 0.80 Gb/s", origin="declared 1 Gb/s × 0.80", evidence="3 of 3 retests low",
        remedy=culprit.remedy,
    )  # fmt: skip
    return run.judged([culprit], [low])


@cache
def link_cut() -> Sample:
    """No packet passes between n1 and n2; the world stages are left out for it."""
    run = Builder(cut=frozenset({frozenset(("n1", "n2"))}))
    run.begin()
    run.node_checks()
    run.pairs()
    run.stage("cluster", 0, "skipped", "n1 and n2 cannot reach each other")
    run.stage("training", 0, "skipped", "n1 and n2 cannot reach each other")
    culprit = Culprit(
        kind="link",
        subject="n1–n2",
        cause="unreachable",
        evidence=("n1 → n2 and n2 → n1: time-out after 3 s", "n1 and n2 both reach head and n3"),
        remedy="Look at the cable or switch ports between n1 and n2, and at firewall rules that name either address.",
    )
    cut = CheckResult(
        subject="n1–n2", stage="pairs", check="reach", outcome=Outcome.FAIL, measured="time-out after 3 s",
        required="connection in ≤ 3 s", origin="fixed", remedy=culprit.remedy,
    )  # fmt: skip
    skipped = [
        CheckResult(subject="lab", stage="cluster", check="all-reduce", outcome=Outcome.SKIPPED),
        CheckResult(subject="lab", stage="training", check="loss-falls", outcome=Outcome.SKIPPED),
    ]
    return run.judged([culprit], [cut, *skipped])


@cache
def hang() -> Sample:
    """n2's rank is stopped in the middle of the training."""
    run = Builder()
    run.begin()
    run.node_checks()
    run.pairs()
    run.collectives()
    run.records.append(
        FailureRecord(
            stage="training",
            node="n2",
            rank=1,
            what="hang",
            detail="stopped by a signal",
            step="ddp on 3 nodes, step 23, phase forward",
            silent_s=12.4,
            process_state="T (stopped)",
            waiting=("n1", "n3"),
            log="logs/n2-rank1.log",
            last_lines=("step 22 loss 0.61", "step 23 forward"),
        )
    )
    run.stage("training", 21.0, "error", "n2's rank stopped answering")
    lines = ("2026-10-03T10:16:02 n2 kernel: a kernel's line", "2026-10-03T10:16:03 n2 slurmd[812]: slurmd's line")
    run.records.append(JournalRecord(node="n2", lines=lines))
    culprit = Culprit(
        kind="node",
        subject="n2",
        cause="hang",
        evidence=(
            "rank 1 silent for 12.4 s at ddp on 3 nodes, step 23, phase forward; process state T (stopped)",
            "n1 and n3 only waited for it",
        ),
        remedy="Find out on n2 what stopped the process (journalctl, dmesg); a debugger or SIGSTOP leaves state T.",
        node="n2",
    )
    stopped = CheckResult(
        subject="n2", stage="training", check="finishes", outcome=Outcome.FAIL, measured="silent for 12.4 s",
        required="a heartbeat every 10 s", origin="fixed", remedy=culprit.remedy,
    )  # fmt: skip
    return run.judged([culprit], [stopped])


@cache
def undecided() -> Sample:
    """A busy host: nothing failed, nothing could be decided."""
    run = Builder()
    run.begin()
    run.node_checks()
    run.pairs()
    run.collectives()
    run.training()
    busy = CheckResult(
        subject="n1–n3", stage="pairs", check="bandwidth", outcome=Outcome.INCONCLUSIVE, measured="0.79 Gb/s",
        required="≥ 0.85 Gb/s", origin="declared 1 Gb/s × 0.85", evidence="idle processor share 0.02 in six rounds",
    )  # fmt: skip
    return run.judged(
        (), [busy], verdict=Outcome.INCONCLUSIVE,
        undecided=("Bandwidth of n1–n3: the host was busy in six rounds; run again while it is idle.",),
    )  # fmt: skip


@cache
def hostile() -> Sample:
    """A node that writes markup, script and terminal control sequences into everything it can."""
    sample = slow_network()
    evil = "<script>alert(1)</script>\x1b[2J\x1b]0;owned\x07\u202e'\"><img src=x onerror=alert(2)>"
    culprit = Culprit(kind="node", subject="n3", cause=evil, evidence=(evil,), remedy=evil, node="n3")
    result = CheckResult(subject="n3", stage="node", check=evil, outcome=Outcome.FAIL, measured=evil, required=evil,
                         origin=evil, evidence=evil, remedy=evil, advice=evil)  # fmt: skip
    failure = FailureRecord(stage="training", node="n3", rank=2, what="exit", detail=evil, step=evil,
                            process_state=evil, log=evil, last_lines=(evil,))  # fmt: skip
    judgement = sample.judgement.model_copy(update={
        "culprits": (culprit,), "results": (*sample.judgement.results, result), "undecided": (evil,),
    })  # fmt: skip
    return Sample([*sample.records, failure], judgement)


@cache
def large(count: int = 200) -> Sample:
    """Many nodes of which two fail."""
    nodes = ("head", *(f"n{at}" for at in range(1, count)))
    slow = {("n7", node): 0.4 for node in nodes}
    run = Builder(nodes=nodes, slow=slow)
    run.begin()
    run.node_checks()
    run.pairs(rounds=1)
    run.collectives()
    run.training()
    culprits = [
        Culprit(kind="node", subject=node, cause=cause, evidence=(f"{node} differs from {count - 1} peers",),
                remedy=f"Look at {node}.", node=node)
        for node, cause in (("n7", "network-egress"), ("n42", "disk-full"))
    ]  # fmt: skip
    full = CheckResult(subject="n42", stage="node", check="scratch-space", outcome=Outcome.FAIL, measured="100 % used",
                       required="≤ 90 % used", origin="fixed", remedy="Free room in /scratch.")  # fmt: skip
    return run.judged(culprits, [full])


SAMPLES: dict[str, Callable[[], Sample]] = {
    "healthy": healthy,
    "hardware": lambda: healthy("hardware"),
    "slow": slow_network,
    "cut": link_cut,
    "hang": hang,
    "undecided": undecided,
    "hostile": hostile,
    "large": lambda: large(70),
}


@cache
def certificate_of(make: Callable[[], Sample]) -> dict[str, Any]:
    """A sample's certificate, made once."""
    sample = make()
    return build_certificate(sample.records, sample.judgement, sample.results_sha256)


def write(folder: Path) -> None:
    """Write each sample's report, certificate, metrics and summary below `folder`, to be looked at."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in SAMPLES.items():
        sample = make()
        certificate = certificate_of(make)
        (folder / f"{name}.json").write_text(certificate_json(certificate))
        (folder / f"{name}.html").write_text(render_report(sample.records, sample.judgement, certificate))
        (folder / f"{name}.prom").write_text(render_metrics(certificate, sample.records))
        (folder / f"{name}.txt").write_text(render_summary(certificate, sample.judgement, report_path="report.html"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
