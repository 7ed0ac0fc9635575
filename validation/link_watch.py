"""Whether a node's link went down while the run went on: its carrier is counted by the kernel, before and after."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from inventory.model import Cluster
from validation.launch_ssh import side_by_side
from validation.model import NodeCheckRecord, Outcome
from validation.remote import Remote, RemoteError

CHECK = "link-flaps"
DEADLINE_S = 4.0
Counts = Mapping[str, int]
"""Node → how often the carrier of its declared addresses' interfaces came or went since boot."""


def command(addresses: list[str]) -> str:
    """The sum over the interfaces that hold these addresses."""
    wanted = "|".join(re.escape(address) for address in addresses)
    return (
        "for i in $(ip -o -4 address show | "
        f"grep -Ew {shlex.quote(f'inet ({wanted})/[0-9]+')} | cut -d' ' -f2 | sort -u); do "
        "cat /sys/class/net/$i/carrier_changes; done"
    )


def read_counts(cluster: Cluster, remotes: Mapping[str, Remote]) -> dict[str, int]:
    """A node that does not answer is left out."""

    def one(name: str) -> int | None:
        node = cluster.node(name)
        addresses = [node.address, *(link.address for link in node.links if link.address)]
        try:
            said = remotes[name].run(command(addresses), timeout_s=DEADLINE_S).stdout.split()
        except RemoteError:
            return None
        return sum(map(int, said)) if said and all(word.isdigit() for word in said) else None

    names = list(remotes)
    found = dict(zip(names, side_by_side(one, names), strict=True))
    return {name: count for name, count in found.items() if count is not None}


def changed(before: Counts, after: Counts) -> list[NodeCheckRecord]:
    """A record for every node whose link did not stay up."""
    return [
        NodeCheckRecord(
            node=name,
            check=CHECK,
            outcome=Outcome.FAIL,
            measured=f"the carrier came or went {after[name] - count} times during this run",
            required="the link stays up",
            origin="kernel's count (carrier_changes)",
            cause="link-flapping",
            remedy=f"change cable, then switch port, then NIC of {name}: dmesg shows each time its link went down",
        )
        for name, count in before.items()
        if name in after and after[name] > count
    ]
