"""What a fault is: how it is put into a node and taken out again, from what was remembered before it was put in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lab.errors import LabError
from lab.network import in_netns, processes_in
from lab.node import NodeFiles
from lab.plan import NodePlan, Plan
from lab.process import run, start_time

Memory = dict[str, Any]
"""What healing needs to know; on disk before anything is changed."""
Takes = Literal["node", "pair", "machine"]


@dataclass(frozen=True)
class Site:
    """Where a fault is put in: a node, its partner for a fault between two; `name` tells faults on one node apart."""

    plan: Plan
    node: NodePlan
    partner: NodePlan | None = None
    name: str = ""

    @property
    def files(self) -> NodeFiles:
        return NodeFiles(Path(self.plan.state_dir), self.node.name)

    @property
    def other(self) -> NodePlan:
        if self.partner is None:
            raise LabError("this fault is one between two nodes")
        return self.partner

    @property
    def init(self) -> int | None:
        """Pid, as this machine counts, of the node's first process; None while the node is down."""
        return next((pid for pid in sorted(processes_in(self.node.netns)) if _pid_inside(pid) == 1), None)

    @property
    def group(self) -> str:
        """What this node's things are called outside of it."""
        return f"{self.plan.instance.group}/{self.node.name}"

    @property
    def record(self) -> Path:
        """Where a program that keeps a fault going is recorded."""
        return Path(self.plan.state_dir) / f"fault-{self.name}-{self.node.name}.json"

    def path(self, inside: str) -> Path:
        """A file of the node as this machine sees it: through the running node, or in its layer while it is down."""
        init = self.init
        root = Path(f"/proc/{init}/root") if init else self.files.upper
        return root / inside.lstrip("/")

    def sh(self, script: str, *, timeout_s: float = 60) -> str:
        """A shell script in the node, which has no network for it: from outside, into its name spaces."""
        init = self.init
        if init is None:
            raise LabError(f"{self.node.name} is not running: start it with `bin/lab up`")
        return run(["nsenter", f"--target={init}", "--all", "--", "/bin/sh", "-c", script], timeout_s=timeout_s)

    def switch(self, *argv: str, text_in: str | None = None) -> str:
        """A program in the switch's name space."""
        return run(in_netns(self.plan.instance.switch, *argv), text_in=text_in)

    def inside(self, *argv: str, text_in: str | None = None) -> str:
        """A program of this machine in the node's network name space."""
        return run(in_netns(self.node.netns, *argv), text_in=text_in)


def _pid_inside(pid: int) -> int:
    """The number that a process has in its own pid name space; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    words = next((line.split() for line in lines if line.startswith("NSpid:")), ["NSpid:", "0"])
    return int(words[-1]) if len(words) > 2 and start_time(pid) is not None else 0


def _nothing(_: Site) -> Memory:
    return {}


def _can(_: Site | None) -> str:
    return ""


@dataclass(frozen=True)
class Fault:
    """One way to break something.

    `undo` must do no harm where `put` never happened or stopped half-way. `unable` says in a few words why the fault
    can't be had here (None: no lab is up, only this machine is asked), or nothing.
    """

    name: str
    sentence: str
    put: Callable[[Site], None]
    undo: Callable[[Site, Memory], None]
    remember: Callable[[Site], Memory] = _nothing
    unable: Callable[[Site | None], str] = _can
    takes: Takes = "node"
