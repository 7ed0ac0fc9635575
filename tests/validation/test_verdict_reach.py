"""The judge on connections, corrupt data and latency: node, link, firewall or the whole cluster."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.changes import HEALTHY, changed, failure, named
from tests.simulator.network import Faults
from tests.simulator.run import whole_run
from validation.model import (
    Outcome,
    ReachRecord,
    Record,
)
from validation.verdict import judge

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


def test_a_step_that_slurm_could_not_start_is_named_unless_the_network_explains_it() -> None:
    """Alone it is the node's fault; with its connections blocked it is a symptom of that, and hides nothing."""
    step = failure("n3", "slurm-step", "not started", "pairs")
    assert named(judge([*HEALTHY, step])) == {("node", "n3", "slurm-step", "n3")}
    blocked = judge([*dead(*(("n3", n) for n in OTHERS)), step])
    assert named(blocked) == {("node", "n3", "firewall-outbound", "n3")}


def test_a_node_whose_large_packets_vanish_has_an_mtu_that_does_not_fit() -> None:
    """Connections work and full frames do not, with every partner: the node's MTU, not a firewall."""
    pairs = [(n, "n3") for n in OTHERS] + [("n3", n) for n in OTHERS]
    records = [
        r.model_copy(update={"error": "large-packets (4 of 4 ports)"}) if isinstance(r, ReachRecord) and not r.ok else r
        for r in dead(*pairs)
    ]
    judgement = judge(records)
    assert named(judgement) == {("node", "n3", "large-packets", "n3")}
    assert "MTU" in judgement.culprits[0].remedy


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
