"""Switches: a bad uplink or leaf is named instead of its nodes, and two leaves alone decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulator.fleets import Breaker, case, fabric, score
from tests.simulator.network import Fabric, Faults, Network, Noise
from tests.simulator.run import later_stages, names, node_stage, pairs_stage, reach_records, run_record
from validation.model import (
    STAGES,
    CellRecord,
    Culprit,
    Judgement,
    NodeCheckRecord,
    Outcome,
    ReachRecord,
    Record,
    RunRecord,
)
from validation.schedule import plan_rounds
from validation.verdict import judge

CALM = Noise(host_starts=0.0, node_starts=0.0)


def run(
    count: int, faults: Faults, *, thin: float = 1.0, seed: int = 1, leaf: int = 0
) -> tuple[list[Record], Judgement]:
    built = fabric(count, thin)
    if leaf:
        built = Fabric({node: f"leaf{number // leaf + 1}" for number, node in enumerate(names(count))}, thin)
    return pairs_stage(count, faults, CALM, seed, fabric=built)


def only(judgement: Judgement) -> Culprit:
    (culprit,) = judgement.culprits
    return culprit


@pytest.mark.parametrize("count", [12, 16, 32])
@pytest.mark.parametrize("thin", [1.0, 2.0])
def test_a_slow_uplink_is_named_and_no_node(count: int, thin: float) -> None:
    """Nodes that are low across and good inside pass; their leaf's uplink is the one culprit."""
    _, judgement = run(count, Faults(uplinks={"leaf2": 0.4}), thin=thin)
    culprit = only(judgement)
    assert (culprit.kind, culprit.subject, culprit.cause, culprit.node) == ("switch", "leaf2", "uplink", None)
    assert set(judgement.nodes.values()) == {Outcome.PASS}
    rows = [r for r in judgement.results if r.outcome is Outcome.SKIPPED and "leaf2" in r.evidence]
    assert rows, "pairs across are not judged until it is repaired"


@pytest.mark.parametrize("count", [8, 12, 16, 32])
def test_a_bad_leaf_is_told_from_its_uplink(count: int) -> None:
    """Slow inside, too: the switch itself; its nodes can't be certified, and none of them is drained."""
    _, judgement = run(count, Faults(switches={"leaf2": 0.4}))
    culprit = only(judgement)
    assert (culprit.kind, culprit.subject, culprit.cause) == ("switch", "leaf2", "switch")
    on_it = {node for node, leaf in fabric(count).leaves.items() if leaf == "leaf2"}
    assert {node for node, outcome in judgement.nodes.items() if outcome is Outcome.INCONCLUSIVE} == on_it
    assert Outcome.FAIL not in judgement.nodes.values()


def test_between_two_leaves_nobody_is_named() -> None:
    """Low across and good inside both: either end may be slow, so it is asked what would decide it."""
    _, judgement = run(8, Faults(uplinks={"leaf2": 0.4}))
    assert judgement.culprits == ()
    assert judgement.verdict is Outcome.INCONCLUSIVE
    assert any("leaf1 and leaf2" in text and "swap" in text for text in judgement.undecided)


def test_all_slow_across_is_the_spine() -> None:
    """All leaves are good inside and low across: what they share is named."""
    _, judgement = run(32, Faults(spine=0.4))
    assert (only(judgement).kind, only(judgement).subject) == ("switch", "spine")
    assert set(judgement.nodes.values()) == {Outcome.PASS}


def test_several_switches_and_nodes_at_once_are_all_named() -> None:
    """Two bad switches of eight, a slow node and a slow link elsewhere: four culprits."""
    faults = Faults(
        send={"n30": 0.3},
        receive={"n30": 0.3},
        uplinks={"leaf1": 0.4},
        switches={"leaf2": 0.3},
        links={("n40", "n50"): 0.3, ("n50", "n40"): 0.3},
    )
    _, judgement = run(64, faults)
    named = {(culprit.kind, culprit.subject) for culprit in judgement.culprits}
    assert named == {("switch", "leaf1"), ("switch", "leaf2"), ("node", "n30"), ("link", "n40–n50")}


def test_a_slow_node_on_a_leaf_with_a_slow_uplink_is_named_too() -> None:
    """Inside its leaf the node is seen by itself, whatever the way across does."""
    _, judgement = run(32, Faults(send={"n2": 0.2}, receive={"n2": 0.2}, uplinks={"leaf1": 0.4}))
    assert {(c.kind, c.subject) for c in judgement.culprits} == {("switch", "leaf1"), ("node", "n2")}


def test_a_slow_node_hides_behind_no_oversubscription() -> None:
    """At 2:1 a node with 0.6 of its speed is good enough for every pair across: pairs inside its leaf convict it."""
    _, judgement = run(32, Faults(send={"n2": 0.55}, receive={"n2": 0.55}), thin=2.0)
    assert only(judgement).node == "n2"


def test_declared_oversubscription_is_no_fault() -> None:
    """Pairs across that bring half of a port's speed are what 2:1 promises."""
    _, judgement = run(32, Faults(), thin=2.0)
    assert judgement.culprits == ()
    assert set(judgement.nodes.values()) == {Outcome.PASS}


