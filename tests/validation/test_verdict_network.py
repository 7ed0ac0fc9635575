"""The judge against simulated networks: the guilty are named, the innocent never, and it always comes to an end."""

from __future__ import annotations

import pytest

from tests.simulator.campaign import campaign
from tests.simulator.network import Faults, Noise
from tests.simulator.run import names, pairs_stage, run_record
from validation.model import CellRecord, Culprit, Outcome, Record
from validation.verdict import judge

CALM = Noise(host_starts=0.0, node_starts=0.0)
NOISY = Noise(sigma=0.06, host_starts=0.03, node_starts=0.02)


def only(culprits: tuple[Culprit, ...]) -> tuple[str, str, str]:
    (culprit,) = culprits
    return culprit.kind, culprit.subject, culprit.cause


@pytest.mark.parametrize(("count", "runs"), [(2, 100), (3, 100), (4, 100), (8, 40)])
@pytest.mark.parametrize("family", ["lognormal", "dips"])
def test_a_healthy_fleet_is_never_blamed(count: int, runs: int, family: str) -> None:
    """Noise of two families, episodes on hosts and nodes: no culprit in hundreds of runs, and nearly all pass."""
    score = campaign(count, runs, 0, family=family)
    assert score.false_alarms == 0
    assert score.healthy_passed >= 0.97 * runs


@pytest.mark.parametrize("count", [4, 8])
def test_faults_are_found_and_nobody_else_is_named(count: int) -> None:
    """Single and double faults under noise: recall and precision of the method's published table, within sampling."""
    score = campaign(count, 0, 8)
    assert score.precision >= 0.97
    assert score.recall >= 0.9


@pytest.mark.parametrize("count", [3, 4, 8, 16])
@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        (Faults.nodes(n2=0.1), "network"),
        (Faults(send={"n2": 0.3}), "network-egress"),
        (Faults(receive={"n2": 0.3}), "network-ingress"),
    ],
)
def test_a_slow_node_is_named_with_its_direction(count: int, faults: Faults, cause: str) -> None:
    """One slow node is drained, with the direction in which it is slow; the others pass."""
    _, judgement = pairs_stage(count, faults, CALM, seed=1)
    assert only(judgement.culprits) == ("node", "n2", cause)
    assert judgement.culprits[0].node == "n2"
    others = {outcome for node, outcome in judgement.nodes.items() if node != "n2"}
    assert (judgement.nodes["n2"], others) == (Outcome.FAIL, {Outcome.PASS})


@pytest.mark.parametrize("count", [3, 4, 8])
def test_a_slow_link_is_named_and_nobody_is_drained(count: int) -> None:
    """Both ends are good with others: the link is at fault and its two nodes pass."""
    _, judgement = pairs_stage(count, Faults.link("n1", "n3", 0.4), CALM, seed=2)
    assert only(judgement.culprits) == ("link", "n1–n3", "network")
    assert judgement.culprits[0].node is None
    assert set(judgement.nodes.values()) == {Outcome.PASS}
    assert judgement.verdict is Outcome.FAIL


@pytest.mark.parametrize("count", [3, 4])
def test_two_slow_links_at_one_node_are_not_taken_for_the_node(count: int) -> None:
    """Two flows at once add up, so the node is not the limit: fan-in tells it from a slow node."""
    links = {("n1", "n2"): 0.4, ("n2", "n1"): 0.4, ("n1", "n3"): 0.45, ("n3", "n1"): 0.45}
    _, judgement = pairs_stage(count, Faults(links=links), CALM, seed=3)
    assert {culprit.subject for culprit in judgement.culprits} == {"n1–n2", "n1–n3"}


def test_two_slow_nodes_of_three_are_told_from_a_slow_cluster() -> None:
    """All three pairs are low, but fan-in shows that the third node can do more."""
    _, judgement = pairs_stage(3, Faults.nodes(n1=0.4, n2=0.45), CALM, seed=4)
    assert {culprit.node for culprit in judgement.culprits} == {"n1", "n2"}


@pytest.mark.parametrize("count", [3, 4, 8, 16])
def test_a_slow_fleet_is_the_clusters_fault(count: int) -> None:
    """All nodes alike slow on idle processors: the cluster is named, and no node is drained."""
    _, judgement = pairs_stage(count, Faults(everything=0.5), CALM, seed=5)
    assert only(judgement.culprits) == ("cluster", "sim", "network")
    assert Outcome.FAIL not in judgement.nodes.values()


def test_nobody_is_named_while_it_may_still_be_everybody() -> None:
    """Without the last node's fan-ins a slow fleet is undecided: the others must not be drained for it."""
    records, _ = pairs_stage(4, Faults(everything=0.5), CALM, seed=5)
    judgement = judge([r for r in records if not (r.kind == "fan_in" and r.target == "n4")])
    assert judgement.culprits == ()
    assert set(judgement.nodes.values()) == {Outcome.INCONCLUSIVE}


