"""The judge on whole runs with one thing changed: node checks, failed ranks, and what was not run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.changes import HEALTHY, changed, failed_check, failure, named, only
from validation.model import (
    NodeCheckRecord,
    Outcome,
    RunRecord,
    StageRecord,
)
from validation.verdict import judge
from validation.verdicts.evidence import NoRunRecordError


def test_a_healthy_run_passes() -> None:
    """All stages done and good: PASS for the cluster and each node, nothing undecided, every result with its origin."""
    judgement = judge(HEALTHY)
    assert (judgement.verdict, judgement.culprits, judgement.undecided) == (Outcome.PASS, (), ())
    assert set(judgement.nodes.values()) == {Outcome.PASS}
    judged = [r for r in judgement.results if r.outcome is Outcome.PASS]
    assert all(r.measured and r.required and r.origin for r in judged)


# --- node stage --------------------------------------------------------------------------------------------------


def test_a_failed_node_check_drains_its_node_alone() -> None:
    """A wrong clock on n3: n3 is the culprit, with the check's own remedy."""
    judgement = judge([*HEALTHY, failed_check("n3", "clock-offset", "clock")])
    assert named(judgement) == {("node", "n3", "clock", "n3")}
    assert only(judgement).remedy == "mend it"
    assert [n for n, outcome in judgement.nodes.items() if outcome is not Outcome.PASS] == ["n3"]


def test_a_service_that_fails_every_node_is_one_culprit_and_nobody_is_drained() -> None:
    """NFS on the head is dead: one line, no node drained, and the nodes' own verdict stays."""
    dead = {"culprit_kind": "service", "culprit": "NFS on head"}
    judgement = judge([*HEALTHY, *(failed_check(n, "storage-mounts", "nfs-down", **dead) for n in ("n1", "n2", "n3"))])
    assert named(judgement) == {("service", "NFS on head", "nfs-down", None)}
    assert judgement.verdict is Outcome.FAIL
    assert Outcome.FAIL not in judgement.nodes.values()


def test_a_service_that_only_one_node_misses_is_that_nodes() -> None:
    """The storage answers n1 and n2 and hangs on n3: n3's mount is at fault, and n3 is drained."""
    stuck = {"culprit_kind": "service", "culprit": "storage /shared"}
    well = [NodeCheckRecord(node=n, check="storage-mounts", outcome=Outcome.PASS) for n in ("n1", "n2")]
    judgement = judge([*HEALTHY, *well, failed_check("n3", "storage-mounts", "storage-stale", **stuck)])
    assert named(judgement) == {("node", "n3", "storage-stale", "n3")}


def test_a_service_of_the_node_itself_stays_one() -> None:
    """The directory's daemon is down on n3: a service on n3 that others don't have, so nobody is drained."""
    down = {"culprit_kind": "service", "culprit": "slapd on n3"}
    well = [NodeCheckRecord(node=n, check="people-services", outcome=Outcome.PASS) for n in ("n1", "n2")]
    judgement = judge([*HEALTHY, *well, failed_check("n3", "people-services", "slapd-down", **down)])
    assert named(judgement) == {("service", "slapd on n3", "slapd-down", None)}


def test_the_same_cause_on_most_nodes_is_the_clusters() -> None:
    """Three of four nodes with the same wrong clock have one reason: nobody is drained, nobody passes."""
    judgement = judge([*HEALTHY, *(failed_check(n, "clock-offset", "clock") for n in ("n1", "n2", "n3"))])
    assert named(judgement) == {("cluster", "sim", "clock", None)}
    assert judgement.nodes["n1"] is Outcome.INCONCLUSIVE
    assert judgement.nodes["n4"] is Outcome.PASS


def test_a_broken_check_is_the_validators_and_never_a_pass() -> None:
    """A missing tool on n3: ERROR, kind validator, n3 neither drained nor passed."""
    broken = NodeCheckRecord(node="n3", check="time-daemon", outcome=Outcome.ERROR, evidence="chronyc is not there")
    judgement = judge([*HEALTHY, broken])
    assert only(judgement).kind == "validator"
    assert only(judgement).node is None
    assert (judgement.verdict, judgement.nodes["n3"]) == (Outcome.ERROR, Outcome.ERROR)


