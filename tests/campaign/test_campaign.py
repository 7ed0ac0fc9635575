"""The fault campaign: a fixed short part of it in every test run, all of it with `bin/test --full`.

Each fault is put in alone and healed. In the short part only the stages that show it run; some five minutes in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign.__main__ import plan
from tests.campaign.expectations import EXPECTED, Expected, Placed
from tests.campaign.turns import one_turn, settle
from tests.end_to_end.deploys import deploy
from tests.lab.handle import Lab

SHORT = [one for one in EXPECTED if one.short]


@pytest.fixture(scope="module")
def deployed(lab: Lab) -> Iterator[Lab]:
    """The lab after site.py, all nodes taken for certified: a campaign is about faults, not about quarantine."""
    deploy(lab)
    settle(lab)
    yield lab
    lab.lab("heal")
    settle(lab)


@pytest.mark.lab
@pytest.mark.parametrize("expected", SHORT, ids=lambda one: one.fault)
def test_a_fault_is_found_and_only_it(deployed: Lab, tmp_path: Path, expected: Expected) -> None:
    """The expected verdict, the part at fault named, nobody else, and nobody else drained."""
    placed = [Placed(expected, "n3", "n2")]
    turn = one_turn(deployed, f"short {expected.fault}", "single", placed, tmp_path, stages=expected.stages)
    if turn.not_here:
        pytest.skip(turn.not_here)
    assert not turn.wrong, f"{turn.verdict}: {turn.named}; {turn.undecided}"


@pytest.mark.full
@pytest.mark.lab
def test_the_whole_campaign(deployed: Lab, tmp_path: Path) -> None:
    """Every fault, thirty pairs at once, twenty healthy runs: everything found, nobody wrongly blamed."""
    turns = [one_turn(deployed, key, kind, placed, tmp_path) for key, kind, placed in plan(deployed, [], 30, 20)]
    assert {turn.key: turn.wrong for turn in turns if turn.wrong} == {}
