"""From the findings of all parts to one verdict: symptoms under their cause, stages not run, each node by itself."""

from __future__ import annotations

from collections.abc import Mapping

from validation.model import STAGES, CheckResult, Culprit, Outcome, Stage, worst
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings

SYMPTOMS = frozenset(
    {"hang", "killed", "crash", "out-of-memory", "loss", "latency", "network-unsteady", "unreachable", "collective"}
    | {"slurm-state", "slurmctld-unreachable", "slurm-step", "scaling"}
)
"""What an earlier fault of the same node brings about; the rest stands beside it as a fault of its own."""
ROOTS = ("unreachable",)
"""A node that can't be reached has no other fault that anybody could see."""
EVIDENCE_AT_MOST = 12
INTERRUPTED = "interrupted"
"""Reason of a stage that a person ended: nothing broke, it just was not run to its end."""


def merge(culprits: list[Culprit], leaves: Mapping[str, str] | None = None) -> list[Culprit]:
    """One culprit a root cause, in the order of the stages; what follows from it becomes its evidence.

    `leaves`: node → leaf switch; what a link between two leaves suffers follows from either's fault.
    """
    of = leaves or {}
    first = [c for c in culprits if c.cause in ROOTS and (c.node or c.kind == "switch")]
    kept: list[Culprit] = []
    for culprit in [*first, *(c for c in culprits if c not in first)]:
        root = next((k for k in kept if _explains(k, culprit) or _switch_explains(k, culprit, of)), None)
        if root is None:
            kept.append(culprit)
        else:
            index = kept.index(root)
            news = tuple(f"also {culprit.cause}: {fact}" for fact in culprit.evidence if fact not in root.evidence)
            kept[index] = root.model_copy(update={"evidence": (*root.evidence, *news)[:EVIDENCE_AT_MOST]})
    return kept


def _explains(root: Culprit, other: Culprit) -> bool:
    if (root.kind, root.subject, root.cause) == (other.kind, other.subject, other.cause):
        return True
    if root.node is not None and root.node == other.node:
        return root.cause in ROOTS or (other.cause in SYMPTOMS and root.kind != "gpu")
    if root.kind == "service" and other.cause == root.cause and root.node is not None:
        return other.subject.endswith(f" on {root.node}")
    if root.kind == "link" and other.kind == "link" and root.subject == other.subject:
        return True
    if other.kind == "link" and root.node is not None and other.cause in SYMPTOMS:
        return root.node in other.subject.split("–")
    if root.cause == "silent-data-corruption" and (other.kind, other.cause) == ("cluster", "data-corruption"):
        return True  # a rank that computes wrongly spoils the sums of all
    return root.kind == "cluster" == other.kind and other.cause in SYMPTOMS


def _switch_explains(root: Culprit, other: Culprit, leaves: Mapping[str, str]) -> bool:
    """A bad switch's nodes and links have its symptoms; a switch that is cut off was not slow besides."""
    if root.kind != "switch" or other.cause not in SYMPTOMS | {"uplink", "switch"}:
        return False
    if other.kind == "switch":
        return root.subject == other.subject
    ends = other.subject.split("–") if other.kind == "link" else [other.node] if other.node else []
    found = {leaves.get(end) for end in ends if end}
    across = len(found) > 1 or root.cause in ("switch", "unreachable")
    return across and bool(found & {root.subject, *root.subject.split("–")})


def stage_results(evidence: Evidence) -> Findings:
    """A stage that was not run to its end is a result, too: not run is never a pass."""
    findings = Findings()
    for stage in STAGES:
        record = evidence.stages.get(stage)
        if record and record.status == "done":
            continue
        asked = stage in evidence.run.stages
        reason = (record.reason if record else "") or ("it was not run to its end" if asked else "not asked for")
        broke = record is not None and record.status == "error" and not reason.startswith(INTERRUPTED)
        outcome = Outcome.ERROR if broke else Outcome.SKIPPED
        findings.results.append(
            CheckResult(
                subject=evidence.cluster, stage=stage, check="stage", outcome=outcome, measured=reason,
                required="the stage is run", origin="a certificate is about all stages",
            )
        )  # fmt: skip
        if asked:
            findings.undecided.append(f"Stage {stage}: {reason}.")
    if evidence.run.partial:
        findings.undecided.append("The cluster as a whole: run without --only and --nodes to certify it.")
    return findings


def cluster_verdict(evidence: Evidence, findings: Findings) -> Outcome:
    """The severest outcome; a partial run never passes, whatever it found."""
    outcomes = [result.outcome for result in findings.results]
    blamed = [culprit for culprit in findings.culprits if culprit.kind != "validator"]
    outcomes += [Outcome.FAIL] * bool(blamed) + [Outcome.ERROR] * (len(blamed) < len(findings.culprits))
    outcomes += [outcome for outcome in node_verdicts(evidence, findings).values() if outcome is not Outcome.PASS]
    outcomes += [Outcome.INCONCLUSIVE] * bool(findings.doubtful or evidence.run.partial)
    return worst(outcomes)


def node_verdicts(evidence: Evidence, findings: Findings) -> dict[str, Outcome]:
    """Each node by its own tests: a cut link or a dead service does not fail the nodes at its ends."""
    blamed = findings.blamed_nodes()
    names = sorted({*evidence.run.nodes, *blamed})
    errors = {r.subject for r in findings.results if r.outcome is Outcome.ERROR}
    did = _did(evidence)
    return {
        name: Outcome.FAIL
        if name in blamed
        else Outcome.ERROR
        if name in errors
        else Outcome.INCONCLUSIVE
        if name in findings.doubtful or not _tested(name, did, evidence)
        else Outcome.PASS
        for name in names
    }


def _tested(node: str, did: Mapping[Stage, frozenset[str]], evidence: Evidence) -> bool:
    """Every stage that was asked for has done something with this node."""
    trains, alone = node in evidence.compute, len(evidence.compute & set(evidence.run.nodes)) < 2
    spared = {"node": False, "pairs": not trains or alone, "cluster": not trains or alone, "training": not trains}
    return all(spared[stage] or node in did[stage] for stage in evidence.run.stages)


def _did(evidence: Evidence) -> dict[Stage, frozenset[str]]:
    """Stage → nodes that it has done something with."""
    return {
        "node": frozenset(record.node for record in evidence.checks if record.outcome is Outcome.PASS),
        "pairs": frozenset(name for cell in evidence.cells for name in (cell.src, cell.dst)),
        "cluster": frozenset(name for record in evidence.collectives for name in record.nodes),
        "training": frozenset(name for record in evidence.trainings for name in record.nodes),
    }
