"""Stage pairs: its rounds, what becomes of errors and lost ranks, and the judge's wishes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.validation.scripted_fleet import ScriptedFleet
from validation.checks import pairs
from validation.launch_ranks import Message, Worker
from validation.launch_watch import Finding
from validation.model import (
    CellRecord,
    FailureRecord,
    FanInRecord,
    Judgement,
    Outcome,
    ReachRecord,
    WantedFanIn,
    WantedRound,
)

NOTHING = Judgement(verdict=Outcome.PASS)


def healthy(worker: Worker, command: Message) -> Message | Finding | None:
    """Every port answers, every message arrives at 0.94 Gb/s."""
    if command["op"] == "listen":
        return {"ports": [40000 + worker.rank, 50000 + worker.rank]}
    if command["op"] == "reach":
        return {
            "answers": [
                {"node": n, "port": p, "ok": True, "connect_ms": 0.2, "error": ""} for n, _, p in command["targets"]
            ]
        }
    if command["op"] == "fan":
        receives = (command["direction"] == "in") == command["is_target"]
        count = len([peer for peer in command["peers"] if peer])
        flows = [[90_000_000, 0.8]] * count
        return {"alone": flows, "together": [[size, 2 * took] for size, took in flows]} if receives else {"alone": []}
    received = {"gbps": [0.94, 0.93, 0.94], "bytes": command["message_bytes"], "verified": True}
    return {"received": received, "latency_us": [100.0, 300.0], "error": "", "idle_share": 0.5 + worker.rank / 10}


def run(fleet: ScriptedFleet, judgements: Sequence[Judgement] = ()) -> None:
    left = [*judgements, NOTHING]
    pairs.run_pairs(fleet, "quick", fleet.records.append, lambda: left.pop(0))


def cells(fleet: ScriptedFleet) -> list[CellRecord]:
    return [record for record in fleet.records if isinstance(record, CellRecord)]


def test_every_pair_is_measured_both_ways() -> None:
    """After the probe of all ordered pairs, every ordered pair has its cells, and no node is in two pairs at once."""
    fleet = ScriptedFleet(healthy)
    run(fleet)
    reached = {(one.src, one.dst) for one in fleet.records if isinstance(one, ReachRecord) and one.ok}
    expected = {(a, b) for a in ("n1", "n2", "n3") for b in ("n1", "n2", "n3") if a != b}
    assert reached == expected
    assert {(cell.src, cell.dst) for cell in cells(fleet)} == expected
    for number in {cell.round for cell in cells(fleet)}:
        sources = [cell.src for cell in cells(fleet) if cell.round == number]
        assert len(set(sources)) == len(sources)
    assert {cell.purpose for cell in cells(fleet)} == {"plan"}
    assert fleet.slowest_gbps == 0.94


def test_cell_takes_the_receivers_speed_and_the_senders_latency() -> None:
    """The receiver times and verifies, the sender led the ping-pong, and the busier node's idle share is kept."""
    sender = {"ok": True, "received": None, "latency_us": [1.0, 2.0], "error": "", "idle_share": 0.2}
    received = {"gbps": [0.9, 0.8, 0.9], "bytes": 8, "verified": False}
    receiver = {"ok": True, "received": received, "latency_us": [5.0, 6.0], "error": "", "idle_share": 0.7}
    cell = pairs._cell("a", "b", sender, receiver, 3, "plan", 1.5)
    assert (cell.repetitions_gbps, cell.latency_us, cell.verified) == ((0.9, 0.8, 0.9), (1.0, 2.0), False)
    assert (cell.idle_share, cell.error) == (0.2, "")


def test_unreachable_pair_is_not_measured() -> None:
    """A pair whose TCP probe failed one way is left out of every round; its record says why."""

    def cut(worker: Worker, command: Message) -> Message | Finding | None:
        said = healthy(worker, command)
        if command["op"] == "reach" and worker.node == "n1" and isinstance(said, dict):
            for answer in said["answers"]:
                if answer["node"] == "n2" and answer["port"] > 50000:
                    answer.update(ok=False, error="timeout", connect_ms=None)
        return said

    fleet = ScriptedFleet(cut)
    run(fleet)
    (dead,) = [record for record in fleet.records if isinstance(record, ReachRecord) and not record.ok]
    assert (dead.src, dead.dst, dead.port, dead.error) == ("n1", "n2", 50001, "timeout (1 of 2 ports)")
    assert not [cell for cell in cells(fleet) if {cell.src, cell.dst} == {"n1", "n2"}]
    assert [cell for cell in cells(fleet) if {cell.src, cell.dst} == {"n1", "n3"}]


