"""A job that takes too much memory: how it is started, what srun's words mean, and what is said of a node."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from inventory.hardware import HardwareLock
from validation.checks.node import Gathered
from validation.checks.node_services import memory_limit
from validation.memory_limit import HOG, confines, hog_command, parse_hog, take_memory
from validation.model import Outcome
from validation.node_file import load
from validation.remote import Completed, Remote
from validation.slurm_state import SlurmNode

HEALTHY = Path(__file__).parents[1] / "recordings" / "node" / "healthy.json"
OOM = "srun: error: n1: task 0: Out Of Memory\n"


@pytest.fixture
def healthy() -> Gathered:
    return load(HEALTHY)


def with_memory(lock: HardwareLock, controllers: tuple[str, ...] = ("cpu", "memory")) -> HardwareLock:
    nodes = {name: node.model_copy(update={"cgroup_controllers": controllers}) for name, node in lock.nodes.items()}
    return lock.model_copy(update={"nodes": nodes})


def test_srun_says_how_each_node_took_it() -> None:
    """Killed alone, killed with its shell, survived, or never started, which is about no node's memory."""
    said = "n1 starts\nn2 starts\nn3 starts\nn2 ends with 137\nn3 ends with 0\n"
    assert parse_hog(("n1", "n2", "n3"), said, OOM) == {
        "n1": {"ok": {"status": 137}},
        "n2": {"ok": {"status": 137}},
        "n3": {"ok": {"status": 0}},
    }
    busy = "srun: error: Unable to allocate resources: Requested nodes are busy"
    assert parse_hog(("n1",), "", busy) == {"n1": {"error": busy}}
    assert "error" in parse_hog(("n1",), "n1 starts\n", "srun: error: time limit")["n1"], "no end, and not for memory"


def test_the_job_says_how_its_program_ended() -> None:
    """The shell line itself, without a limit: it takes the memory and lives."""
    done = subprocess.run(
        ["sh", "-c", HOG],
        env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert parse_hog(("n1",), done.stdout, "") == {"n1": {"ok": {"status": 0}}}
    assert shlex.split(hog_command(("n1", "n2")))[-1] == HOG


class Controller:
    """Answers each command with the same words and keeps it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def sudo(self, command: str) -> str:
        return command

    def run(self, command: str, *, timeout_s: float) -> Completed:
        self.asked.append(command)
        return Completed(0, "n1 starts\nn1 ends with 137\n", OOM)


def test_only_nodes_in_service_are_asked_and_none_where_nothing_is_limited(healthy: Gathered) -> None:
    """A drained node gets no job; without the memory controller on every node Slurm limits nothing and nobody is."""
    controller = Controller()
    remotes = cast(dict[str, Remote], dict.fromkeys((node.name for node in healthy.cluster.nodes), controller))
    slurm = {
        "n1": SlurmNode(name="n1", states=frozenset({"IDLE"})),
        "n2": SlurmNode(name="n2", states=frozenset({"IDLE", "DRAIN"})),
    }
    assert take_memory(healthy.cluster, with_memory(healthy.lock, ("cpu",)), remotes, slurm) == {}
    assert controller.asked == []
    lock = with_memory(healthy.lock)
    assert confines(lock, ["n1", "n2"])
    found = take_memory(healthy.cluster, lock, remotes, slurm)
    assert found["n1"] == {"ok": {"status": 137}}
    assert found["n2"] == {"error": "the node takes no job now"}
    assert "-w n1 -N1" in controller.asked[0]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (None, Outcome.NOT_APPLICABLE),
        ({"error": "Requested nodes are busy"}, Outcome.NOT_APPLICABLE),
        ({"ok": {"status": 137}}, Outcome.PASS),
        ({"ok": {"status": 0}}, Outcome.FAIL),
        ({"ok": {"status": 127}}, Outcome.INCONCLUSIVE),
    ],
)
def test_a_node_whose_jobs_take_what_they_want_is_named(
    healthy: Gathered, answer: dict[str, Any] | None, outcome: Outcome
) -> None:
    """It is its slurmd's fault, and nobody is drained for it; what was not tried is no pass."""
    probes: dict[str, Any] = dict(healthy.probes)
    probes["n3"] = {**probes["n3"], **({"memory_limit": answer} if answer else {})}
    found = memory_limit(dataclasses.replace(healthy, probes=probes).subject("n3"))
    assert found.outcome is outcome
    if outcome is Outcome.FAIL:
        assert (found.culprit_kind, found.culprit) == ("service", "slurmd on n3")
