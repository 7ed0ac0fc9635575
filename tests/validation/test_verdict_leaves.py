"""Switches: a bad uplink or leaf is named instead of its nodes, and two leaves alone decide nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.fleets import Breaker, case, fabric, score
from tests.simulator.network import Fabric, Faults, Noise
from tests.simulator.run import names, pairs_stage
from validation.model import CellRecord, Culprit, Judgement, Outcome, Record, RunRecord
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
