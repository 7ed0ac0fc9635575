"""The campaign's own judgement: every fault of the lab has an expectation, and wrong answers are seen as such."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from lab.faults import FAULTS
from tests.campaign.__main__ import sampled_pairs
from tests.campaign.expectations import EXPECTED, LATER, Named, Placed, by_fault, judge_turn
from tests.campaign.page import render
from tests.campaign.turns import Results, Turn

N3 = Named("node", "n3", "network")


def placed(name: str) -> Placed:
    return Placed(by_fault(name), "n3", "n4")


def test_every_fault_of_the_lab_is_expected_or_left_for_a_reason() -> None:
    """A new fault can't be forgotten by the campaign, and an expectation names a fault that exists."""
    expected = {one.fault for one in EXPECTED}
    left = {name for name in FAULTS if any(fnmatch.fnmatch(name, pattern) for pattern in LATER)}
    assert expected | left == set(FAULTS)
    assert not expected & left


@pytest.mark.parametrize("fault", [one.fault for one in EXPECTED])
def test_an_expectation_fits_what_its_fault_takes(fault: str) -> None:
    """A fault between two nodes is put between two; whoever may be drained is among them."""
    takes = {"node": ("V", "head"), "pair": ("VP",), "machine": ("",)}[FAULTS[fault].takes]
    assert by_fault(fault).on in takes
    assert placed(fault).drainable <= set(placed(fault).nodes)


def test_the_right_answer_is_right() -> None:
    """The victim named for the expected cause and alone drained."""
    assert judge_turn([placed("slow-link")], "FAIL", [N3], {"n3"}) == []


@pytest.mark.parametrize(
    ("verdict", "culprits", "drained", "words"),
    [
        ("PASS", [], set(), "verdict PASS"),
        ("FAIL", [Named("node", "n3", "compute")], {"n3"}, "not named"),
        ("FAIL", [N3, Named("node", "n1", "hang")], {"n3"}, "blamed besides: node n1"),
        ("FAIL", [N3], {"n3", "n2"}, "drained although not at fault: n2"),
    ],
)
def test_wrong_answers_are_seen(verdict: str, culprits: list[Named], drained: set[str], words: str) -> None:
    """Undetected, the wrong cause, somebody else blamed, somebody else drained: each is wrong and says why."""
    assert any(words in text for text in judge_turn([placed("slow-link")], verdict, culprits, drained))


def test_a_link_is_the_same_from_both_ends_and_drains_nobody() -> None:
    """n4–n3 is n3–n4; an end that is drained for it is a wrong drain."""
    link = Named("link", "n4–n3", "unreachable")
    assert judge_turn([placed("cut")], "FAIL", [link], set()) == []
    assert judge_turn([placed("cut")], "FAIL", [link], {"n3"}) != []


def test_two_faults_must_both_be_named() -> None:
    """One of two is not enough."""
    both = [placed("slow-link"), Placed(by_fault("clock"), "n2", "n1")]
    assert judge_turn(both, "FAIL", [N3, Named("node", "n2", "clock")], {"n2", "n3"}) == []
    assert judge_turn(both, "FAIL", [N3], {"n3"}) == ["clock: not named"]


def test_a_healthy_run_blames_nobody() -> None:
    """PASS is right; so is nothing else but an honest INCONCLUSIVE of a part of the stages."""
    assert judge_turn([], "PASS", [], set()) == []
    assert judge_turn([], "FAIL", [N3], {"n3"}) != []
    assert judge_turn([], "INCONCLUSIVE", [], set(), partial=True) == []


def test_pairs_are_the_same_sample_each_time() -> None:
    """A longer campaign begins with the pairs of a shorter one."""
    assert sampled_pairs(30)[:5] == sampled_pairs(5)
    assert len(set(sampled_pairs(30))) == 30


def test_results_survive_and_the_page_counts_them(tmp_path: Path) -> None:
    """Turns are read back as written, the last of a key counts, and the page tells totals and reasons."""
    results = Results(tmp_path / "new" / "results.jsonl")
    first = Turn(key="single cut", kind="single", faults=("cut",), numbers=("F07",), nodes=("n3–n4",), verdict="PASS",
                 wrong=("verdict PASS instead of FAIL",))  # fmt: skip
    results.add(first)
    results.add(first.model_copy(update={"verdict": "FAIL", "wrong": (), "named": ("link n3–n4: unreachable",)}))
    results.add(Turn(key="single delay", kind="single", faults=("delay",), numbers=("F05",), nodes=("n3",),
                     not_here="delay: no netem"))  # fmt: skip
    results.add(Turn(key="healthy 1", kind="healthy", faults=(), numbers=(), nodes=(), verdict="PASS"))
    turns = list(results.read().values())
    assert [turn.detected for turn in turns] == [True, True, True]
    page = render(turns)
    assert "| single faults | 1 | 1 | 1 | 0 | 0 |" in page
    assert "Healthy runs: 1, 1 passed, 0 false alarms, 0 undecided." in page
    assert "- delay: no netem" in page
    assert "which was not finished: slow-link, slow-egress" in page
    assert "- pairs of faults at once: not run in this campaign" in page
