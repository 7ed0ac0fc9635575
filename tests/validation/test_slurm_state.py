"""What Slurm says of its nodes, from recorded output, and the launcher that follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from validation import slurm_state
from validation.slurm_state import busy_nodes, choose_launcher, parse_nodes, settled_states

RECORDINGS = Path(__file__).parents[1] / "recordings" / "node"


def recorded(name: str) -> str:
    return (RECORDINGS / f"scontrol-{name}.txt").read_text(encoding="utf-8")


def test_quarantined_nodes_are_ours() -> None:
    """A drain with our reason, spaces and `=` in it, is read whole and known for ours."""
    nodes = parse_nodes(recorded("quarantined"))
    assert sorted(nodes) == ["n1", "n2", "n3"]
    assert all(node.ours and node.drained and not node.in_service and not node.busy for node in nodes.values())
    assert nodes["n1"].reason == "klaster:quarantine:uncertified run=none"


def test_somebody_elses_drain_is_not_ours() -> None:
    """An administrator's reason is kept as written."""
    node = parse_nodes(recorded("somebody-elses-drain"))["n3"]
    assert node.reason == "fan is loud, alice"
    assert node.drained
    assert not node.ours


def line(state: str, extra: str = "") -> str:
    return f"NodeName=n1 CPUAlloc=0 State={state} Weight=1 Owner=N/A {extra}\n"


@pytest.mark.parametrize(
    ("state", "in_service", "busy"),
    [
        ("IDLE", True, False),
        ("MIXED", True, True),
        ("ALLOCATED", True, True),
        ("IDLE+COMPLETING", True, True),
        ("ALLOCATED+DRAIN", False, True),
        ("DOWN*", False, False),
        ("IDLE*", False, False),
        ("DOWN+NOT_RESPONDING", False, False),
        ("UNKNOWN", False, False),
    ],
)
def test_states(state: str, in_service: bool, busy: bool) -> None:
    """In service means Slurm would start a job there; busy means one runs."""
    node = parse_nodes(line(state))["n1"]
    assert (node.in_service, node.busy) == (in_service, busy)


def test_allocated_processors_are_a_job() -> None:
    """A node counts as busy by its allocated processors, whatever its state is called."""
    states = parse_nodes("NodeName=n1 CPUAlloc=2 State=IDLE x\n")
    assert busy_nodes(states, ["n1", "n2"]) == ["n1"]
    assert busy_nodes(None, ["n1"]) == []


def test_launcher_follows_service() -> None:
    """Slurm starts the workers only where every node is in service."""
    both = {**parse_nodes(line("IDLE")), **parse_nodes(line("IDLE+DRAIN").replace("n1", "n2"))}
    assert choose_launcher("auto", both, ["n1"]) == "slurm"
    assert choose_launcher("auto", both, ["n1", "n2"]) == "ssh"
    assert choose_launcher("auto", both, ["n1", "n9"]) == "ssh"
    assert choose_launcher("auto", None, ["n1"]) == "ssh"
    assert choose_launcher("ssh", both, ["n1"]) == "ssh"
    assert choose_launcher("auto", both, []) == "ssh"


def test_slurm_on_a_drained_node_is_refused_with_the_remedy() -> None:
    """A drained node takes no job, root's neither: the person is told so instead of waiting for it."""
    with pytest.raises(ValueError, match="n2; leave it away"):
        choose_launcher("slurm", parse_nodes(line("IDLE+DRAIN").replace("n1", "n2")), ["n2"])
    with pytest.raises(ValueError, match="does not answer"):
        choose_launcher("slurm", None, ["n2"])


class Controller:
    """Says one thing after the other, the last one for ever."""

    def __init__(self, *states: str) -> None:
        self.left = list(states)

    def run(self, command: str, timeout_s: float) -> Done:
        state = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return Done(f"NodeName=n1 Arch=x86_64 CPUAlloc=0 State={state} Reason=none\n")


class Done:
    status = 0

    def __init__(self, stdout: str) -> None:
        self.stdout = stdout


def test_a_controller_that_just_started_is_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """UNKNOWN is what every node is for some seconds after slurmctld's start; it is waited for, not for ever."""
    monkeypatch.setattr(slurm_state, "SETTLE_POLL_S", 0.0)
    found = settled_states(cast(Any, Controller("UNKNOWN", "UNKNOWN", "IDLE")), ["n1"])
    assert found
    assert found["n1"].states == {"IDLE"}
    monkeypatch.setattr(slurm_state, "SETTLE_S", 0.0)
    found = settled_states(cast(Any, Controller("UNKNOWN")), ["n1"])
    assert found
    assert found["n1"].states == {"UNKNOWN"}
