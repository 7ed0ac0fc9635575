"""Stages cluster and training: from the answers of the ranks to records, and which trainings are run."""

from __future__ import annotations

import pytest

from tests.validation.scripted_fleet import ScriptedFleet
from validation.checks import cluster, training
from validation.launch_ranks import Message, Worker
from validation.launch_watch import Finding
from validation.model import CollectiveRecord, FailureRecord, TrainingRecord, TransportRecord


def trained(worker: Worker, command: Message) -> Message | Finding | None:
    """Every rank takes 20 ms a step, 5 of them in the collective."""
    if command["op"] == "all_reduce":
        slow = 1.0 + worker.rank
        return {
            "sizes": [
                {"bytes": size, "seconds": [slow, 2.0, slow], "verified": worker.node != "n2", "idle_share": 0.4}
                for size, _ in command["sizes"]
            ],
            "wrong_from": [0] if worker.node == "n2" else [],
        }
    ddp = command["mode"] == "ddp"
    return {
        "losses": [4.0 + worker.rank, 2.0 + worker.rank],
        "step_seconds": [0.02, 0.03],
        "comm_seconds": [0.005, 0.01] if ddp else [0.0, 0.0],
        "data_seconds": [0.001, 0.001],
        "warmup_steps": 3,
        "parameter_sha256": "aa" if worker.node != "n3" else "bb",
        "gradient_bytes": 1000,
        "cpu_share": 0.5,
        "local_batch": 4,
        "idle_share": 0.1,
    }


def records(fleet: ScriptedFleet) -> list[TrainingRecord]:
    return [record for record in fleet.records if isinstance(record, TrainingRecord)]


def test_quick_trains_alone_together_and_in_turns() -> None:
    """The reference stands for all ranks, then DDP on one and on all nodes, then a solo turn a node."""
    fleet = ScriptedFleet(trained)
    training.run_training(fleet, "quick", fleet.records.append)
    assert [(one.mode, one.nodes, one.global_batch) for one in records(fleet)] == [
        ("reference", ("n1",), 12),
        ("ddp", ("n1",), 4),
        ("ddp", ("n1", "n2", "n3"), 12),
        ("solo", ("n1",), 4),
        ("solo", ("n2",), 4),
        ("solo", ("n3",), 4),
    ]
    turns = {one.steps for one in records(fleet) if one.mode == "solo"}
    assert len(turns) == 1


@pytest.mark.parametrize(("slow_turns", "turns"), [(0, 1), (1, 2), (9, 1 + training.SOLO_REPEATS)])
def test_a_slow_solo_turn_is_repeated(slow_turns: int, turns: int) -> None:
    """A turn that noise slowed gets another; a node that stays slow is not asked for ever; the others have one turn."""
    left = slow_turns

    def sometimes_slow(worker: Worker, command: Message) -> Message | Finding | None:
        nonlocal left
        answer = trained(worker, command)
        if command["op"] == "train" and command["mode"] == "solo" and worker.node == "n2" and left:
            left -= 1
            assert isinstance(answer, dict)
            answer["step_seconds"] = [0.04, 0.06]
        return answer

    fleet = ScriptedFleet(sometimes_slow)
    training.run_training(fleet, "quick", fleet.records.append)
    solos = [one.nodes[0] for one in records(fleet) if one.mode == "solo"]
    assert {name: solos.count(name) for name in ("n1", "n2", "n3")} == {"n1": 1, "n2": turns, "n3": 1}


def test_training_record_joins_the_ranks() -> None:
    """Loss is the mean over ranks, compute is the step without communication, and every node keeps its own hash."""
    fleet = ScriptedFleet(trained)
    training.run_training(fleet, "quick", fleet.records.append)
    together = next(one for one in records(fleet) if len(one.nodes) == 3)
    assert together.losses == (5.0, 3.0)
    assert together.compute_seconds["n2"] == pytest.approx((0.014, 0.019))
    assert together.data_seconds["n2"] == (0.001, 0.001)
    assert together.comm_seconds["n2"] == (0.005, 0.01)
    assert together.parameter_sha256 == {"n1": "aa", "n2": "aa", "n3": "bb"}
    assert together.gradient_bytes == 1000


