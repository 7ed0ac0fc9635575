"""The networks on each node: MTU, names that stay, which interface each program uses, RDMA where there is any."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import get_args

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.model import Cluster, Link, Node
from inventory.networks import Purpose, link_for
from roles.facts import site
from roles.facts.node_state import NodeState
from roles.operations.configure import configure, sh
from roles.operations.packages import install_commands
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

RDMA = ("rdma-core", "ibverbs-providers", "ibverbs-utils", "infiniband-diags", "perftest")
NCCL_CONF, NETWORK_ENV = "/etc/nccl.conf", "/etc/klaster/network.env"
TASK_PROLOG = "/etc/klaster/task-prolog"
"""slurm.conf names it too."""
RDMA_LIMITS = "/etc/security/limits.d/51-klaster-rdma.conf"


@dataclass(frozen=True)
class Port:
    """One interface as the kernel has it."""

    name: str
    mac: str
    """The one it was made with, not one that a bond gave it."""
    mtu: int
    physical: bool


@dataclass
class Interfaces:
    """IPv4 address → interface, and RDMA adapters (InfiniBand or RoCE)."""

    by_address: dict[str, Port] = field(default_factory=dict)
    adapters: list[str] = field(default_factory=list)

    def name(self, address: str | None) -> str:
        """Name of the interface that holds the address, or an empty text."""
        port = self.by_address.get(address or "")
        return port.name if port else ""


class FabricFacts(FactBase[Interfaces]):
    """Interfaces with their addresses, and RDMA adapters, in one round trip."""

    def command(self) -> str:
        return (
            "ip -j -4 -d address show; echo; echo '#physical'; ls -d /sys/class/net/*/device 2>/dev/null; "
            "echo '#rdma'; ls /sys/class/infiniband 2>/dev/null; true"
        )

    def process(self, output: list[str]) -> Interfaces:
        return parse_interfaces(output)

    @staticmethod
    def default() -> Interfaces:
        return Interfaces()


def parse_interfaces(lines: Sequence[str]) -> Interfaces:
    middle, last = lines.index("#physical"), lines.index("#rdma")
    rows = [row for row in json.loads("\n".join(lines[:middle]) or "[]") if row]
    physical = {line.split("/")[4] for line in lines[middle + 1 : last] if line}
    found: dict[str, Port] = {}
    for row in rows:
        name = row["ifname"]
        port = Port(name, row.get("permaddr") or row.get("address", ""), row.get("mtu", 0), name in physical)
        found |= {info["local"]: port for info in row.get("addr_info", ())}
    return Interfaces(found, sorted(line for line in lines[last + 1 :] if line))


def links(cluster: Cluster, node: Node) -> list[Link]:
    """The node's links, one a network that it is in."""
    return [link for network in cluster.networks if (link := cluster.link(node, network)).address]


def plan(cluster: Cluster, node: Node, found: Interfaces) -> Tree:
    """Each program's interface is the one that holds the declared address; validation compares it with the routes."""
    used = {purpose: found.name(link_for(cluster, node, purpose).address) for purpose in get_args(Purpose)}
    values = {
        "node": node,
        "used": used,
        "links": [{**link.model_dump(), "interface": found.name(link.address)} for link in links(cluster, node)],
        "adapters": found.adapters,
        "no_p2p": "; ".join(gpu.no_p2p_because for gpu in node.gpus if gpu.no_p2p_because),
    }
    files = [
        File(NETWORK_ENV, render("fabric", "network.env", values)),
        File(TASK_PROLOG, render("fabric", "task-prolog", values), "755"),
        *link_files(cluster, node, found),
    ]
    # A file with no name in it would only hide what validation says: that no interface has the address.
    has_nccl = bool(node.gpus and used["compute"])
    files += [File(NCCL_CONF, render("fabric", "nccl.conf", values))] if has_nccl else []
    files += [File(RDMA_LIMITS, render("fabric", "rdma.conf", {}))] if found.adapters else []
    absent = [] if has_nccl else [NCCL_CONF]
    absent += [] if found.adapters else [RDMA_LIMITS]
    return Tree(tuple(files), (Directory("/etc/klaster"),), tuple(absent))


def link_files(cluster: Cluster, node: Node, found: Interfaces) -> list[File]:
    """systemd's word on each port of the machine itself; a bond, a bridge and a VLAN are left to who made them."""
    files = []
    for link in links(cluster, node):
        port = found.by_address.get(link.address or "")
        if port and port.physical and port.mac:
            text = render("fabric", "link", {"link": link, "port": port})
            path = f"/etc/systemd/network/10-klaster-{port.name}.link"
            files.append(File(path, text, triggers=("initramfs",)))
    return files


def mtu_commands(cluster: Cluster, node: Node, found: Interfaces) -> list[str]:
    """Set a wrong MTU now, unless a job runs: some cards take the link down for it."""
    commands = []
    for link in links(cluster, node):
        port = found.by_address.get(link.address or "")
        if port and link.mtu and port.mtu != link.mtu:
            change = f"ip link set dev {shlex.quote(port.name)} mtu {link.mtu}"
            later = f"echo '{port.name} has MTU {port.mtu}, declared {link.mtu}: a job runs; deploy again later'"
            commands.append(f"if pgrep -x slurmstepd >/dev/null; then {later}; else {change}; fi")
    return commands


@operation()
def bring_links() -> Generator[StringCommand, None, None]:
    """The declared MTU on every link, and what RDMA needs where the node has an adapter."""
    found = host.get_fact(FabricFacts)
    commands = mtu_commands(site.cluster(), site.node(), found)
    if found.adapters:
        commands += install_commands(RDMA, host.get_fact(NodeState, packages=RDMA))
    if not commands:
        host.noop("links are as declared")
    for command in commands:
        yield sh(command)


def deploy() -> None:
    bring_links(name="Bring links to the declared MTU, RDMA where there is an adapter")
    configure(
        name="Write down which interface each program uses",
        plan=lambda: plan(site.cluster(), site.node(), host.get_fact(FabricFacts)),
        actions={"initramfs": "! command -v update-initramfs >/dev/null || update-initramfs -u"},
    )
