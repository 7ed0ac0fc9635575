"""The verdict: a pure function of a run's records, which says who is to blame and what is still to be measured."""

from __future__ import annotations

from collections.abc import Sequence

from validation.model import Judgement, Outcome, Record, worst
from validation.verdicts.bandwidth import judge_bandwidth
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings


def judge(records: Sequence[Record]) -> Judgement:
    evidence = Evidence(records)
    findings = Findings()
    findings.add(judge_bandwidth(evidence, [], []))
    blamed = findings.blamed_nodes()
    nodes = {
        n: Outcome.FAIL if n in blamed else Outcome.INCONCLUSIVE if n in findings.doubtful else Outcome.PASS
        for n in evidence.run.nodes
    }
    return Judgement(
        verdict=worst([r.outcome for r in findings.results]),
        culprits=tuple(findings.culprits),
        results=tuple(findings.results),
        nodes=nodes,
        wanted=tuple(findings.wanted) if evidence.pairs_open else (),
        undecided=tuple(findings.undecided),
    )
