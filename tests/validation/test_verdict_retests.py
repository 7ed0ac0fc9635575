"""How many retests decide, and what two flows at once say."""

from __future__ import annotations

import pytest

from tests.simulator.network import Faults, Network, Noise
from tests.simulator.run import names, pairs_stage, run_record
from validation.model import CellRecord, FanInRecord, Record, WantedFanIn
from validation.schedule import plan_rounds
from validation.verdict import judge
from validation.verdicts.bandwidth import judge_bandwidth
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings
from validation.verdicts.retests import decide, decide_link


@pytest.mark.parametrize(
    ("shares", "voids", "said"),
    [
        ([], 0, "more"),
        ([0.5, 0.5], 0, "more"),
        ([0.5, 0.5, 0.5], 0, "low"),
        ([0.79, 0.79, 0.79], 0, "more"),
        ([0.79, 0.79, 0.79, 0.79, 0.79], 0, "mixed"),
        ([0.5, 0.9], 0, "more"),
        ([0.5, 0.9, 0.9], 0, "good"),
        ([0.5, 0.5, 0.9, 0.5, 0.5], 0, "mixed"),
        ([0.5, 0.5], 8, "void"),
    ],
)
def test_three_low_name_and_two_good_clear(shares: list[float], voids: int, said: str) -> None:
    """Three LOW retests name, two good ones clear, five that disagree or lie between decide nothing."""
    assert decide(shares, voids) == said


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([0.5, 0.5, 0.5], "more"),
        ([0.5, 0.5, 0.5, 0.5], "low"),
        ([0.7, 0.4, 0.3, 0.6], "more"),
        ([0.7, 0.4, 0.3, 0.5, 0.4, 0.3, 0.5, 0.4], "mixed"),
        ([0.7, 0.9, 0.9], "good"),
    ],
)
def test_a_link_needs_low_retests_that_are_alike(shares: list[float], said: str) -> None:
    """A lasting fault reads the same each time; noise that happens to be low does not."""
    assert decide_link(shares, 0) == said


def fan_in(single: float, total: float, number: int) -> FanInRecord:
    return FanInRecord(
        round=200 + number, target="n2", direction="in", partners=("n1", "n3"), single_gbps=single, total_gbps=total,
        at_s=500.0 + number,
    )  # fmt: skip


def with_fan_ins(single: float, total: float) -> Findings:
    """n2 receives at 0.4 of its speed by all retests; two fan-ins say why."""
    calm = Noise(host_starts=0.0, node_starts=0.0, sigma=0.01)
    records, _ = pairs_stage(4, Faults(receive={"n2": 0.4}), calm, seed=1)
    cells = [record for record in records[:-1] if record.kind != "fan_in"]
    return judge_bandwidth(Evidence([*cells, fan_in(single, total, 1), fan_in(single, total, 2)]), [], [])


def test_a_total_of_one_flow_is_the_node() -> None:
    """Two flows at once bring no more than one alone: the node is the limit."""
    assert {culprit.subject for culprit in with_fan_ins(0.38, 0.38).culprits} == {"n2"}


def test_a_total_of_both_flows_is_the_links() -> None:
    """Two flows add up: the node is not named, and its links are retested."""
    found = with_fan_ins(0.38, 0.76)
    assert found.culprits == []
    assert any(wanted.want == "round" for wanted in found.wanted)


def test_a_disturbed_single_flow_says_nothing() -> None:
    """One flow alone far below the pair's level was disturbed: another fan-in is wanted."""
    found = with_fan_ins(0.10, 0.38)
    assert found.culprits == []
    assert any(wanted.want == "fan_in" for wanted in found.wanted)


def test_a_fan_in_is_asked_for_before_a_node_is_named() -> None:
    """After low retests the judge wants two flows at once into the suspect, from partners that are clear."""
    calm = Noise(host_starts=0.0, node_starts=0.0)
    records, _ = pairs_stage(4, Faults(receive={"n2": 0.4}), calm, seed=1)
    judgement = judge([record for record in records[:-1] if record.kind != "fan_in"])
    assert judgement.culprits == ()
    (wanted,) = judgement.wanted
    assert isinstance(wanted, WantedFanIn)
    assert (wanted.target, wanted.direction) == ("n2", "in")
    assert "n2" not in wanted.partners


@pytest.mark.parametrize(("busy", "named"), [({"n1", "n2", "n3", "n4"}, {"n2"}), ({"n2"}, set())], ids=["all", "n2"])
def test_good_controls_on_busy_processors_make_low_retests_count(busy: set[str], named: set[str]) -> None:
    """Where the controls are as busy and good, a slow node is named; where only its own processors are busy, nobody."""
    calm = Noise(host_starts=0.0, node_starts=0.0, sigma=0.01)
    records, _ = pairs_stage(4, Faults(send={"n2": 0.4}, receive={"n2": 0.4}), calm, seed=1)
    cells = [
        record.model_copy(update={"idle_share": 0.02})
        if isinstance(record, CellRecord) and {record.src, record.dst} & busy
        else record
        for record in records
    ]
    assert {culprit.subject for culprit in judge(cells).culprits} == named


def test_an_episode_as_long_as_all_retests_is_no_slow_link() -> None:
    """In a large fleet a link's ends are looked at between its retests: here n1 is slow with everybody meanwhile."""
    nodes = names(20)
    rounds = plan_rounds(nodes, "quick")
    a, b = next(pair for pair in rounds[0] if "n1" in pair)
    network = Network(nodes, dict.fromkeys(nodes, 1.0), Faults(), Noise(host_starts=0.0, node_starts=0.0), 1)

    def disturbed(cell: CellRecord) -> CellRecord:
        slow = {a, b} == {cell.src, cell.dst} if cell.round < len(rounds) else "n1" in (cell.src, cell.dst)
        factor = 0.4 if slow else 1.0
        return cell.model_copy(update={"repetitions_gbps": tuple(factor * one for one in cell.repetitions_gbps)})

    records: list[Record] = [run_record(nodes, level="quick")]
    for pairs in rounds:
        records += [disturbed(cell) for cell in network.run_round(pairs, "plan")]
    for _ in range(30):
        for one in judge(records).wanted:
            assert one.want == "round"
            network.pause(one.spacing_s)
            records += [disturbed(cell) for cell in network.run_round(one.pairs, one.purpose, one.controls)]
    judgement = judge(records)
    assert judgement.wanted == ()
    assert judgement.culprits == ()
    assert [text for text in judgement.undecided if f"{a}→{b}" in text or f"{b}→{a}" in text]
