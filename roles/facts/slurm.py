"""What the controller knows of its nodes, and which of them hold a certificate for which hardware."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

CERTIFICATES = "/var/lib/klaster/certificates"


@dataclass(frozen=True)
class NodeInSlurm:
    flags: tuple[str, ...]
    """State and flags, e.g. IDLE, DRAIN, NOT_RESPONDING; a trailing * (not responding) becomes the flag."""
    reason: str

    @property
    def registered(self) -> bool:
        return not {"NOT_RESPONDING", "UNKNOWN", "DOWN"} & set(self.flags)


@dataclass(frozen=True)
class Certified:
    """What a node's certificate is about."""

    hardware_sha256: str
    inventory_sha256: str = ""
    """Of the node's part of the inventory; empty in a certificate of before there was this hash."""


@dataclass
class SlurmState:
    nodes: dict[str, NodeInSlurm] = field(default_factory=dict)
    certified: dict[str, Certified] = field(default_factory=dict)


class SlurmNodes(FactBase[SlurmState]):
    """Nodes of `scontrol show nodes` and the certificates on the controller."""

    @staticmethod
    def default() -> SlurmState:
        return SlurmState()

    def command(self) -> str:
        return (
            "timeout 20 scontrol show nodes -o 2>/dev/null; "
            f'for c in {CERTIFICATES}/*.json; do [ -f "$c" ] && tr -d \'\\n\' < "$c" && echo; done; true'
        )

    def process(self, output: list[str]) -> SlurmState:
        return parse_slurm(output)


def parse_slurm(lines: Sequence[str]) -> SlurmState:
    """Parse one-line node records and one-line JSON certificates; a damaged certificate certifies nothing."""
    state = SlurmState()
    for line in lines:
        name = re.match(r"NodeName=(\S+)", line)
        flags = re.search(r" State=(\S+)", line)
        if name and flags:
            reason = re.search(r" Reason=(.*?)(?: \[\S+@\S+\])?\s*$", line)
            words = flags[1].replace("*", "+NOT_RESPONDING").split("+")
            state.nodes[name[1]] = NodeInSlurm(tuple(words), reason[1].strip() if reason else "")
        elif line.startswith("{"):
            try:
                certificate = json.loads(line)
            except ValueError:
                continue
            if certificate.get("verdict") == "PASS":
                state.certified[str(certificate.get("node"))] = Certified(
                    str(certificate.get("hardware_sha256")), str(certificate.get("inventory_sha256", ""))
                )
    return state
