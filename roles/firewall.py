"""Let in ssh, what roles need from the nodes that need it, and what the inventory opens; never lock a person out."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Literal

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient.client import SSHClient
from pyinfra.context import host

from inventory.containers import registry_node
from inventory.model import Cluster, Ldap, Node
from inventory.storage import is_server
from roles.facts import site
from roles.operations.configure import configure, sh
from roles.operations.notes import differs
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

RULES = "/etc/klaster/firewall.nft"
APPLIED = "/var/lib/klaster/firewall.applied"
"""Hashes of the rules file and of the kernel's listing after it was applied: a hand-made change shows."""
REVERT = "klaster-firewall-revert"
REVERT_AFTER_S = 60
_LISTING = "nft --stateless list table inet klaster 2>/dev/null | sha256sum"
_HASHES = f"{{ sha256sum < {RULES}; {_LISTING}; }} | cut -c1-64 | tr '\\n' ' '"


class Applied(FactBase[bool]):
    """Whether the kernel holds what the rules file says, as it was when it was applied."""

    def command(self) -> str:
        return f'[ -f {RULES} ] && [ "$({_HASHES})" = "$(cat {APPLIED} 2>/dev/null)" ] && echo yes; true'

    def process(self, output: list[str]) -> bool:
        return output == ["yes"]

    @staticmethod
    def default() -> bool:
        return False


Group = Literal["nodes", "compute", "controller", "nobody"]
"""Whose addresses may come in; `nobody` closes a port to the cluster, too."""
RANK_PORTS = "1024-65535"
"""A person's training takes any port for its rendezvous, and any for its connections."""
FREE_PORTS = "32768-63000"
"""What the kernel hands out (32768–60999: certification, connections of ranks) and Slurm's srun (60001–63000)."""


@dataclass(frozen=True)
class Service:
    """One line of the table: on which nodes, on which ports, for whose addresses."""

    name: str
    servers: Group
    ports: str
    clients: Group
    protocol: Literal["tcp", "udp"] = "tcp"


def services(cluster: Cluster) -> tuple[Service, ...]:
    """Everything that one node may ask of another, in the order in which it is decided."""
    slurm, found = cluster.slurm, []
    found.append(Service("chrony", "controller", "123", "nodes", "udp"))
    found.append(Service("slurmctld", "controller", str(slurm.controller_port), "nodes"))
    found.append(Service("slurmd", "compute", str(slurm.node_port), "nodes"))
    if isinstance(cluster.people, Ldap):
        found.append(Service("slapd", "controller", "636", "nodes"))
    if cluster.monitoring is not None:
        found.append(Service("node_exporter", "nodes", "9100", "controller"))
        found.append(Service("journals", "controller", "19532", "nodes"))
        for name, port in (("Prometheus", "9090"), ("Alertmanager", "9093"), ("exporter", "9180")):
            found.append(Service(name, "controller", port, "nobody"))
        if cluster.monitoring.grafana is not None:
            found.append(Service("Grafana", "controller", str(cluster.monitoring.grafana.port), "nobody"))
    return (
        *found,
        Service("ranks", "compute", RANK_PORTS, "compute"),
        Service("ranks", "compute", RANK_PORTS, "compute", "udp"),
        Service("certification and srun", "nodes", FREE_PORTS, "nodes"),
    )


def members(cluster: Cluster) -> dict[Group, tuple[str, ...]]:
    """Every address, in all networks, of the nodes of each group."""

    def addresses(nodes: Iterable[Node]) -> tuple[str, ...]:
        every = (address for node in nodes for address in (node.address, *(link.address for link in node.links)))
        return tuple(dict.fromkeys(address for address in every if address))

    return {
        "nodes": addresses(cluster.nodes),
        "compute": addresses(cluster.compute_nodes),
        "controller": addresses([cluster.controller]),
    }