def test_advice_does_not_fail_anything() -> None:
    """A check that passes with advice keeps the certificate, and the advice is shown."""
    advised = NodeCheckRecord(
        node="n3", check="time-daemon", outcome=Outcome.PASS, measured="off", advice="start chrony"
    )
    judgement = judge([*HEALTHY, advised])
    assert judgement.verdict is Outcome.PASS
    assert [r.advice for r in judgement.results if r.advice] == ["start chrony"]


def test_an_unreachable_node_swallows_its_other_failures() -> None:
    """A node that can't be reached has one culprit; what else failed there is its evidence."""
    records = [
        *(
            r
            for r in HEALTHY
            if "n3" not in r.model_dump_json(exclude={"inventory", "lock", "nodes"}) or r.kind == "run"
        ),
        failed_check("n3", "clock-offset", "clock"),
        failed_check("n3", "reachable", "unreachable"),
        failure("n3", "unreachable", "no answer", stage="pairs"),
    ]
    judgement = judge(records)
    assert named(judgement) == {("node", "n3", "unreachable", "n3")}
    assert any("clock" in fact for fact in only(judgement).evidence)


# --- failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "detail", "more", "cause"),
    [
        ("hang", "the process is stopped", {"process_state": "T", "silent_s": 7.0}, "hang"),
        ("signal", "SIGKILL", {}, "killed"),
        ("signal", "SIGKILL", {"memory_kill": True}, "out-of-memory"),
        ("exit", "exit status 1", {}, "crash"),
        ("unreachable", "no answer", {}, "unreachable"),
        ("exception", "ValueError: no", {}, "crash"),
        ("hang", "it is at step 5, phase forward while others are at step 5, phase all-reduce", {}, "hang"),
    ],
)
def test_a_failed_rank_names_its_node_and_clears_the_waiting(
    what: str, detail: str, more: dict[str, Any], cause: str
) -> None:
    """The rank that stopped is named with stage, step and state; those that waited are said to be innocent."""
    record = failure("n3", what, detail, step="ddp on 4 nodes, step 5", waiting=("n1", "n2", "n4"), **more)
    judgement = judge([*HEALTHY, record])
    assert named(judgement) == {("node", "n3", cause, "n3")}
    text = " ".join(only(judgement).evidence)
    assert "stage training" in text
    assert "step 5" in text
    assert "not to blame: n1, n2, n4" in text


def test_a_skipped_collective_is_the_programs() -> None:
    """A rank that waits in another collective than the others runs another program; no node is drained."""
    record = failure("n3", "hang", "it is at step 6, phase all-reduce while others are at step 5, phase all-reduce")
    judgement = judge([*HEALTHY, record])
    assert {(c.kind, c.cause, c.node) for c in judgement.culprits} == {("software", "collective-mismatch", None)}


def test_a_collective_of_an_unexpected_size_is_the_programs() -> None:
    """gloo's complaint on the ranks that met another collective, and one that hangs for want of it: no node's fault."""
    records = [
        failure("n1", "exception", "ranks are in different collectives: RuntimeError: op.preamble.length <= op.nbytes"),
        failure("n3", "hang", "it is at step 11, phase backward while others are at step 10, phase all-reduce"),
    ]
    judgement = judge([*HEALTHY, *records])
    assert {(c.kind, c.cause, c.node) for c in judgement.culprits} == {("software", "collective-mismatch", None)}


def test_a_rank_that_gloo_aborts_for_another_collective_is_no_nodes_fault() -> None:
    """As recorded in the lab: n3 left one all-reduce out, and gloo ended it when the next one's size did not fit."""
    last = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
        "  what():  [enforce fail at ./gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 183200 vs 2560",
    )
    judgement = judge([*HEALTHY, failure("n3", "signal", "SIGABRT", last_lines=last)])
    assert {(c.kind, c.cause, c.node) for c in judgement.culprits} == {("software", "collective-mismatch", None)}
    assert judgement.nodes["n3"] is not Outcome.FAIL
    other = judge([*HEALTHY, failure("n3", "signal", "SIGABRT", last_lines=("double free or corruption",))])
    assert named(other) == {("node", "n3", "killed", "n3")}


