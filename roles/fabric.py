"""Which interface NCCL, gloo, Slurm and NFS use on each node, written down; RDMA where there is an adapter."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.model import Cluster, Node
from roles.facts import site
from roles.facts.node_state import NodeState
from roles.operations.configure import configure, sh
from roles.operations.packages import install_commands
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

RDMA = ("rdma-core", "ibverbs-providers", "ibverbs-utils", "infiniband-diags", "perftest")
NCCL_CONF, NETWORK_ENV = "/etc/nccl.conf", "/etc/klaster/network.env"
RDMA_LIMITS = "/etc/security/limits.d/51-klaster-rdma.conf"


@dataclass
class Interfaces:
    """IPv4 address → interface, and RDMA adapters (InfiniBand or RoCE)."""

    by_address: dict[str, str] = field(default_factory=dict)
    adapters: list[str] = field(default_factory=list)


class FabricFacts(FactBase[Interfaces]):
    """Interfaces with their addresses, and RDMA adapters, in one round trip."""

    def command(self) -> str:
        return "ip -j -4 address show; echo; echo '#rdma'; ls /sys/class/infiniband 2>/dev/null; true"

    def process(self, output: list[str]) -> Interfaces:
        return parse_interfaces(output)

    @staticmethod
    def default() -> Interfaces:
        return Interfaces()


def parse_interfaces(lines: Sequence[str]) -> Interfaces:
    split = lines.index("#rdma")
    rows = json.loads("\n".join(lines[:split]) or "[]")
    found = {info["local"]: row["ifname"] for row in rows if row for info in row.get("addr_info", ())}
    return Interfaces(found, sorted(line for line in lines[split + 1 :] if line))


def plan(cluster: Cluster, node: Node, found: Interfaces) -> Tree:
    """nccl.conf by the interface that holds the node's declared address; validation pins its runs to the same one."""
    interface = found.by_address.get(node.address, "")
    links = []
    for network in cluster.networks:
        link = cluster.link(node, network)
        if link.address:
            links.append({**link.model_dump(), "interface": found.by_address.get(link.address, "")})
    reasons = [gpu.no_p2p_because for gpu in node.gpus if gpu.no_p2p_because]
    values = {
        "node": node,
        "interface": interface,
        "links": links,
        "adapters": found.adapters,
        "no_p2p": "; ".join(reasons),
    }
    if not interface:
        return Tree()  # validation names the missing address; a file with no name in it would only hide that
    files = [File(NETWORK_ENV, render("fabric", "network.env", values))]
    files += [File(NCCL_CONF, render("fabric", "nccl.conf", values))] if node.gpus else []
    files += [File(RDMA_LIMITS, render("fabric", "rdma.conf", {}))] if found.adapters else []
    absent = [] if node.gpus else [NCCL_CONF]
    absent += [] if found.adapters else [RDMA_LIMITS]
    return Tree(tuple(files), (Directory("/etc/klaster"),), tuple(absent))


@operation()
def rdma() -> Generator[StringCommand, None, None]:
    """Install what RDMA needs where the node has an adapter."""
    if not host.get_fact(FabricFacts).adapters:
        host.noop("no RDMA adapter")
        return
    commands = install_commands(RDMA, host.get_fact(NodeState, packages=RDMA))
    if not commands:
        host.noop("RDMA is installed")
    for command in commands:
        yield sh(command)


def deploy() -> None:
    if site.cluster().gpu_stack is None:
        return
    rdma(name="Install RDMA where there is an adapter")
    configure(
        name="Write down which interface each program uses",
        plan=lambda: plan(site.cluster(), site.node(), host.get_fact(FabricFacts)),
    )