def rules(cluster: Cluster, node: Node) -> list[str]:
    """nft's lines for what other nodes may ask of `node`; what a service closes, no later line opens."""
    here = {"nodes", *node.roles}
    lines = []
    for one in services(cluster):
        if one.servers in here:
            if one.clients != "nobody":
                lines.append(f'ip saddr @{one.clients} {one.protocol} dport {one.ports} accept comment "{one.name}"')
            if "-" not in one.ports and one.clients != "nodes":
                lines.append(f'{one.protocol} dport {one.ports} ip saddr @nodes drop comment "{one.name}"')
    if cluster.registry is not None and node.name == registry_node(cluster):
        ports = [cluster.registry.port, *([cluster.registry.cache_port] if cluster.registry.cache_of else [])]
        lines = [*(f'ip saddr @nodes tcp dport {port} accept comment "registry"' for port in ports), *lines]
    if is_server(cluster, node):
        lines = ['ip saddr @nodes tcp dport 2049 accept comment "NFS"', *lines]
    return lines


def plan(cluster: Cluster, node: Node) -> Tree:
    values = {
        "groups": members(cluster),
        "node_rules": rules(cluster, node),
        "open_ports": sorted(cluster.firewall.open_ports) if "controller" in node.roles else (),
        "rules": RULES,
        "ssh_port": cluster.ssh.port,
        "trusted": cluster.firewall.trusted,
    }
    return Tree(
        files=(
            File(RULES, render("firewall", "firewall.nft", values), "600"),
            File(
                "/etc/systemd/system/klaster-firewall.service",
                render("firewall", "klaster-firewall.service", values),
                triggers=("enable-firewall",),
            ),
        ),
        directories=(Directory("/etc/klaster"),),
    )


def _new_connection() -> None:
    """Log in a second time, as the next person would; an established connection proves nothing."""
    if not isinstance(host.connector, SSHConnector):
        return  # this machine itself: there is no connection to lose
    kwargs = host.connector.make_paramiko_kwargs()
    hostname = kwargs.pop("hostname")
    client = SSHClient()
    try:
        client.connect(hostname, **{**kwargs, "timeout": 15})  # type: ignore[no-untyped-call]
    finally:
        client.close()


@operation()
def apply_rules() -> Generator[PyinfraCommand, None, None]:
    """Load the rules; a timer takes them back unless a new ssh connection arrives within its time."""
    if host.get_fact(Applied):
        host.noop("the rules are loaded")
        return
    differs("rules in the kernel", "others", f"those of {RULES}")
    before = "/var/lib/klaster/firewall.before"
    undo = f"nft delete table inet klaster; [ ! -s {before} ] || nft -f {before}"
    yield sh(
        f"set -e; nft -c -f {RULES}; nft list table inet klaster > {before} 2>/dev/null || : > {before}; "
        f"systemctl stop {REVERT}.timer 2>/dev/null || true; systemctl reset-failed {REVERT} 2>/dev/null || true; "
        f"systemd-run --quiet --unit={REVERT} --on-active={REVERT_AFTER_S} /bin/sh -c {shlex.quote(undo)}; "
        f"nft -f {RULES}"
    )
    yield FunctionCommand(_new_connection, (), {})
    yield sh(f"systemctl stop {REVERT}.timer && {_HASHES} > {APPLIED}")


@operation()
def open_up() -> Generator[PyinfraCommand, None, None]:
    """Take the rules away where the inventory says that there is to be no firewall."""
    if not host.get_fact(Applied):
        host.noop("no rules of ours are loaded")
        return
    yield sh(f"systemctl disable --now klaster-firewall; nft delete table inet klaster; rm -f {APPLIED}")


def deploy() -> None:
    cluster = site.cluster()
    if not cluster.firewall.enabled:
        open_up(name="Leave the firewall off")
        return
    configure(
        name="Write the firewall's rules",
        plan=lambda: plan(site.cluster(), site.node()),
        actions={"enable-firewall": "systemctl daemon-reload && systemctl enable --quiet klaster-firewall.service"},
    )
    apply_rules(name="Load the rules, undone unless a new ssh connection arrives")