@pytest.mark.parametrize("faults", [Faults.nodes(n2=0.4), Faults(everything=0.4)])
def test_two_nodes_alone_decide_nothing_about_their_ends(faults: Faults) -> None:
    """With two nodes the slow link between them is named, nobody is drained, and a third node is asked for."""
    _, judgement = pairs_stage(2, faults, CALM, seed=6)
    assert only(judgement.culprits) == ("link", "n1–n2", "network")
    assert judgement.nodes == {"n1": Outcome.INCONCLUSIVE, "n2": Outcome.INCONCLUSIVE}
    assert any("third node" in text for text in judgement.undecided)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("seed", range(5))
def test_a_busy_host_is_never_a_blamed_node(count: int, seed: int) -> None:
    """Everything is slow and no processor idle: INCONCLUSIVE, with the reason, and nobody is named."""
    _, judgement = pairs_stage(count, Faults(), Noise(busy=True), seed)
    assert judgement.culprits == ()
    assert judgement.undecided != ()
    assert set(judgement.nodes.values()) <= {Outcome.INCONCLUSIVE, Outcome.PASS}
    assert Outcome.INCONCLUSIVE in judgement.nodes.values()


def test_a_slower_declared_link_is_judged_by_what_is_declared() -> None:
    """A node with a declared 0.1 Gb/s link among 1 Gb/s peers is healthy at 0.1 Gb/s."""
    _, judgement = pairs_stage(4, Faults(), CALM, seed=7, declared={"n3": 0.1})
    assert judgement.culprits == ()
    assert set(judgement.nodes.values()) == {Outcome.PASS}


def test_links_of_a_named_node_are_not_judged() -> None:
    """What a slow node's pairs measured says nothing about their links until it is repaired."""
    _, judgement = pairs_stage(4, Faults.nodes(n2=0.2), CALM, seed=8)
    rows = {r.subject: r for r in judgement.results if r.check == "bandwidth" and "–" in r.subject}
    assert {subject for subject, row in rows.items() if row.outcome is Outcome.SKIPPED} == {"n1–n2", "n2–n3", "n2–n4"}
    assert "until n2 is repaired" in rows["n1–n2"].evidence


def test_a_suspicion_is_retested_beside_a_control_before_anybody_is_named() -> None:
    """After the plan alone nobody is named; what is wanted has a control pair in the same round."""
    records, _ = pairs_stage(4, Faults.nodes(n2=0.2), CALM, seed=9)
    plan = [r for r in records if not isinstance(r, CellRecord) or r.purpose == "plan"][:-1]
    judgement = judge(plan)
    assert judgement.culprits == ()
    (wanted,) = judgement.wanted
    assert wanted.want == "round"
    assert wanted.spacing_s > 0
    assert len(wanted.controls) == 1
    assert "n2" not in wanted.controls[0]


def test_nothing_is_wanted_once_the_stage_is_over() -> None:
    """A suspicion that the stage left open is INCONCLUSIVE, not a wish that nobody can fulfil."""
    records, _ = pairs_stage(4, Faults.nodes(n2=0.2), CALM, seed=10)
    planned: list[Record] = [r for r in records if not isinstance(r, CellRecord) or r.purpose == "plan"]
    judgement = judge([r for r in planned if r.kind != "fan_in"])
    assert judgement.wanted == ()
    assert judgement.culprits == ()
    assert judgement.nodes["n2"] is Outcome.INCONCLUSIVE


def test_an_undeclared_speed_is_inconclusive() -> None:
    """Without a declared speed there is no requirement, and so no pass either."""
    records, _ = pairs_stage(3, Faults(), CALM, seed=11)
    run = run_record(names(3))
    bare = {**run.inventory, "networks": [{"name": "lan", "cidr": "10.9.0.0/16"}]}
    judgement = judge([run.model_copy(update={"inventory": bare}), *records[1:]])
    assert Outcome.PASS not in judgement.nodes.values()
    assert judgement.culprits == ()


def test_sixty_four_nodes_are_judged_in_seconds() -> None:
    """Two slow nodes and a slow link of 64 nodes are all named, in a bounded number of rounds."""
    faults = Faults(send={"n7": 0.4}, receive={"n9": 0.5}, links={("n1", "n3"): 0.3, ("n3", "n1"): 0.3})
    rounds: list[int] = []
    _, judgement = pairs_stage(64, faults, CALM, seed=12, on_round=rounds.append)
    assert {culprit.subject for culprit in judgement.culprits} == {"n7", "n9", "n1–n3"}
    assert rounds[0] <= 85
