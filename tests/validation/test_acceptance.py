"""Trainings as acceptance: which are run, what becomes of an error, and whose fault other losses are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.changes import named
from tests.simulator.run import whole_run
from tests.validation.scripted_fleet import ScriptedFleet
from validation.checks.acceptance import run_acceptance
from validation.launch_ranks import Message, Worker
from validation.launch_watch import Finding
from validation.model import AcceptanceRecord, Judgement, Outcome
from validation.verdict import judge

LOSSES = (4.0, 3.0, 2.0, 1.5)


def answered(worker: Worker, command: Message) -> Message | Finding | None:
    """Every recipe works; the killed rank is reported by the last node's agent."""
    if command["op"] == "restart":
        first = worker.rank == 0
        result = {"losses": LOSSES, "resumed_at": 4} if first else {}
        return {"error": "", "result": result, "reported": "" if first else "failed (exitcode: -9)"}
    half = {"save": LOSSES[:2], "resume": LOSSES[2:]}.get(command["recipe"], LOSSES)
    return {"error": "", "losses": half, "reference": half if worker.rank == 0 else [], "seconds": 0.5}


def accepted(fleet: ScriptedFleet, folder: str = "/shared/x", level: Any = "standard") -> dict[str, AcceptanceRecord]:
    run_acceptance(fleet, level, fleet.records.append, folder, "no shared storage")
    return {one.name: one for one in fleet.records if isinstance(one, AcceptanceRecord)}


def test_quick_runs_none() -> None:
    """A quick run has no time for them."""
    assert accepted(ScriptedFleet(answered), level="quick") == {}


def test_every_way_is_tried() -> None:
    """Data parallel ways on all ranks, split models on two, a checkpoint from three ranks to two, and a restart."""
    found = accepted(ScriptedFleet(answered))
    assert {name: len(one.nodes) for name, one in found.items()} == {
        "plain": 3, "activation-checkpointing": 3, "mixed-precision": 3, "gradient-accumulation": 3, "vision": 3,
        "fsdp": 3, "tensor-parallel": 2, "pipeline": 2, "checkpoint-resume": 3, "restart": 2,
    }  # fmt: skip
    assert found["checkpoint-resume"].losses == LOSSES
    assert found["checkpoint-resume"].detail == "saved by 3 ranks, resumed by 2"
    assert "n2's rank killed and reported (failed (exitcode: -9)), resumed at step 5" in found["restart"].detail


def test_without_shared_storage_resuming_is_not_applicable() -> None:
    """The reason stands in the record; the other ways are tried."""
    found = accepted(ScriptedFleet(answered), folder="")
    assert {name for name, one in found.items() if one.skipped} == {"checkpoint-resume", "restart"}
    assert found["restart"].skipped == "no shared storage"


def test_one_node_has_nobody_to_share_with() -> None:
    """All are told as not applicable."""
    found = accepted(ScriptedFleet(answered, ("n1",)))
    assert all(one.skipped for one in found.values())


def test_the_ranks_own_error_is_told_before_its_victims() -> None:
    """One rank raises, the others see a broken connection: the cause is told, and the next recipe is tried."""

    def broken(worker: Worker, command: Message) -> Message | Finding | None:
        if command.get("recipe") == "fsdp":
            return {"error": "RuntimeError: no such kernel" if worker.rank == 1 else "RuntimeError: gloo timed out"}
        return answered(worker, command)

    found = accepted(ScriptedFleet(broken))
    assert found["fsdp"].error == "n2: RuntimeError: no such kernel"
    assert found["pipeline"].losses == LOSSES


def test_a_kill_that_nobody_reported_is_an_error() -> None:
    """The training's end alone does not prove that a dead rank is noticed."""

    def silent(worker: Worker, command: Message) -> Message | Finding | None:
        answer = answered(worker, command)
        return {**answer, "reported": ""} if command["op"] == "restart" and isinstance(answer, dict) else answer

    assert "not reported" in accepted(ScriptedFleet(silent))["restart"].error


def record(**more: Any) -> AcceptanceRecord:
    given: dict[str, Any] = {
        "name": "fsdp", "nodes": ("n1", "n2", "n3"), "losses": LOSSES, "reference": LOSSES, "tolerance": 1e-3,
        "seconds": 1.0,
    }  # fmt: skip
    return AcceptanceRecord.model_validate(given | more)


def judged(one: AcceptanceRecord) -> tuple[Judgement, Outcome]:
    judgement = judge([*whole_run(3), one])
    return judgement, next(r.outcome for r in judgement.results if r.check == "acceptance")


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({}, Outcome.PASS),
        ({"losses": (4.0, 3.0001, 2.0, 1.5)}, Outcome.PASS),
        ({"losses": (4.0, 3.1, 2.0, 1.5)}, Outcome.FAIL),
        ({"losses": (4.0, 3.1, 2.0, 1.5), "tolerance": 0.05}, Outcome.PASS),
        ({"losses": LOSSES[:2]}, Outcome.FAIL),
        ({"losses": (4.0, float("nan"), 2.0, 1.5)}, Outcome.FAIL),
        ({"error": "RuntimeError"}, Outcome.ERROR),
        ({"skipped": "one rank"}, Outcome.NOT_APPLICABLE),
    ],
)
def test_losses_are_judged_by_the_tolerance(more: dict[str, Any], outcome: Outcome) -> None:
    """Rounding passes, another curve, a short one or no number fails; an error is the validator's."""
    assert judged(record(**more))[1] is outcome


def test_other_losses_are_software_and_drain_nobody() -> None:
    """The way of training is named, no node."""
    judgement, _ = judged(record(losses=(4.0, 3.1, 2.0, 1.5)))
    assert named(judgement) == {("software", "fsdp training", "losses-differ", None)}