def test_undeclared_oversubscription_decides_nothing() -> None:
    """Low pairs across leaves that nothing is declared about are INCONCLUSIVE, with the one thing to declare."""
    records, _ = run(32, Faults(), thin=2.0)

    def undeclared(run_record: RunRecord) -> RunRecord:
        leaves = [{**leaf, "oversubscription": None} for leaf in run_record.inventory["leaves"]]
        return run_record.model_copy(update={"inventory": {**run_record.inventory, "leaves": leaves}})

    judgement = judge([undeclared(r) if isinstance(r, RunRecord) else r for r in records])
    assert judgement.culprits == ()
    assert judgement.verdict is Outcome.INCONCLUSIVE
    assert [text for text in judgement.undecided if "oversubscription" in text and "leaf1" in text]


def test_a_leaf_of_one_node_is_its_node() -> None:
    """A single node can't be told from its switch: the node is named."""
    built = Fabric({node: "leaf1" if node == "n1" else "leaf2" for node in names(6)})
    _, judgement = pairs_stage(6, Faults.nodes(n1=0.3), CALM, 3, fabric=built)
    assert only(judgement).node == "n1"


def test_a_leaf_is_retested_before_it_is_named() -> None:
    """After the plan alone nobody is named; what is wanted loads the whole leaf, with controls elsewhere."""
    records, _ = run(32, Faults(uplinks={"leaf2": 0.4}))
    plan = [r for r in records if not isinstance(r, CellRecord) or r.purpose == "plan"][:-1]
    judgement = judge(plan)
    assert judgement.culprits == ()
    (wanted,) = [one for one in judgement.wanted if one.want == "round" and one.purpose == "leaf"]
    on_it = {node for node, leaf in fabric(32).leaves.items() if leaf == "leaf2"}
    assert on_it <= {node for pair in wanted.pairs for node in pair}
    assert wanted.controls
    assert not on_it & {node for pair in wanted.controls for node in pair}


def test_a_busy_host_names_no_switch() -> None:
    """Everything is slow and no processor is idle: INCONCLUSIVE."""
    for seed in range(3):
        _, judgement = pairs_stage(16, Faults(), Noise(busy=True), seed, fabric=fabric(16))
        assert judgement.culprits == ()


@pytest.mark.parametrize("family", ["lognormal", "dips"])
@pytest.mark.parametrize("mix", ["healthy", "several", "bad switches", "all slow and one"])
def test_large_fleets_are_judged_right(family: str, mix: str) -> None:
    """64 nodes by the six rounds of level quick: nobody is named wrongly; nodes, switches and the cluster are found."""
    found = score(64, mix, 3, family, "quick", seed=11)
    assert found.alarms == 0
    for kind in ("node", "switch", "cluster"):
        assert found.hits[kind] == found.guilty[kind]


def test_faults_are_put_where_none_hides_another() -> None:
    """The simulator's guilty are nameable: nothing else is broken on a broken leaf."""
    import random

    rng = random.Random(3)  # noqa: S311 - noise, not a secret
    for _ in range(20):
        one: Any = case("several", 64, rng, fabric(64))
        bad = {name for kind, name in one.guilty if kind == "switch"}
        assert not bad & {fabric(64).leaves[node] for kind, node in one.guilty if kind == "node"}
    assert isinstance(Breaker(64, rng, fabric(64)).share(), float)


def test_a_part_of_the_pairs_certifies_a_large_fleet_at_level_quick() -> None:
    """20 nodes on leaves, six rounds: every stage passes, the coverage is told, and so is what a part can't find."""
    fleet = Fabric({node: f"leaf{number // 5 + 1}" for number, node in enumerate(names(20))})
    pairs, _ = pairs_stage(20, Faults(), CALM, 1, level="quick", fabric=fleet)
    begin = run_record(names(20), stages=STAGES, level="quick", fabric=fleet)
    records = [begin, *node_stage(names(20)), *reach_records(names(20)), *pairs[1:], *later_stages(names(20))]
    judgement = judge(records)
    assert judgement.verdict is Outcome.PASS, judgement.undecided
    (row,) = [row for row in judgement.results if row.measured.endswith("of 190 pairs measured")]
    assert "single links need all pairs" in row.advice
    unmet = [r for r in records if not (isinstance(r, CellRecord) and "n3" in (r.src, r.dst) and r.round > 0)]
    judgement = judge(unmet)
    assert judgement.nodes["n3"] is Outcome.INCONCLUSIVE
    assert [text for text in judgement.undecided if "n3: met fewer than 4 partners" in text]


# --- one cause, many symptoms ------------------------------------------------------------------------------------

FLEET = Fabric({node: f"leaf{number // 4 + 1}" for number, node in enumerate(names(12))})
ON_LEAF2 = ("n5", "n6", "n7", "n8")


