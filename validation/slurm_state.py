"""What Slurm says of its nodes: parsed from one command on the controller, and what follows for a run."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from inventory.drain_policy import is_ours

if TYPE_CHECKING:
    from validation.remote import Remote

SETTLE_S, SETTLE_POLL_S = 20.0, 1.0
BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
NOT_IN_SERVICE = frozenset({"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "MAINT", "POWERED_DOWN", "FUTURE"})


class SlurmNode(BaseModel):
    """One node as slurmctld sees it."""

    model_config = ConfigDict(frozen=True)

    name: str
    states: frozenset[str]
    reason: str = ""
    cpus_allocated: int = 0

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.states

    @property
    def ours(self) -> bool:
        """Drained by this product."""
        return self.drained and is_ours(self.reason)

    @property
    def settled(self) -> bool:
        """slurmd has answered since the last change: for a moment after a resume it has not."""
        return not self.states & {"NOT_RESPONDING", "UNKNOWN"}

    @property
    def busy(self) -> bool:
        return self.cpus_allocated > 0 or bool(self.states & BUSY)

    @property
    def in_service(self) -> bool:
        return not self.states & NOT_IN_SERVICE

    @property
    def text(self) -> str:
        """States as Slurm writes them; the reason only while it holds (Slurm keeps old ones for a while)."""
        states = "+".join(sorted(self.states, reverse=True))
        return f"{states} ({self.reason})" if self.reason and not self.in_service else states


def parse_nodes(text: str) -> dict[str, SlurmNode]:
    """Nodes from `scontrol -o show nodes`: one line a node, fields as Key=value, the reason with spaces in it."""
    found = {}
    for line in text.splitlines():
        name = re.match(r"NodeName=(\S+)", line)
        state = re.search(r" State=(\S+)", line)
        if not name or not state:
            continue
        reason = re.search(r" Reason=(.*?)(?: \[[^\]]*@[^\]]*\])?(?: [A-Z]\w*=|\s*$)", line)
        allocated = re.search(r" CPUAlloc=(\d+)", line)
        found[name[1]] = SlurmNode(
            name=name[1],
            states=_states(state[1]),
            reason=reason[1] if reason and reason[1] != "none" else "",
            cpus_allocated=int(allocated[1]) if allocated else 0,
        )
    return found


def _states(text: str) -> frozenset[str]:
    """`IDLE*+DRAIN` → IDLE, DRAIN, NOT_RESPONDING: a star is slurmctld's mark for a silent slurmd."""
    states = {re.sub(r"[^A-Z_]", "", word) for word in text.split("+")}
    return frozenset(states | ({"NOT_RESPONDING"} if "*" in text else set()))


def read_states(controller: Remote | None) -> dict[str, SlurmNode] | None:
    """Slurm's nodes; None if the controller is not reachable or slurmctld does not answer."""
    if controller is None:
        return None
    try:
        found = controller.run("scontrol -o show nodes", timeout_s=10)
    except Exception:  # a lost connection here is the same finding as no answer
        return None
    if found.status != 0:
        return None
    text = found.stdout if isinstance(found.stdout, str) else found.stdout.decode(errors="replace")
    return parse_nodes(text)


def settled_states(controller: Remote | None, nodes: Iterable[str]) -> dict[str, SlurmNode] | None:
    """The states once slurmctld knows them: for some seconds after its start every node is UNKNOWN to it."""
    wanted, end = list(nodes), time.monotonic() + SETTLE_S
    while True:
        found = read_states(controller)
        unknown = [name for name in wanted if found and name in found and "UNKNOWN" in found[name].states]
        if not unknown or time.monotonic() > end:
            return found
        time.sleep(SETTLE_POLL_S)


def busy_nodes(states: Mapping[str, SlurmNode] | None, nodes: Iterable[str]) -> list[str]:
    return [name for name in nodes if states and name in states and states[name].busy]


def choose_launcher(wanted: str, states: Mapping[str, SlurmNode] | None, nodes: Iterable[str]) -> str:
    """`slurm` if every node is in service there, else `ssh` (a drained node takes no job, root's neither).

    ValueError with one sentence if Slurm was asked for and cannot start something on every node.
    """
    nodes = list(nodes)
    out = [name for name in nodes if not states or name not in states or not states[name].in_service]
    if wanted == "slurm" and out:
        why = "Slurm does not answer" if not states else f"not in service in Slurm: {', '.join(out)}"
        raise ValueError(f"--launcher slurm cannot be used: {why}; leave it away or say --launcher ssh")
    if wanted in ("ssh", "slurm"):
        return wanted
    return "ssh" if out or not nodes else "slurm"
