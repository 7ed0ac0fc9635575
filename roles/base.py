"""Make a bare machine a well-behaved node: names, time, limits, ssh, no suspend, the deploy account."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyinfra.api.facts import FactBase
from pyinfra.context import host

from inventory.hardware import HardwareLock
from inventory.model import DEPLOY_ACCOUNT, DEPLOY_HOME, DEPLOY_UID, Cluster, Node
from roles.facts import site
from roles.facts.gpu import REBOOT_DUE
from roles.operations.accounts import Account, accounts
from roles.operations.configure import configure
from roles.operations.notes import defer
from roles.operations.packages import packages
from roles.operations.settle import Unit
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

PACKAGES = ("chrony", "sudo", "python3", "iproute2", "iputils-ping", "procps", "ca-certificates", "curl", "nftables")

ACCOUNTS = (
    Account(DEPLOY_ACCOUNT, DEPLOY_UID, DEPLOY_HOME, "/bin/bash"),
    Account("munge", 902, "/nonexistent"),
    # Debian's fixed uid of slurm.
    Account("slurm", 64030, "/nonexistent"),
)

CONTAINERS = ("systemd-nspawn", "lxc", "lxc-libvirt", "docker", "podman", "container-other")
"""systemd-detect-virt's words for machines that share their clock with a host, and must not set it."""

BEGIN, END = "# klaster: begin", "# klaster: end"


@dataclass(frozen=True)
class Found:
    """What of the node as it is decides what it gets."""

    hosts: str = "127.0.0.1 localhost\n"
    by_password: tuple[str, ...] = ()
    """Local people who can only log in by password (no authorized key)."""
    reboot: str = ""
    """Why a reboot is due; empty if it is not."""


class Before(FactBase[Found]):
    """The node's /etc/hosts, its people without a key, and whether it waits for a reboot."""

    def command(self) -> str:
        return (
            "cat /etc/hosts; echo '#people'; "
            "getent shadow | awk -F: '$2 ~ /^[$]/ {print $1}' | while read -r n; do "
            'e=$(getent passwd "$n"); h=$(echo "$e" | cut -d: -f6); u=$(echo "$e" | cut -d: -f3); '
            '[ "$u" -ge 1000 ] && [ ! -s "$h/.ssh/authorized_keys" ] && echo "$n"; done; '
            f"echo '#reboot'; {REBOOT_DUE}; true"
        )

    def process(self, output: list[str]) -> Found:
        people, reboot = output.index("#people"), output.index("#reboot")
        hosts = "\n".join(output[:people]) + "\n"
        return Found(hosts, tuple(output[people + 1 : reboot]), " ".join(output[reboot + 1 :]))

    @staticmethod
    def default() -> Found:
        return Found()


def hosts_file(current: str, cluster: Cluster) -> str:
    """/etc/hosts with every node's short name at its declared address.

    Installers write `127.0.1.1 <own name>`, which makes ranks announce a loopback address: names of nodes are taken
    off every other line. Lines about other names stay as they are.
    """
    names = {node.name for node in cluster.nodes}
    kept, ours = [], False
    for line in current.splitlines():
        if line in (BEGIN, END):
            ours = line == BEGIN
        elif not ours:
            address, *rest = line.split("#")[0].split() or [""]
            others = [name for name in rest if name.split(".")[0] not in names]
            if not rest or len(others) == len(rest):
                kept.append(line)
            elif others:
                kept.append(" ".join([address, *others]))
    block = [f"{node.address} {node.name}" for node in cluster.nodes]
    return "\n".join([*kept, BEGIN, *block, END]) + "\n"