def whole(change: Callable[[Any], Any], fleet: Fabric = FLEET) -> Judgement:
    """A healthy run of twelve nodes on leaves with all stages, every record changed as asked (None: left out)."""
    count = len(fleet.leaves)
    pairs, _ = pairs_stage(count, Faults(), CALM, 1, fabric=fleet)
    run_of_all = run_record(names(count), stages=STAGES, fabric=fleet)
    records = [
        run_of_all,
        *node_stage(names(count)),
        *reach_records(names(count)),
        *pairs[1:],
        *later_stages(names(count)),
    ]
    return judge([new for record in records if (new := change(record)) is not None])


def cut_off(fleet: Fabric, *leaves: str) -> Callable[[Any], Any]:
    def change(record: Any) -> Any:
        if isinstance(record, ReachRecord | CellRecord):
            a, b = fleet.leaves[record.src], fleet.leaves[record.dst]
            if a != b and {a, b} & set(leaves):
                dead = {"ok": False, "error": "timeout", "connect_ms": None}
                return record.model_copy(update=dead) if isinstance(record, ReachRecord) else None
        return record

    return change


def test_a_leaf_that_is_cut_off_is_one_culprit_and_nobody_is_drained() -> None:
    """Its nodes reach each other and nobody else: the switch, not four unreachable nodes."""
    judgement = whole(cut_off(FLEET, "leaf2"))
    culprit = only(judgement)
    assert (culprit.kind, culprit.subject, culprit.cause, culprit.node) == ("switch", "leaf2", "unreachable", None)
    assert Outcome.FAIL not in judgement.nodes.values()


def test_all_leaves_cut_off_from_each_other_is_the_spine() -> None:
    """Every connection across is dead and every one inside is good."""
    judgement = whole(cut_off(FLEET, "leaf1", "leaf2", "leaf3"))
    assert [(c.kind, c.subject) for c in judgement.culprits] == [("switch", "spine")]


def test_two_leaves_cut_off_from_each_other_are_named_together() -> None:
    """The fault is certain, which end it has is not; no node is drained for it."""
    fleet = Fabric({node: f"leaf{number // 4 + 1}" for number, node in enumerate(names(8))})
    judgement = whole(cut_off(fleet, "leaf1"), fleet)
    assert [(c.kind, c.subject, c.node) for c in judgement.culprits] == [("switch", "leaf1–leaf2", None)]


def test_a_single_node_on_its_leaf_that_nobody_reaches_is_the_node() -> None:
    """Nothing tells a lone node from its switch, and the others are not cut off because of it."""
    fleet = Fabric({node: "leaf1" if node == "n1" else "leaf2" for node in names(6)})
    judgement = whole(cut_off(fleet, "leaf1"), fleet)
    assert [(c.kind, c.subject) for c in judgement.culprits] == [("node", "n1")]


@pytest.mark.parametrize("cause", ["unreachable", "storage-stale"])
def test_what_exactly_the_nodes_of_a_switch_have_is_the_switch(cause: str) -> None:
    """All four nodes of leaf2 fail one check that needs the network, and nobody else: one culprit."""

    def change(record: Any) -> Any:
        if isinstance(record, NodeCheckRecord) and record.node in ON_LEAF2 and record.check == "reachable":
            return record.model_copy(update={"outcome": Outcome.FAIL, "cause": cause, "measured": "no answer"})
        return record

    judgement = whole(change)
    assert [(c.kind, c.subject, c.cause) for c in judgement.culprits] == [("switch", "leaf2", cause)]
    assert {judgement.nodes[node] for node in ON_LEAF2} == {Outcome.INCONCLUSIVE}


def test_a_fault_of_some_of_its_nodes_is_not_the_switch() -> None:
    """Two of four: each by itself."""

    def change(record: Any) -> Any:
        if isinstance(record, NodeCheckRecord) and record.node in ON_LEAF2[:2] and record.check == "reachable":
            return record.model_copy(update={"outcome": Outcome.FAIL, "cause": "unreachable"})
        return record

    assert {c.node for c in whole(change).culprits} == set(ON_LEAF2[:2])


@pytest.mark.parametrize(("p50", "p99", "cause"), [(9_000.0, 20_000.0, "latency"), (120.0, 200_000.0, "loss")])
def test_slow_answers_over_one_leaf_are_its_switch(p50: float, p99: float, cause: str) -> None:
    """Delay or loss on all pairs across leaf2 is one culprit, not a row of links."""

    def late(record: Record) -> Record:
        if isinstance(record, CellRecord) and (record.src in ON_LEAF2) != (record.dst in ON_LEAF2):
            return record.model_copy(update={"latency_us": (p50, p99)})
        return record

    network = Network(names(12), dict.fromkeys(names(12), 1.0), Faults(), CALM, 2, FLEET)
    records: list[Record] = [run_record(names(12), fabric=FLEET)]
    for pairs in plan_rounds(names(12), "standard", FLEET.leaves):
        records += [late(cell) for cell in network.run_round(pairs, "plan")]
    for _ in range(8):
        for one in judge(records).wanted:
            assert one.want == "round"
            records += [late(cell) for cell in network.run_round(one.pairs, one.purpose, one.controls)]
    assert [(c.kind, c.subject, c.cause) for c in judge(records).culprits] == [("switch", "leaf2", cause)]
