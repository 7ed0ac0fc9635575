"""Let nothing in from outside the cluster's networks but ssh and what the inventory opens; never lock a person out."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from dataclasses import dataclass

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient.client import SSHClient
from pyinfra.context import host

from inventory.model import Cluster, Node
from roles.facts import site
from roles.operations.configure import configure, sh
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


@dataclass(frozen=True)
class Openings:
    """What may come in."""

    ssh_port: int
    networks: tuple[str, ...]
    open_ports: tuple[int, ...]


def openings(cluster: Cluster, node: Node) -> Openings:
    """The cluster's own and trusted networks may reach everything; the world ssh and, on the controller, more."""
    networks = (*(network.cidr for network in cluster.networks), *cluster.firewall.trusted)
    more = cluster.firewall.open_ports if "controller" in node.roles else ()
    return Openings(cluster.ssh.port, networks, tuple(sorted(more)))


def plan(cluster: Cluster, node: Node) -> Tree:
    values = {"openings": openings(cluster, node), "rules": RULES}
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
