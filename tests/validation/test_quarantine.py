"""Quarantine follows from a node's own verdict, and a drain by somebody else is never touched."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.drain_policy import drain_reason
from validation.model import CheckResult, Culprit, Judgement, Outcome
from validation.quarantine import Action, apply_actions, plan_actions
from validation.remote import Completed
from validation.slurm_state import SlurmNode

OURS = "klaster:quarantine:uncertified run=none"


def slurm_node(name: str, *states: str, reason: str = "") -> SlurmNode:
    return SlurmNode(name=name, states=frozenset(states or {"IDLE"}), reason=reason)


def judgement(blamed: str | None = "n3", **nodes: Outcome) -> Judgement:
    culprit = Culprit(kind="node", subject="n3", cause="network", evidence=("slow",), remedy="cable", node=blamed)
    result = CheckResult(subject="n3", stage="pairs", check="bandwidth", outcome=Outcome.FAIL)
    failed = Outcome.FAIL in nodes.values()
    return Judgement(
        verdict=Outcome.FAIL if failed else Outcome.PASS,
        culprits=(culprit,) if failed else (),
        results=(result,) if failed else (),
        nodes=nodes,
    )


def plan(found: Judgement, *states: SlurmNode, all_stages: bool = True) -> list[Action]:
    return plan_actions(found, {s.name: s for s in states}, "r1", nodes=[s.name for s in states], all_stages=all_stages)


def test_a_failed_node_is_drained_with_its_cause() -> None:
    """The reason in Slurm names check, cause and run; the node's certificate goes."""
    (action,) = plan(judgement(n3=Outcome.FAIL), slurm_node("n3"))
    assert action == Action("n3", "drain", "klaster:bandwidth:network run=r1", certify=False)


def test_a_failed_node_in_quarantine_gets_the_new_reason() -> None:
    """Our own earlier reason is replaced by what was found now."""
    (action,) = plan(judgement(n3=Outcome.FAIL), slurm_node("n3", "IDLE", "DRAIN", reason=OURS))
    assert action.what == "drain"
    assert "network" in action.reason


def test_a_passed_node_in_quarantine_is_resumed_and_certified() -> None:
    """A drain of ours is lifted by a pass."""
    (action,) = plan(judgement(n1=Outcome.PASS), slurm_node("n1", "IDLE", "DRAIN", reason=OURS))
    assert (action.what, action.certify) == ("resume", True)


def test_only_some_stages_never_resume() -> None:
    """With --only a node that passed stays in quarantine, without a certificate."""
    (action,) = plan(judgement(n1=Outcome.PASS), slurm_node("n1", "IDLE", "DRAIN", reason=OURS), all_stages=False)
    assert (action.what, action.certify) == ("leave", None)


def test_a_cut_link_drains_nobody() -> None:
    """A cluster that fails for a link leaves its two nodes as they are, if their own verdicts are good."""
    found = judgement(None, n1=Outcome.PASS, n3=Outcome.PASS).model_copy(update={"verdict": Outcome.FAIL})
    assert [a.what for a in plan(found, slurm_node("n1"), slurm_node("n3"))] == ["keep", "keep"]


def test_a_failed_node_that_nobody_blames_is_not_drained() -> None:
    """Without a culprit that names the node there is no reason to write down."""
    (action,) = plan(judgement(None, n3=Outcome.FAIL), slurm_node("n3"))
    assert action.what == "leave"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_somebody_elses_drain_stays(outcome: Outcome) -> None:
    """Whatever the verdict, a drain with another reason is neither lifted nor overwritten."""
    (action,) = plan(judgement(n3=outcome), slurm_node("n3", "IDLE", "DRAIN", reason="fan is loud, alice"))
    assert action.what == "leave"


@given(
    outcome=st.sampled_from([o for o in Outcome if o is not Outcome.FAIL]),
    drained=st.booleans(),
    reason=st.sampled_from(["", OURS, "alice"]),
    all_stages=st.booleans(),
)
def test_only_a_failure_drains(outcome: Outcome, drained: bool, reason: str, all_stages: bool) -> None:
    """ERROR, INCONCLUSIVE and the rest drain nobody, and only a PASS resumes."""
    state = slurm_node("n3", *(("IDLE", "DRAIN") if drained else ("IDLE",)), reason=reason)
    (action,) = plan(judgement(n3=outcome), state, all_stages=all_stages)
    assert action.what != "drain"
    assert action.what != "resume" or outcome is Outcome.PASS