def plan(
    cluster: Cluster, node: Node, lock: HardwareLock, hosts_now: str, by_password: tuple[str, ...], key: str
) -> Tree:
    """Files of the base role on `node`; `by_password`: people whom a ban of passwords would lock out."""
    found = lock.nodes.get(node.name)
    contained = found is not None and found.virtualisation in CONTAINERS
    values = {"cluster": cluster, "node": node, "contained": contained, "by_password": by_password}
    files = [
        File("/etc/hosts", hosts_file(hosts_now, cluster)),
        File("/etc/hostname", f"{node.name}\n", triggers=("hostname",)),
        _rendered("chrony.conf", "/etc/chrony/chrony.conf", values, ("restart-chrony.service",)),
        _rendered("chrony.default", "/etc/default/chrony", values, ("restart-chrony.service",)),
        _rendered("limits.conf", "/etc/security/limits.d/50-klaster.conf", values),
        _rendered("sysctl.conf", "/etc/sysctl.d/50-klaster.conf", values, ("sysctl",)),
        _rendered(
            "logind.conf", "/etc/systemd/logind.conf.d/50-klaster.conf", values, ("restart-systemd-logind.service",)
        ),
        _rendered("sleep.conf", "/etc/systemd/sleep.conf.d/50-klaster.conf", values),
        _rendered("sshd.conf", "/etc/ssh/sshd_config.d/10-klaster.conf", values, ("sshd",)),
        _rendered("apt.conf", "/etc/apt/apt.conf.d/51-klaster", values),
        _rendered("sudoers", "/etc/sudoers.d/klaster", values, mode="440"),
    ]
    directories = [
        Directory(DEPLOY_HOME, "755", DEPLOY_ACCOUNT, DEPLOY_ACCOUNT),
        Directory(f"{DEPLOY_HOME}/.ssh", "700", DEPLOY_ACCOUNT, DEPLOY_ACCOUNT),
    ]
    if contained:
        unit = "/etc/systemd/system/chrony.service.d/50-klaster.conf"
        files.append(_rendered("chrony-contained.conf", unit, values, ("restart-chrony.service",)))
    if key:
        files.append(File(f"{DEPLOY_HOME}/.ssh/authorized_keys", key, "600", DEPLOY_ACCOUNT, DEPLOY_ACCOUNT))
    if "controller" in node.roles:
        directories.append(Directory(f"{DEPLOY_HOME}/certificates", "755"))
    return Tree(tuple(files), tuple(directories))


def _rendered(
    template: str, path: str, values: dict[str, object], triggers: tuple[str, ...] = (), mode: str = "644"
) -> File:
    return File(path, render("base", template, values), mode, triggers=triggers)


def public_key(cluster: Cluster) -> str:
    """The public half of the inventory's key, for the deploy account; an empty text where there is none."""
    path = Path(f"{cluster.ssh.key}.pub").expanduser() if cluster.ssh.key else None
    return path.read_text(encoding="utf-8") if path and path.is_file() else ""


def _plan_here() -> Tree:
    cluster = site.cluster()
    found = host.get_fact(Before)
    if found.reboot:
        defer("reboot", found.reboot, "pyinfra INVENTORY deploys/reboot.py -y")
    return plan(cluster, site.node(), site.lock(), found.hosts, found.by_password, public_key(cluster))


ACTIONS = {
    "hostname": "hostname -F /etc/hostname",
    "sysctl": "sysctl -q -e -p /etc/sysctl.d/50-klaster.conf || true",  # a container may not set some of them
    # A configuration that sshd refuses is taken away again: it must never lock anybody out.
    "sshd": "mkdir -p /run/sshd; sshd -t || { rm -f /etc/ssh/sshd_config.d/10-klaster.conf; exit 1; }; "
    "! systemctl is-active -q ssh || systemctl reload ssh",
    "restart-systemd-logind.service": "systemctl try-restart systemd-logind",
}


def deploy() -> None:
    packages(name="Install base packages", wanted=PACKAGES)
    accounts(name="Create the system accounts with fixed uids", wanted=ACCOUNTS)
    configure(
        name="Configure names, time, limits, ssh and sleep",
        plan=_plan_here,
        units=(Unit("chrony.service"), Unit("ssh.service")),
        actions=ACTIONS,
    )
