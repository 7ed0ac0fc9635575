"""Fingerprints and speeds: who is asked what, together or in turns, and what becomes of a rank without answer."""

from __future__ import annotations

import pytest

from tests.validation.scripted_fleet import ScriptedFleet
from validation.checks.fingerprint import EPISODES, run_fingerprints
from validation.checks.speed import REPEATS, run_speeds
from validation.launch_ranks import Message, Worker
from validation.launch_watch import Finding
from validation.model import FailureRecord, FingerprintRecord, Level, SpeedRecord


def hashed(worker: Worker, command: Message) -> Message | Finding | None:
    return {
        "digests": [["a.b.c.d"] * 2] * command["episodes"], "steps": 5, "kinds": ["loss"], "settings": ["one thread"],
        "software": {"torch": "2.6.0"}, "device": "",
    }  # fmt: skip


def fingerprints(fleet: ScriptedFleet) -> dict[str, FingerprintRecord]:
    return {one.node: one for one in fleet.records if isinstance(one, FingerprintRecord)}


@pytest.mark.parametrize(("level", "steps"), [("quick", 40), ("standard", 500), ("burn-in", 5000)])
def test_every_rank_does_the_same_work(level: Level, steps: int) -> None:
    """One command for all, and as many steps as the level has."""
    fleet = ScriptedFleet(hashed)
    run_fingerprints(fleet, level, fleet.records.append)
    assert {node: one.steps_done for node, one in fingerprints(fleet).items()} == dict.fromkeys(
        ("n1", "n2", "n3"), steps
    )
    assert [command["episodes"] for _, command in fleet.asked] == [EPISODES[level]] * 3


def test_a_rank_that_cannot_is_recorded_with_its_error() -> None:
    """An exception and a missed deadline are records without digests."""

    def some(worker: Worker, command: Message) -> Message | Finding | None:
        if worker.node == "n2":
            return {"ok": False, "type": "RuntimeError", "error": "no kernel"}
        return None if worker.node == "n3" else hashed(worker, command)

    fleet = ScriptedFleet(some)
    run_fingerprints(fleet, "quick", fleet.records.append)
    found = fingerprints(fleet)
    assert (found["n1"].error, found["n2"].error) == ("", "RuntimeError: no kernel")
    assert "deadline" in found["n3"].error


def test_a_rank_that_dies_is_left_out() -> None:
    """Its failure is recorded, and the others are asked again."""

    def dies(worker: Worker, command: Message) -> Message | Finding | None:
        return Finding(1, "signal", "SIGKILL") if worker.node == "n2" else hashed(worker, command)

    fleet = ScriptedFleet(dies)
    run_fingerprints(fleet, "quick", fleet.records.append)
    assert set(fingerprints(fleet)) == {"n1", "n3"}
    assert [one.node for one in fleet.records if isinstance(one, FailureRecord)] == ["n2"]


def measured(worker: Worker, command: Message) -> Message | Finding | None:
    seconds = [0.04 if worker.node == "n3" and not command["sustained"] else 0.02] * 50
    return {
        "device": "",
        "found": [
            {"what": kind, "work": 1e7, "seconds": seconds, "verified": True, "cpu_share": 0.9, "idle_share": 0.5}
            for kind in command["kinds"]
        ],
    }


def test_nodes_of_one_machine_have_turns_of_their_own() -> None:
    """One node at a time, one thread; the slow one is asked again a few times, the others are not."""
    fleet = ScriptedFleet(measured)
    run_speeds(fleet, "quick", fleet.records.append, own_machines=False)
    assert [node for node, _ in fleet.asked] == ["n1", "n2", "n3", *["n3"] * REPEATS]
    assert {command["threads"] for _, command in fleet.asked} == {1}
    assert {one.what for one in fleet.records if isinstance(one, SpeedRecord)} == {"product-fp32", "triad"}


def test_machines_of_their_own_are_measured_side_by_side() -> None:
    """With all their processors."""
    fleet = ScriptedFleet(measured)
    run_speeds(fleet, "quick", fleet.records.append, own_machines=True)
    assert [node for node, _ in fleet.asked[:3]] == ["n1", "n2", "n3"]
    assert {command["threads"] for _, command in fleet.asked} == {0}


def test_burn_in_ends_with_a_long_load_on_all() -> None:
    """All nodes at once, for two minutes."""
    fleet = ScriptedFleet(measured)
    run_speeds(fleet, "burn-in", fleet.records.append, own_machines=False)
    long = [(node, command["seconds"]) for node, command in fleet.asked if command["sustained"]]
    assert long == [("n1", 120.0), ("n2", 120.0), ("n3", 120.0)]
    assert sum(one.sustained for one in fleet.records if isinstance(one, SpeedRecord)) == 3


def test_a_node_that_cannot_be_measured_is_recorded() -> None:
    """No answer is a record with its reason."""

    def mute(worker: Worker, command: Message) -> Message | Finding | None:
        return None if worker.node == "n2" else measured(worker, command)

    fleet = ScriptedFleet(mute, ("n1", "n2"))
    run_speeds(fleet, "quick", fleet.records.append, own_machines=True)
    assert [one.node for one in fleet.records if isinstance(one, SpeedRecord) and one.error] == ["n2"]