@given(st.text(), st.text())
def test_a_reason_is_one_safe_line(check: str, cause: str) -> None:
    """No text that a check or a node brought can end the reason or begin another field."""
    reason = drain_reason(check, cause, "r1")
    assert reason.startswith("klaster:")
    assert reason.count("=") == 1
    assert not set(reason) & set("\"'\\\n\t[]$`;|")


def test_no_more_than_the_declared_share_is_drained() -> None:
    """Beyond the share of the fleet a failed node stays in service without a certificate, and the line says why."""
    names = ("n1", "n2", "n3", "n4")
    culprits = tuple(
        Culprit(kind="node", subject=name, cause=f"cause-{name}", evidence=(), remedy="", node=name) for name in names
    )
    found = Judgement(verdict=Outcome.FAIL, culprits=culprits, nodes=dict.fromkeys(names, Outcome.FAIL))
    states = {name: slurm_node(name) for name in names} | {"n9": slurm_node("n9", "IDLE", "DRAIN", reason="fan")}
    actions = plan_actions(found, states, "r1", nodes=names, all_stages=True)  # half of five, rounded up, less n9
    assert [action.what for action in actions] == ["drain", "drain", "leave", "leave"]
    assert "NOT drained" in actions[2].reason
    assert actions[2].certify is False
    every = plan_actions(found, states, "r1", nodes=names, all_stages=True, drain_share=1.0)
    assert [action.what for action in every] == ["drain"] * 4


def test_a_node_that_is_out_already_gets_its_reason_whatever_the_share() -> None:
    """A new reason takes nobody out of service."""
    states = [slurm_node(f"n{at}", "IDLE", "DRAIN", reason=OURS) for at in (1, 2)] + [
        slurm_node("n3", "IDLE", "DRAIN", reason=OURS)
    ]
    assert [a.what for a in plan(judgement(n3=Outcome.FAIL), *states)] == ["leave", "leave", "drain"]


class Controller:
    """A controller that notes commands and has a little Slurm in it."""

    def __init__(self, states: Iterable[str]) -> None:
        self.states = dict.fromkeys(states, "IDLE")
        self.commands: list[tuple[str, bytes | None]] = []
        self.refuses = ""

    def sudo(self, command: str) -> str:
        return command

    def run(self, command: str, *, timeout_s: float, stdin: bytes | None = None) -> Completed:
        if command == "scontrol -o show nodes":
            return Completed(0, "".join(f"NodeName={n} State={s} Reason=x [r@t]\n" for n, s in self.states.items()), "")
        self.commands.append((command, stdin))
        if self.refuses and self.refuses in command:
            return Completed(1, "", "slurm_update error: Invalid node state specified")
        name = command.partition("NodeName=")[2].partition(" ")[0]
        if name and "State=DRAIN" in command:
            self.states[name] = "IDLE+DRAIN"
        return Completed(0, "", "")


def test_applying_tells_what_is_true_afterwards() -> None:
    """The lines come from Slurm's states read after the actions, not from what was intended."""
    controller = Controller(["n1", "n3"])
    actions = [Action("n3", "drain", "klaster:a:b run=r1", certify=False), Action("n1", "keep", "passed", certify=True)]
    node = Controller(["n1"])
    told = apply_actions(actions, controller, {"n1": node}, {"n1": "signed"})  # type: ignore[arg-type, dict-item]
    assert told[0].startswith("n3: drained; now IDLE+DRAIN")
    assert told[1].startswith("n1: stays in service")
    written = [stdin for command, stdin in controller.commands if "n1.json" in command]
    assert written == [b"signed"]
    assert [stdin for command, stdin in node.commands if "/var/lib/klaster/certificate.json" in command] == [b"signed"]
    assert any("rm -f /var/lib/klaster/certificates/n3.json" in command for command, _ in controller.commands)


def test_a_refused_drain_is_told() -> None:
    """What Slurm refuses is said with its words, and the other nodes still get their action."""
    controller = Controller(["n1", "n3"])
    controller.refuses = "NodeName=n3"
    actions = [Action("n3", "drain", "klaster:a:b run=r1"), Action("n1", "drain", "klaster:a:b run=r1")]
    told = apply_actions(actions, controller, {}, {})  # type: ignore[arg-type]
    assert "drain did not work (slurm_update error" in told[0]
    assert told[1].startswith("n1: drained")


def test_a_node_without_locked_hardware_is_not_certified() -> None:
    """What could not be compared later gets no certificate, and the line says what to do."""
    controller = Controller(["n1"])
    told = apply_actions([Action("n1", "resume", "passed", certify=True)], controller, {}, {})  # type: ignore[arg-type]
    assert "its hardware is not locked" in told[0]
    assert not controller.commands