def test_the_same_exception_on_all_ranks_is_the_programs() -> None:
    """No node is drained for a mistake that every rank made."""
    records = [failure(n, "exception", "RuntimeError: shapes") for n in ("n1", "n2", "n3", "n4")]
    judgement = judge([*HEALTHY, *records])
    assert {(c.kind, c.cause, c.node) for c in judgement.culprits} == {("software", "exception", None)}


def test_exceptions_beside_a_dead_rank_are_its_victims() -> None:
    """When n3 is killed and the others raise, n3 alone is named."""
    records = [failure("n3", "signal", "SIGKILL"), failure("n1", "exception", "Connection reset")]
    judgement = judge([*HEALTHY, *records])
    assert named(judgement) == {("node", "n3", "killed", "n3")}


def test_a_rank_that_could_not_start_is_an_error_of_the_validator() -> None:
    """No torch on n3: the node was not tested, so ERROR and never PASS, and it is not drained."""
    judgement = judge([*HEALTHY, failure("n3", "no-start", "No module named torch", stage="pairs")])
    assert only(judgement).kind == "validator"
    assert judgement.nodes["n3"] is not Outcome.PASS
    assert judgement.verdict is Outcome.ERROR


def test_a_failure_of_a_node_already_named_is_its_symptom() -> None:
    """n3 has no memory left and then dies in training: one culprit, the death is its evidence."""
    judgement = judge([*HEALTHY, failed_check("n3", "hardware", "memory"), failure("n3", "signal", "SIGKILL")])
    assert named(judgement) == {("node", "n3", "memory", "n3")}
    assert any("SIGKILL" in fact for fact in only(judgement).evidence)


def test_most_ranks_killed_at_once_is_the_clusters() -> None:
    """Three of four nodes die of the same cause: one reason outside of them, nobody is drained."""
    judgement = judge([*HEALTHY, *(failure(n, "signal", "SIGKILL") for n in ("n1", "n2", "n3"))])
    assert named(judgement) == {("cluster", "sim", "killed", None)}


# --- what was not run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["node", "pairs", "cluster", "training"])
def test_a_stage_that_did_not_run_is_never_a_pass(stage: str) -> None:
    """Without the record that a stage was done the cluster is INCONCLUSIVE, and the stage is named."""
    records = [r for r in HEALTHY if not (isinstance(r, StageRecord) and r.stage == stage)]
    judgement = judge(records)
    assert judgement.verdict is Outcome.INCONCLUSIVE
    assert any(stage in text for text in judgement.undecided)


@pytest.mark.parametrize("kind", ["node_check", "cell", "collective", "training"])
def test_a_stage_that_measured_nothing_is_never_a_pass(kind: str) -> None:
    """A stage said to be done without one measurement proves nothing about any node."""
    judgement = judge([r for r in HEALTHY if r.kind != kind])
    assert judgement.verdict is Outcome.INCONCLUSIVE
    assert Outcome.PASS not in judgement.nodes.values()


def test_a_partial_run_never_passes_the_cluster() -> None:
    """With --only or --nodes the nodes have their verdicts, the cluster stays INCONCLUSIVE and says why."""
    judgement = judge(changed(RunRecord, lambda r: {"partial": True}))
    assert judgement.verdict is Outcome.INCONCLUSIVE
    assert set(judgement.nodes.values()) == {Outcome.PASS}
    assert any("--only" in text for text in judgement.undecided)


def test_records_without_a_run_are_refused() -> None:
    """Nothing can be judged without knowing what the run was about."""
    with pytest.raises(NoRunRecordError, match="found 0"):
        judge(HEALTHY[1:])
