"""The judge on whole runs with one thing changed: each fault has its culprit, and nobody else is drained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.simulator.network import Faults
from tests.simulator.run import whole_run
from validation.model import (
    CollectiveRecord,
    Culprit,
    FailureRecord,
    Judgement,
    NodeCheckRecord,
    Outcome,
    ReachRecord,
    Record,
    RunRecord,
    Stage,
    StageRecord,
    TrainingRecord,
)
from validation.verdict import judge
from validation.verdicts.evidence import NoRunRecordError

HEALTHY = whole_run(4)


def changed(kind: type[Any], change: Callable[[Any], dict[str, Any]], records: Sequence[Record] = ()) -> list[Record]:
    """The healthy run with `change` applied to every record of one kind."""
    return [r.model_copy(update=change(r)) if isinstance(r, kind) else r for r in records or HEALTHY]


def failed_check(node: str, check: str, cause: str, **more: Any) -> NodeCheckRecord:
    return NodeCheckRecord(
        node=node, check=check, outcome=Outcome.FAIL, measured="bad", required="good", cause=cause,
        remedy="mend it", **more,
    )  # fmt: skip


def failure(node: str, what: str, detail: str, stage: Stage = "training", **more: Any) -> FailureRecord:
    return FailureRecord(stage=stage, node=node, rank=int(node[1:]) - 1, what=what, detail=detail, **more)


def named(judgement: Judgement) -> set[tuple[str, str, str, str | None]]:
    return {(c.kind, c.subject, c.cause, c.node) for c in judgement.culprits}


def only(judgement: Judgement) -> Culprit:
    (culprit,) = judgement.culprits
    return culprit


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


# --- reach -------------------------------------------------------------------------------------------------------


def dead(*pairs: tuple[str, str]) -> list[Record]:
    """The healthy run in which these directed pairs do not connect (and so were never measured)."""
    cut = {frozenset(pair) for pair in pairs}
    kept = [r for r in HEALTHY if not (r.kind == "cell" and frozenset((r.src, r.dst)) in cut)]
    return changed(ReachRecord, lambda r: {"ok": False, "error": "timeout"} if (r.src, r.dst) in pairs else {}, kept)


OTHERS = ("n1", "n2", "n4")


def test_a_node_nobody_reaches_is_unreachable() -> None:
    """No connection in or out: the node is named and drained, not three links."""
    judgement = judge(dead(*((n, "n3") for n in OTHERS), *(("n3", n) for n in OTHERS)))
    assert named(judgement) == {("node", "n3", "unreachable", "n3")}
    assert judgement.nodes["n1"] is Outcome.PASS


def test_a_cut_link_is_named_and_nobody_is_drained() -> None:
    """One pair dead both ways, both ends fine with others: the link."""
    judgement = judge(dead(("n3", "n4"), ("n4", "n3")))
    assert named(judgement) == {("link", "n3–n4", "unreachable", None)}
    assert set(judgement.nodes.values()) == {Outcome.PASS}
    assert judgement.verdict is Outcome.FAIL


def test_blocked_inbound_ports_are_a_firewall_on_that_node() -> None:
    """Nobody connects to n3, n3 connects to everybody: its firewall."""
    judgement = judge(dead(*((n, "n3") for n in OTHERS)))
    assert named(judgement) == {("node", "n3", "firewall-inbound", "n3")}


def test_blocked_outbound_ports_are_named_as_such() -> None:
    """n3 connects to nobody though everybody connects to it."""
    judgement = judge(dead(*(("n3", n) for n in OTHERS)))
    assert named(judgement) == {("node", "n3", "firewall-outbound", "n3")}


def test_a_fleet_without_any_connection_is_the_clusters() -> None:
    """Nothing connects with nothing: no node is drained for it."""
    pairs = [(a, b) for a in ("n1", "n2", "n3", "n4") for b in ("n1", "n2", "n3", "n4") if a != b]
    judgement = judge(dead(*pairs))
    assert named(judgement) == {("cluster", "sim", "unreachable", None)}
    assert Outcome.FAIL not in judgement.nodes.values()


def test_two_cut_links_are_two_links() -> None:
    """n1–n2 and n3–n4 are cut: every node still has good partners, so no node is named."""
    judgement = judge(dead(("n1", "n2"), ("n2", "n1"), ("n3", "n4"), ("n4", "n3")))
    assert {c.subject for c in judgement.culprits} == {"n1–n2", "n3–n4"}
    assert {c.node for c in judgement.culprits} == {None}


def test_a_worker_that_can_not_listen_is_the_validators() -> None:
    """No listener on n3 says nothing about its network: ERROR, not FAIL."""
    judgement = judge(changed(ReachRecord, lambda r: {"ok": False, "error": "no-listener"} if r.dst == "n3" else {}))
    assert judgement.culprits == ()
    assert (judgement.verdict, judgement.nodes["n3"]) == (Outcome.ERROR, Outcome.ERROR)


# --- data and latency --------------------------------------------------------------------------------------------


def test_corrupt_transfers_name_the_node_they_share() -> None:
    """Wrong data with two partners is the node's; it fails without any retest, since noise never does that."""
    hit = {("n3", "n1"), ("n3", "n2")}
    records = [
        r.model_copy(update={"verified": False}) if r.kind == "cell" and (r.src, r.dst) in hit else r for r in HEALTHY
    ]
    assert named(judge(records)) == {("node", "n3", "data-corruption", "n3")}


