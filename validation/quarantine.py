"""Quarantine: which nodes Slurm drains or takes back after a verdict, decided purely, then applied and read back."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from inventory.drain_policy import DRAIN_SHARE, drain_reason, room
from inventory.model import DEPLOY_HOME
from validation.model import Judgement, Outcome
from validation.remote import Remote, RemoteError
from validation.slurm_state import SlurmNode, read_states

CERTIFICATES = f"{DEPLOY_HOME}/certificates"
"""On the controller, a file a node: the slurm role takes a node with one for the same hardware into service."""
NODE_CERTIFICATE = f"{DEPLOY_HOME}/certificate.json"
"""On each node its own: the health check compares what runs there with what was certified."""

SETTLE_S = 5.0


@dataclass(frozen=True)
class Action:
    """What is done about one node; `leave` changes nothing and says why."""

    node: str
    what: Literal["drain", "resume", "keep", "leave"]
    reason: str = ""
    """Slurm's reason for a drain, else a sentence for people."""
    certify: bool | None = None
    """True: write the node's certificate; False: remove it; None: don't touch it."""


def plan_actions(
    judgement: Judgement,
    states: Mapping[str, SlurmNode] | None,
    run_id: str,
    *,
    nodes: Iterable[str],
    all_stages: bool,
    drain_share: float = DRAIN_SHARE,
) -> list[Action]:
    """One action a compute node of the run. Without all stages (`--only`) a node is never certified or resumed."""
    known = states or {}
    left = room(len(known), sum(not state.in_service for state in known.values()), drain_share)
    actions = []
    for name in nodes:
        state = known.get(name)
        action = _plan(judgement, state, name, run_id, all_stages)
        if action.what == "drain" and state is not None and not state.drained:
            left -= state.in_service
            if left < 0:
                action = _too_many(action, known, drain_share)
        actions.append(action)
    return actions


def _too_many(action: Action, states: Mapping[str, SlurmNode], share: float) -> Action:
    """Failed, but half the fleet is out already: no certificate, and a person looks before more is taken away."""
    why = (
        f"failed ({action.reason}) and NOT drained: Slurm(drain_share={share:g}) of {len(states)} nodes are out of "
        f"service; look for what they have in common, or: scontrol update NodeName={action.node} State=DRAIN Reason=…"
    )
    return Action(action.node, "leave", why, certify=False)


def _plan(judgement: Judgement, state: SlurmNode | None, name: str, run_id: str, all_stages: bool) -> Action:
    verdict = judgement.nodes.get(name)
    blamed = [culprit for culprit in judgement.culprits if culprit.node == name]
    if state is None:
        return Action(name, "leave", "Slurm does not answer or does not know it")
    if verdict is Outcome.FAIL and blamed:
        reason = drain_reason(_failed_check(judgement, name, blamed[0].kind), blamed[0].cause, run_id)
        if state.drained and not state.ours:
            return Action(name, "leave", f"drained by somebody else ({state.reason})", certify=False)
        return Action(name, "drain", reason, certify=False)
    if verdict is Outcome.PASS and all_stages:
        if state.ours:
            return Action(name, "resume", "passed", certify=True)
        if state.drained:
            return Action(name, "leave", f"passed, but drained by somebody else ({state.reason})", certify=True)
        return Action(name, "keep", "passed", certify=True)
    if verdict is Outcome.PASS:
        return Action(name, "leave", "passed what was run; only a run of all stages certifies")
    return Action(name, "leave", f"{verdict or 'not judged'}: no reason to drain it, none to resume it")


def _failed_check(judgement: Judgement, name: str, otherwise: str) -> str:
    for result in judgement.results:
        if result.subject == name and result.outcome is Outcome.FAIL:
            return result.check
    return otherwise


# --- applying ----------------------------------------------------------------------------------------------------


def apply_actions(
    actions: Sequence[Action], controller: Remote, remotes: Mapping[str, Remote], certificates: Mapping[str, str]
) -> list[str]:
    """Do them through the controller and say, a line a node, what is then true there.

    `certificates`: node → the text of its certificate, for the controller and for the node's own health check.
    """
    troubles: dict[str, str] = {}
    for action in actions:
        try:
            _apply(action, controller, remotes.get(action.node), certificates.get(action.node))
        except RemoteError as error:
            troubles[action.node] = str(error)
    states = _settled_states(controller, [action.node for action in actions if action.what == "resume"])
    return [_told(action, states.get(action.node), troubles.get(action.node, "")) for action in actions]


def _settled_states(controller: Remote, resumed: Sequence[str]) -> Mapping[str, SlurmNode]:
    """States once slurmctld has heard the resumed nodes (half a second, tried), or after a while whatever they are."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        states = read_states(controller) or {}
        if all(states[name].settled for name in resumed if name in states) or time.monotonic() > deadline:
            return states
        time.sleep(0.25)


def _apply(action: Action, controller: Remote, node: Remote | None, certificate: str | None) -> None:
    name = shlex.quote(action.node)
    path = f"{CERTIFICATES}/{action.node}.json"
    if action.certify is False:
        _must(controller, f"rm -f {shlex.quote(path)}")
    if action.certify is True:
        if certificate is None:
            raise RemoteError("its hardware is not locked: run the deploy, then validate again")
        if node is not None:  # first: its health check must not hold an older one against it
            _must(node, _write_command(NODE_CERTIFICATE), certificate.encode())
        _must(controller, _write_command(path), certificate.encode())
    if action.what == "drain":
        _must(controller, f"scontrol update NodeName={name} State=DRAIN Reason={shlex.quote(action.reason)}")
    if action.what == "resume":
        _must(controller, f"scontrol update NodeName={name} State=RESUME")


def _write_command(path: str) -> str:
    """Write stdin to a root-owned file in one step, also where the login account is not root."""
    new, target, folder = shlex.quote(path + ".new"), shlex.quote(path), shlex.quote(str(PurePosixPath(path).parent))
    return f"mkdir -p {folder} && cat > {new} && chmod 0644 {new} && mv -f {new} {target}"


def _must(remote: Remote, command: str, stdin: bytes | None = None) -> None:
    done = remote.run(remote.sudo(command), timeout_s=15, stdin=stdin)
    if done.status != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise RemoteError(lines[-1] if lines else f"exit status {done.status}")


def _told(action: Action, state: SlurmNode | None, trouble: str) -> str:
    now = state.text if state else "unknown to Slurm"
    if trouble:
        return f"{action.node}: {action.what} did not work ({trouble}); now {now}"
    wanted = {"drain": "drained", "resume": "taken into service", "keep": "stays in service", "leave": "left as it is"}
    true = {"drain": bool(state and state.drained), "resume": bool(state and not state.drained)}.get(action.what, True)
    if not true:
        return f"{action.node}: {action.what} was accepted, but Slurm says {now}"
    why = f" ({action.reason})" if action.what == "leave" else ""
    return f"{action.node}: {wanted[action.what]}{why}; now {now}"
