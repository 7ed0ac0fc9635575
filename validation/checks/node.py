"""What the node stage knows of a node and how it judges: subjects, findings, and how to read a probe's answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inventory.hardware import FoundNode, HardwareLock
from inventory.model import Cluster, Node
from inventory.networks import link_for
from validation.model import Outcome
from validation.slurm_state import SlurmNode

Probe = Mapping[str, Any]
"""One node's answers as payloads/probe.py prints them: question → {"ok": …} or {"error": …}."""


class ProbeError(Exception):
    """The probe has no answer to a question: the validator's fault or a missing tool, never a verdict on the node."""


@dataclass(frozen=True)
class Finding:
    """The verdict of one check of one node, with all that a person needs to believe it and to act."""

    outcome: Outcome
    measured: str = ""
    required: str = ""
    origin: str = ""
    cause: str = ""
    culprit_kind: str = "node"
    culprit: str = ""
    evidence: str = ""
    remedy: str = ""
    advice: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    """Kept in the record, for the certificate."""


def passed(measured: str, required: str = "", origin: str = "", advice: str = "", evidence: str = "") -> Finding:
    return Finding(Outcome.PASS, measured, required, origin, advice=advice, evidence=evidence)


def not_applicable(why: str) -> Finding:
    return Finding(Outcome.NOT_APPLICABLE, measured=why)


def inconclusive(measured: str, remedy: str, required: str = "", origin: str = "", cause: str = "") -> Finding:
    return Finding(Outcome.INCONCLUSIVE, measured, required, origin, cause=cause, remedy=remedy)


def failed(
    measured: str,
    required: str,
    origin: str,
    cause: str,
    remedy: str,
    *,
    evidence: str = "",
    culprit_kind: str = "node",
    culprit: str = "",
) -> Finding:
    return Finding(Outcome.FAIL, measured, required, origin, cause, culprit_kind, culprit, evidence, remedy)


@dataclass(frozen=True)
class Clock:
    """A node's clock against the control machine's, at the midpoint of the quickest of some exchanges."""

    offset_s: float
    round_trip_s: float


@dataclass(frozen=True)
class Gathered:
    """All that was asked of the nodes, before anything is judged."""

    cluster: Cluster
    lock: HardwareLock
    probes: Mapping[str, Probe]
    unreachable: Mapping[str, str] = field(default_factory=dict)
    no_probe: Mapping[str, str] = field(default_factory=dict)
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    munge: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Node whose credential it is → node that decoded it → empty text, or munge's complaint."""
    shared: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Node → shared folder → empty text, or what went wrong when nodes wrote and read there."""
    slurm: Mapping[str, SlurmNode] | None = None
    """None: the controller did not answer."""

    def subject(self, name: str) -> Subject:
        return Subject(self, self.cluster.node(name))


@dataclass(frozen=True)
class Subject:
    """One node that checks are about."""

    fleet: Gathered
    node: Node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def cluster(self) -> Cluster:
        return self.fleet.cluster

    @property
    def probe(self) -> Probe:
        return self.fleet.probes[self.name]

    @property
    def locked(self) -> FoundNode | None:
        return self.fleet.lock.nodes.get(self.name)

    @property
    def computes(self) -> bool:
        return "compute" in self.node.roles

    @property
    def interface(self) -> str:
        """The interface that holds the declared address, or an empty text."""
        return addresses(self.probe).get(self.node.address, "")

    @property
    def compute_interface(self) -> str:
        """The interface in the network that carries compute, or an empty text."""
        return addresses(self.probe).get(link_for(self.cluster, self.node, "compute").address or "", "")


# --- reading a probe's answers -----------------------------------------------------------------------------------


def answer(probe: Probe, question: str) -> Any:
    """The answer to a question; ProbeError if there is none."""
    found = probe.get(question, {"error": "was not asked"})
    if "error" in found:
        raise ProbeError(f"{question}: {found['error']}")
    return found["ok"]


def problem(probe: Probe, question: str) -> str:
    """Why a question has no answer; empty if it has one."""
    return str(probe.get(question, {"error": "was not asked"}).get("error", ""))


def output(probe: Probe, question: str) -> str:
    """Standard output of a command that ended well; ProbeError otherwise."""
    found = answer(probe, question)
    if found["status"] != 0:
        lines = (found["stderr"] or found["stdout"]).strip().splitlines()
        raise ProbeError(f"{question}: exit status {found['status']}: {lines[-1] if lines else 'no message'}")
    return str(found["stdout"])


def addresses(probe: Probe) -> dict[str, str]:
    """IPv4 address → interface, from `ip -j -4 address show`."""
    rows = json.loads(output(probe, "addresses") or "[]")
    return {str(info["local"]): str(row["ifname"]) for row in rows if row for info in row.get("addr_info", ())}


def units(probe: Probe) -> dict[str, dict[str, str]]:
    """Unit → its properties, from `systemctl show -p … A B C` (blocks with an empty line between)."""
    found: dict[str, dict[str, str]] = {}
    for block in output(probe, "services").strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in values:
            found[values["Id"]] = values
    return found


def mounts(probe: Probe) -> dict[str, tuple[str, str]]:
    """Mount point → (file-system type, options), the last mount of each; spaces come as octal escapes."""
    found = {}
    for line in str(answer(probe, "mounts")).splitlines():
        _, point, fstype, options, *_ = line.split()
        found[point.encode().decode("unicode_escape")] = (fstype, options)
    return found


def process_limit(text: str, row: str) -> float:
    """The soft limit of one row of /proc/PID/limits (`Max open files  1024  524288  files`); ProbeError without it."""
    for line in text.splitlines():
        if line.startswith(row):
            word = line[len(row) :].split()[0]
            return float("inf") if word == "unlimited" else float(word)
    raise ProbeError(f"limits: no row {row!r}")


def odd_one_out(values: Mapping[str, str], name: str) -> str | None:
    """What the strict majority has if `name` has something else; None if it agrees; empty text if nobody can tell."""
    mine = values.get(name)
    counts = Counter(values.values())
    if mine is None or len(counts) == 1:
        return None
    value, votes = counts.most_common(1)[0]
    if votes * 2 <= len(values):
        return ""
    return None if mine == value else value


def gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