def test_error_of_a_pair_is_its_cell_and_renews_its_group() -> None:
    """An error becomes the cell's, and the next round of that pair uses a group with another name on both ends."""
    failed: list[str] = []

    def once(worker: Worker, command: Message) -> Message | Finding | None:
        if command["op"] == "pair" and "/n1/n2/" in command["group"] and len(failed) < 2:
            failed.append(command["group"])
            return {"received": None, "latency_us": [], "error": "RuntimeError: Timed out", "idle_share": None}
        return healthy(worker, command)

    fleet = ScriptedFleet(once)
    run(fleet)
    first, *later = [cell for cell in cells(fleet) if (cell.src, cell.dst) == ("n1", "n2")]
    assert "Timed out" in first.error
    assert first.verified is None
    assert later
    assert all(not cell.error for cell in later)
    groups = [command["group"] for _, command in fleet.asked if "/n1/n2/" in command.get("group", "")]
    assert groups[:2] == failed
    assert groups[2] == groups[3] != groups[0]


def test_a_second_stage_takes_no_group_of_the_first() -> None:
    """A world in between closed the groups on its members only: the same workers meet under new names."""
    fleet = ScriptedFleet(healthy)
    run(fleet)
    first = {command["group"] for _, command in fleet.asked if command["op"] == "pair"}
    fleet.asked.clear()
    run(fleet)
    assert not first & {command["group"] for _, command in fleet.asked if command["op"] == "pair"}


def test_missing_answer_is_an_error_and_starts_the_workers_anew() -> None:
    """A pair that does not come back by the deadline has error cells, and no old worker is trusted again."""
    fleet = ScriptedFleet(
        lambda worker, command: (
            None
            if command["op"] == "pair" and command["round"] == 0 and worker.node == "n2"
            else healthy(worker, command)
        )
    )
    run(fleet)
    assert [cell for cell in cells(fleet) if cell.round == 0 and "no end within" in cell.error]
    assert fleet.generation == 2


def test_lost_rank_does_not_end_the_stage() -> None:
    """A rank that fails is recorded once; the remaining pairs are measured without it."""

    def dies(worker: Worker, command: Message) -> Message | Finding | None:
        if command["op"] == "pair" and worker.node == "n3":
            return Finding(worker.rank, "signal", "SIGKILL")
        return healthy(worker, command)

    fleet = ScriptedFleet(dies)
    run(fleet)
    (failure,) = [record for record in fleet.records if isinstance(record, FailureRecord)]
    assert (failure.node, failure.waiting) == ("n3", ("n1", "n2"))
    assert {(cell.src, cell.dst) for cell in cells(fleet)} == {("n1", "n2"), ("n2", "n1")}


def test_wishes_of_the_judge_are_measured() -> None:
    """A wanted round is measured with its purpose and its control marked; then the judge is asked again."""
    wanted = WantedRound(purpose="retest", pairs=(("n1", "n2"),), controls=())
    control = WantedRound(purpose="retest", pairs=(("n1", "n3"),), controls=(("n3", "n1"),))
    fleet = ScriptedFleet(healthy)
    run(fleet, [Judgement(verdict=Outcome.INCONCLUSIVE, wanted=(wanted, control))])
    found = [(cell.src, cell.dst, cell.purpose) for cell in cells(fleet) if cell.purpose != "plan"]
    assert found == [
        ("n1", "n2", "retest"),
        ("n2", "n1", "retest"),
        ("n1", "n3", "control"),
        ("n3", "n1", "control"),
    ]


def test_fan_in_adds_up_both_flows() -> None:
    """Two partners at once: the total is the sum of what the receivers saw, whichever way it goes."""
    wishes = tuple(WantedFanIn(target="n1", direction=way, partners=("n2", "n3")) for way in ("in", "out"))
    fleet = ScriptedFleet(healthy)
    run(fleet, [Judgement(verdict=Outcome.INCONCLUSIVE, wanted=wishes)])
    found = [record for record in fleet.records if isinstance(record, FanInRecord)]
    assert [(one.direction, one.single_gbps, one.total_gbps, one.error) for one in found] == [
        ("in", 0.9, 0.9, ""),
        ("out", 0.9, 0.9, ""),
    ]
    assert found[0].round < found[1].round


def test_judge_that_wants_the_impossible_is_not_asked_for_ever() -> None:
    """Wishes about a node that is gone end the stage instead of going round."""
    wish = WantedRound(purpose="retest", pairs=(("n1", "gone"),))
    asked: list[int] = []

    def judge() -> Judgement:
        asked.append(1)
        return Judgement(verdict=Outcome.INCONCLUSIVE, wanted=(wish,))

    fleet = ScriptedFleet(healthy)
    pairs.run_pairs(fleet, "quick", fleet.records.append, judge)
    assert len(asked) == 1


def test_fan_in_tells_a_shared_link_from_separate_ones() -> None:
    """Flows over separate links end together and add up; on a shared one, in whatever order, they give one link's."""
    assert pairs.total_gbps([(50_000_000, 0.5), (25_000_000, 0.5)]) == pytest.approx(1.2)
    assert pairs.total_gbps([(50_000_000, 0.5), (50_000_000, 1.0)]) == pytest.approx(0.8)
    assert pairs.total_gbps([]) == 0.0


def test_message_size_follows_the_declared_speed() -> None:
    """About 0.13 s at the declared speed, within the memory a rank may use."""
    assert pairs.message_bytes(1.0) == 16_250_000
    assert pairs.message_bytes(0.01) == 1 << 20
    assert pairs.message_bytes(400.0) == 64 << 20
