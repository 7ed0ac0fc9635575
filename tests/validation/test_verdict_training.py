"""The judge on collectives and trainings: data first, then speed, and whose fault either is."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from tests.simulator.changes import HEALTHY, changed, failed_check, named
from tests.simulator.run import whole_run
from validation.model import (
    CollectiveRecord,
    Outcome,
    Record,
    RunRecord,
    TrainingRecord,
)
from validation.verdict import judge

# --- cluster and training ----------------------------------------------------------------------------------------


def test_a_slow_collective_over_good_pairs_is_the_clusters() -> None:
    """Half of what the slowest pair allows, on idle processors: the cluster, and no node."""
    slow: dict[str, Any] = {"busbw_gbps": 0.4, "seconds": (0.9, 0.9)}
    judgement = judge(changed(CollectiveRecord, lambda r: slow))
    assert named(judgement) == {("cluster", "sim", "collective", None)}


def taken_apart(slow: set[frozenset[str]]) -> list[Record]:
    """The slow collective of four nodes, and all-reduces of two of which these pairs are slow too."""
    (whole,) = [r for r in HEALTHY if isinstance(r, CollectiveRecord)]
    whole = whole.model_copy(update={"busbw_gbps": 0.4, "seconds": (0.48,) * 5})
    parts = [
        whole.model_copy(
            update={
                "nodes": pair,
                "part_of": whole.nodes,
                "busbw_gbps": 0.4 if frozenset(pair) in slow else 0.9,
                "seconds": ((0.32 if frozenset(pair) in slow else 0.14),) * 3,
            }
        )
        for pair in combinations(whole.nodes, 2)
    ]
    return [r for r in HEALTHY if not isinstance(r, CollectiveRecord)] + [whole, *parts]


def test_a_node_that_slows_every_collective_is_named() -> None:
    """Slow with each partner and good without it: that node. One slow pair, or all of them, says nothing of a node."""
    nodes = {node for r in HEALTHY if isinstance(r, CollectiveRecord) for node in r.nodes}
    pairs = {frozenset(pair) for pair in combinations(nodes, 2)}
    with_n3 = judge(taken_apart({pair for pair in pairs if "n3" in pair}))
    assert named(with_n3) == {("node", "n3", "network-both-ways", "n3")}
    for slow in ({frozenset(("n1", "n3"))}, pairs):
        assert named(judge(taken_apart(slow))) == {("cluster", "sim", "collective", None)}


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
