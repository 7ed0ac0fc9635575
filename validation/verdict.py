"""The verdict: a pure function of a run's records that says who is to blame and what is still to be measured."""

from __future__ import annotations

from collections.abc import Sequence

from validation.model import CheckResult, Judgement, Record, WantedFanIn, WantedRound
from validation.verdicts.acceptance import judge_acceptance
from validation.verdicts.bandwidth import judge_bandwidth
from validation.verdicts.collective import judge_collectives
from validation.verdicts.compose import cluster_verdict, merge, node_verdicts, stage_results
from validation.verdicts.compute import judge_compute, judge_scaling
from validation.verdicts.corruption import judge_corruption
from validation.verdicts.evidence import Evidence
from validation.verdicts.failures import judge_failures
from validation.verdicts.findings import Findings
from validation.verdicts.history import judge_history
from validation.verdicts.latency import judge_latency
from validation.verdicts.node_stage import judge_node_stage
from validation.verdicts.reach import judge_reach
from validation.verdicts.silent_errors import judge_silent_errors
from validation.verdicts.speed import judge_speeds
from validation.verdicts.training import judge_training
from validation.verdicts.transport import judge_transport


def judge(records: Sequence[Record]) -> Judgement:
    """The same records give the same judgement, byte for byte: no clock, no chance, no file is read.

    While the pairs stage has no StageRecord yet, `wanted` holds what the caller should measure next, in this order;
    it then judges all records again. This ends by itself: every suspicion has a bounded number of retests.
    Raises NoRunRecordError unless there is exactly one RunRecord.
    """
    evidence = Evidence(records)
    findings = Findings()
    findings.add(judge_node_stage(evidence))
    _judge_pairs(evidence, findings)
    findings.add(judge_transport(evidence))
    findings.add(judge_silent_errors(evidence))
    findings.add(judge_speeds(evidence))
    findings.add(judge_collectives(evidence, findings.blamed_nodes()))
    corrupt = findings.blamed_nodes(("silent-data-corruption",))
    findings.add(judge_training(evidence, corrupt))
    findings.add(judge_acceptance(evidence, corrupt))
    findings.add(judge_compute(evidence))
    findings.add(judge_scaling(evidence, findings.blamed_nodes()))
    findings.add(judge_failures(evidence))
    findings.add(judge_history(evidence, findings.blamed_nodes()))
    findings.add(stage_results(evidence))
    findings.culprits = merge(findings.culprits, evidence.leaves)
    return Judgement(
        verdict=cluster_verdict(evidence, findings),
        culprits=tuple(findings.culprits),
        results=_in_order(findings.results),
        nodes=node_verdicts(evidence, findings),
        wanted=_wishes(findings.wanted) if evidence.pairs_open else (),
        undecided=tuple(findings.undecided),
    )


def _judge_pairs(evidence: Evidence, findings: Findings) -> None:
    """Each part leaves out what an earlier one has named: no connection, wrong data, bandwidth, then latency."""
    absent = findings.blamed_nodes(("unreachable",)) | evidence.failed_nodes("node")
    reach = judge_reach(evidence)
    findings.add(reach.findings)
    findings.add(judge_corruption(evidence))
    if evidence.cells or evidence.done("pairs"):
        bandwidth = judge_bandwidth(evidence, reach.nodes | absent, reach.dead)
        findings.add(bandwidth)
        switches = {culprit.subject for culprit in bandwidth.culprits if culprit.kind == "switch"}
        findings.add(judge_latency(evidence, reach.nodes | absent | bandwidth.blamed_nodes(), switches))


def _wishes(wanted: Sequence[WantedRound | WantedFanIn]) -> tuple[WantedRound | WantedFanIn, ...]:
    """Each once, in the order of asking."""
    return tuple(dict.fromkeys(wanted))


def _in_order(results: Sequence[CheckResult]) -> tuple[CheckResult, ...]:
    """As they came, the first of equals only."""
    return tuple(dict.fromkeys(results))