def test_one_corrupt_pair_is_the_link() -> None:
    """One pair alone can't say whose memory it was: the link, and neither end passes."""
    records = [
        r.model_copy(update={"verified": False}) if r.kind == "cell" and (r.src, r.dst) == ("n3", "n1") else r
        for r in HEALTHY
    ]
    judgement = judge(records)
    assert named(judgement) == {("link", "n1–n3", "data-corruption", None)}
    assert {judgement.nodes["n1"], judgement.nodes["n3"]} == {Outcome.INCONCLUSIVE}


def with_latency(p50: float, p99: float, rounds: Callable[[int], bool] = lambda number: True) -> list[Record]:
    """A run with retests of a slow-answering n3: its pairs have this latency in `rounds`."""
    slow = [
        r.model_copy(update={"latency_us": (p50, p99)})
        if r.kind == "cell" and "n3" in (r.src, r.dst) and rounds(r.round)
        else r
        for r in whole_run(4, faults=Faults.nodes(n3=0.3))
    ]
    return [
        r.model_copy(update={"repetitions_gbps": (0.94, 0.94, 0.94)}) if r.kind == "cell" else r
        for r in slow
        if r.kind != "fan_in"
    ]


def test_a_node_that_answers_late_is_named() -> None:
    """20 ms with every partner against 0.1 ms elsewhere, in every retest: latency of n3."""
    assert named(judge(with_latency(20_000, 30_000))) == {("node", "n3", "latency", "n3")}


def test_a_node_that_loses_packets_is_named_by_its_tail() -> None:
    """A good median with a 200 ms tail in every third round tells of lost packets."""
    assert named(judge(with_latency(120, 200_000, lambda number: number % 3 == 0))) == {("node", "n3", "loss", "n3")}


def test_one_stall_is_advice() -> None:
    """A single bad tail among many cells is rare: it passes, with advice."""
    records = list(HEALTHY)
    index = next(i for i, r in enumerate(records) if r.kind == "cell")
    records[index] = records[index].model_copy(update={"latency_us": (120.0, 220_000.0)})
    judgement = judge(records)
    assert judgement.verdict is Outcome.PASS
    assert any(r.advice for r in judgement.results if r.check == "latency-tail")


# --- cluster and training ----------------------------------------------------------------------------------------


def test_a_slow_collective_over_good_pairs_is_the_clusters() -> None:
    """Half of what the slowest pair allows, on idle processors: the cluster, and no node."""
    slow: dict[str, Any] = {"busbw_gbps": 0.4, "seconds": (0.9, 0.9)}
    judgement = judge(changed(CollectiveRecord, lambda r: slow))
    assert named(judgement) == {("cluster", "sim", "collective", None)}


def test_a_slow_collective_on_a_busy_host_is_inconclusive() -> None:
    """The same with busy processors decides nothing."""
    slow: dict[str, Any] = {"busbw_gbps": 0.4, "seconds": (0.9, 0.9), "idle_share": 0.02}
    judgement = judge(changed(CollectiveRecord, lambda r: slow))
    assert (judgement.verdict, judgement.culprits) == (Outcome.INCONCLUSIVE, ())


def test_a_wrong_sum_on_one_rank_is_that_nodes() -> None:
    """Only n2 holds a wrong sum: n2; a wrong sum on all ranks can't say whose."""
    one = judge(changed(CollectiveRecord, lambda r: {"verified": {**r.verified, "n2": False}}))
    assert named(one) == {("node", "n2", "data-corruption", "n2")}
    everywhere = judge(changed(CollectiveRecord, lambda r: {"verified": dict.fromkeys(r.nodes, False)}))
    assert named(everywhere) == {("cluster", "sim", "data-corruption", None)}


def test_a_loss_that_does_not_fall_is_the_programs() -> None:
    """A flat loss is software: no node is drained."""
    judgement = judge(changed(TrainingRecord, lambda r: {"losses": (2.0,) * len(r.losses)}))
    assert {(c.kind, c.cause, c.node) for c in judgement.culprits} == {("software", "loss-does-not-fall", None)}