def test_lost_rank_leaves_the_rest_to_train() -> None:
    """When a rank dies in DDP, it is recorded and the same training runs on the nodes that are left."""

    def dies(worker: Worker, command: Message) -> Message | Finding | None:
        if command["op"] == "train" and len(command["members"]) == 3 and worker.rank == 2:
            return Finding(2, "signal", "SIGKILL")
        return trained(worker, command)

    fleet = ScriptedFleet(dies)
    training.run_training(fleet, "quick", fleet.records.append)
    (failure,) = [one for one in fleet.records if isinstance(one, FailureRecord)]
    assert (failure.node, failure.stage) == ("n3", "training")
    assert ("ddp", ("n1", "n2")) in [(one.mode, one.nodes) for one in records(fleet)]
    assert "n3" not in {node for one in records(fleet) for node in one.nodes}


def test_world_sizes() -> None:
    """Quick: one and all. Higher: everything up to eight nodes, powers of two above."""
    assert training.world_sizes(4, "quick") == [1, 4]
    assert training.world_sizes(1, "quick") == [1]
    assert training.world_sizes(4, "standard") == [1, 2, 3, 4]
    assert training.world_sizes(12, "standard") == [1, 2, 4, 8, 12]
    assert training.world_sizes(0, "quick") == []


def test_solo_turn_lasts_long_enough() -> None:
    """As many steps as fill a second or more of processor time, within limits."""
    assert training.solo_steps(0.02, 1.2) == 60
    assert training.solo_steps(1.0, 1.2) == training.SOLO_STEPS_MIN
    assert training.solo_steps(None, 1.2) == training.SOLO_STEPS_MIN


def test_ranks_of_a_node_that_differ_never_match_another_node() -> None:
    """Two GPUs of one node with different parameters must not look like any other node's hash."""
    assert training._one_hash([{"parameter_sha256": "aa"}, {"parameter_sha256": "aa"}]) == "aa"
    assert training._one_hash([{"parameter_sha256": "aa"}, {"parameter_sha256": "bb"}]) not in ("aa", "bb")


def test_collective_takes_the_slowest_rank() -> None:
    """A repetition lasts as long as its slowest rank; bus bandwidth is 2(n−1)/n of bytes over time."""
    fleet = ScriptedFleet(trained)
    cluster.run_cluster(fleet, "quick", fleet.records.append)
    found = [one for one in fleet.records if isinstance(one, CollectiveRecord)]
    assert [one.bytes for one in found] == [4096, 1 << 20, 16 << 20]
    assert found[0].seconds == (3.0, 2.0, 3.0)
    assert found[2].busbw_gbps == pytest.approx((16 << 20) * 8 / 1e9 / 3.0 * 4 / 3, rel=1e-4)
    assert found[0].verified == {"n1": True, "n2": False, "n3": True}
    (carried,) = [one for one in fleet.records if isinstance(one, TransportRecord)]
    assert carried.wrong == {"n1": (), "n2": ("n1",), "n3": ()}


def test_a_slow_collective_is_taken_apart() -> None:
    """Two nodes at a time, each with others in turn; with a speed that explains it nothing more is measured."""
    fleet = ScriptedFleet(trained, ("n1", "n2", "n3", "n4"))
    fleet.slowest_gbps = 1000.0
    cluster.run_cluster(fleet, "quick", fleet.records.append)
    parts = [one for one in fleet.records if isinstance(one, CollectiveRecord) and one.part_of]
    assert {one.nodes for one in parts} == {(a, b) for a in fleet_names(fleet) for b in fleet_names(fleet) if a < b}
    assert {one.part_of for one in parts} == {("n1", "n2", "n3", "n4")}
    quiet = ScriptedFleet(trained, ("n1", "n2", "n3", "n4"))
    quiet.slowest_gbps = 0.0001
    cluster.run_cluster(quiet, "quick", quiet.records.append)
    assert not [one for one in quiet.records if isinstance(one, CollectiveRecord) and one.part_of]


def fleet_names(fleet: ScriptedFleet) -> list[str]:
    return [node.name for node in fleet.nodes]


def test_one_rank_has_no_collective() -> None:
    """A cluster of one node has nobody to reduce with: no record, no error."""
    fleet = ScriptedFleet(trained, ("n1",))
    cluster.run_cluster(fleet, "quick", fleet.records.append)
    assert fleet.records == []


def test_large_collective_shrinks_on_a_slow_link() -> None:
    """The large size takes about two seconds at most where a link is far slower than declared."""
    assert cluster.large_bytes("quick", None) == 16 << 20
    assert cluster.large_bytes("quick", 0.94) == 16 << 20
    assert cluster.large_bytes("quick", 0.05) == 5 << 20
    assert cluster.large_bytes("quick", 0.001) == 1 << 20