def test_other_parameters_on_one_rank_name_it_by_majority() -> None:
    """Three of four ranks agree: the fourth diverged."""
    judgement = judge(
        changed(
            TrainingRecord,
            lambda r: {"parameter_sha256": {**r.parameter_sha256, "n3": "b" * 64}} if len(r.nodes) > 1 else {},
        )
    )
    assert named(judgement) == {("node", "n3", "parameters-diverge", "n3")}


def test_two_voters_can_only_differ() -> None:
    """With two ranks nobody has the majority: it fails, and no node is named."""
    records = changed(
        TrainingRecord,
        lambda r: {"parameter_sha256": {"n1": "a" * 64, "n2": "b" * 64}} if len(r.nodes) > 1 else {},
        whole_run(2),
    )
    judgement = judge(records)
    assert named(judgement) == {("cluster", "sim", "parameters-diverge", None)}
    assert judgement.nodes == {"n1": Outcome.INCONCLUSIVE, "n2": Outcome.INCONCLUSIVE}


def test_a_node_that_computes_other_bits_alone_is_named() -> None:
    """The same work alone gives another result on n3 only: silent data corruption there, and no software is blamed."""

    def corrupt(record: TrainingRecord) -> dict[str, Any]:
        if record.mode == "solo":
            return {"parameter_sha256": {"n3": "b" * 64}} if record.nodes == ("n3",) else {}
        return {"losses": tuple(loss * 1.02 for loss in record.losses)} if record.mode == "ddp" else {}

    assert named(judge(changed(TrainingRecord, corrupt))) == {("node", "n3", "silent-data-corruption", "n3")}


def test_other_software_withholds_the_vote_on_silent_errors() -> None:
    """With another torch on n3 its other bits prove nothing: the consistency is the culprit, the vote is skipped."""
    records = changed(
        TrainingRecord,
        lambda r: {"parameter_sha256": {"n3": "b" * 64}} if (r.mode, r.nodes) == ("solo", ("n3",)) else {},
    )
    judgement = judge([*records, failed_check("n3", "versions", "consistency")])
    assert named(judgement) == {("node", "n3", "consistency", "n3")}
    assert [r.outcome for r in judgement.results if r.check == "silent-errors"] == [Outcome.SKIPPED]


def test_losses_unlike_the_single_process_are_the_programs() -> None:
    """DDP that trains something else than one process with the same seed and data is a software fault."""
    records = changed(
        TrainingRecord, lambda r: {"losses": tuple(x * 1.01 for x in r.losses)} if r.mode == "ddp" else {}
    )
    assert named(judge(records)) == {("software", "the training program", "losses-differ", None)}


def slow_turn(factor: float, cpu_share: float, idle_share: float) -> list[Record]:
    def change(record: TrainingRecord) -> dict[str, Any]:
        if (record.mode, record.nodes) != ("solo", ("n3",)):
            return {}
        steps = tuple(seconds / factor for seconds in record.step_seconds["n3"])
        return {"step_seconds": {"n3": steps}, "cpu_share": {"n3": cpu_share}, "idle_share": idle_share}

    return changed(TrainingRecord, change)


def test_a_throttled_processor_is_named_as_compute() -> None:
    """0.3 of its peers alone, a low processor share and idle processors: compute, not network."""
    assert named(judge(slow_turn(0.3, 0.3, 0.8))) == {("node", "n3", "compute", "n3")}


def test_a_slow_turn_on_a_busy_host_is_inconclusive() -> None:
    """The same rate without an idle processor may only have had to share."""
    judgement = judge(slow_turn(0.5, 0.4, 0.0))
    assert judgement.culprits == ()
    assert judgement.nodes["n3"] is Outcome.INCONCLUSIVE


def test_scaling_of_a_rehearsal_is_shown_and_not_judged() -> None:
    """Nodes that share processors say nothing about scaling: the numbers are shown with outcome NOT_APPLICABLE."""
    (row,) = [r for r in judge(HEALTHY).results if r.check == "scaling"]
    assert row.outcome is Outcome.NOT_APPLICABLE
    assert "ms" in row.measured


def test_scaling_of_hardware_is_judged_by_computing_and_communication() -> None:
    """A step far longer than computing plus what the pairs allow for the gradients fails the cluster, no node."""
    records = changed(RunRecord, lambda r: {"substrate": "hardware"})
    big: dict[str, Any] = {"gradient_bytes": 4_000_000}
    slow = changed(TrainingRecord, lambda r: big | {"step_seconds": dict.fromkeys(r.nodes, (0.4,) * 38)}, records)
    assert named(judge(slow)) == {("cluster", "sim", "scaling", None)}


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
