"""Slurm, configless: one slurm.conf on the controller, and quarantine for what is not certified."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.drain_policy import drain_reason
from inventory.hardware import FoundNode, HardwareLock
from inventory.model import Cluster, Node
from inventory.node_part import node_part_sha256
from inventory.shares import allowed_accounts, partitions
from roles.facts import site
from roles.facts.confinement import with_cgroups
from roles.facts.slurm import Certified, SlurmNodes, SlurmState
from roles.operations.barrier import barrier
from roles.operations.before import remember
from roles.operations.configure import configure, sh
from roles.operations.packages import packages
from roles.operations.settle import Unit
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

QUARANTINE = drain_reason("quarantine", "uncertified", "none")
REGISTER_DEADLINE_S = 60
HEALTH_CHECK = "/usr/local/lib/klaster/health/check"
"""Put there by the role health, before Slurm looks for it."""
DROP_INS = "/etc/systemd/system/slurmd.service.d"
NOT_YET = f"{DROP_INS}/10-klaster-not-yet.conf"
# Debian's package starts slurmd, which without options waits 90 s for a controller that it can't know: not before ours.
HOLD_SLURMD = "\n".join(
    (
        *remember((NOT_YET,)),
        f"mkdir -p {DROP_INS} && printf '[Unit]\\nConditionPathExists={DROP_INS}/50-klaster.conf\\n' > {NOT_YET}",
    )
)


@dataclass(frozen=True)
class SlurmNode:
    """One NodeName line, from the inventory and the hardware lock."""

    name: str
    address: str
    found: FoundNode
    gpus: int
    memory_mib: int

    @property
    def autodetect(self) -> str:
        """How Slurm learns which cores are beside a card: by the kernel's tables, from Slurm 24.11 on (Debian 13)."""
        return "nvidia" if (self.found.distribution, self.found.release) == ("debian", "13") else ""


def wanted_packages(node: Node) -> tuple[str, ...]:
    controller = ("slurmctld",) if "controller" in node.roles else ()
    compute = ("slurmd",) if "compute" in node.roles else ()
    return ("slurm-client", *controller, *compute)


def slurm_nodes(cluster: Cluster, lock: HardwareLock) -> tuple[SlurmNode, ...]:
    """The compute nodes whose hardware is known; a node that was never reached is not in Slurm yet."""
    return tuple(
        SlurmNode(
            name=node.name,
            address=node.address,
            found=lock.nodes[node.name],
            gpus=len(lock.nodes[node.name].gpus),
            memory_mib=int(lock.nodes[node.name].memory_mib * cluster.slurm.memory_share),
        )
        for node in cluster.compute_nodes
        if node.name in lock.nodes
    )


def controller_plan(cluster: Cluster, lock: HardwareLock) -> Tree:
    """slurm.conf, cgroup.conf and gres.conf on the controller; slurmd fetches them from there."""
    nodes = slurm_nodes(cluster, lock)
    values = {
        "cluster": cluster,
        "nodes": nodes,
        "health_check": HEALTH_CHECK,
        "cgroups": with_cgroups(node.found for node in nodes),
        "cpusets": all("cpuset" in node.found.cgroup_controllers for node in nodes),
        "gpus": any(node.gpus for node in nodes),
        "known": {node.name for node in nodes},
        "memory_per_cpu_mib": min((node.memory_mib // node.found.cpus for node in nodes), default=1024),
        "partitions": [(partition, allowed_accounts(cluster, partition)) for partition in partitions(cluster)],
    }
    names = ("slurm.conf", "cgroup.conf", *(("gres.conf",) if values["gpus"] else ()))
    files = tuple(
        File(f"/etc/slurm/{name}", render("slurm", name, values), triggers=("reconfigure-slurm",)) for name in names
    )
    directories = (
        Directory("/etc/slurm"),
        Directory("/var/lib/slurm", "755", "slurm", "slurm"),
        Directory("/var/lib/slurm/slurmctld", "700", "slurm", "slurm"),
        Directory("/var/log/slurm", "755", "slurm", "slurm"),
    )
    return Tree(files, directories, () if values["gpus"] else ("/etc/slurm/gres.conf",))


def compute_plan(cluster: Cluster, node: Node) -> Tree:
    """slurmd's options: where the configuration is; a controller that computes has it on its own disk."""
    values = {"cluster": cluster, "local": "controller" in node.roles}
    return Tree(
        files=(
            File(
                "/etc/default/slurmd", render("slurm", "slurmd.default", values), triggers=("restart-slurmd.service",)
            ),
            File(
                f"{DROP_INS}/50-klaster.conf",
                render("slurm", "slurmd.service.conf", values),
                triggers=("restart-slurmd.service",),
            ),
        ),
        directories=(Directory("/var/lib/slurm/slurmd"), Directory("/var/log/slurm", "755", "slurm", "slurm")),
        absent=(NOT_YET,),
    )


def is_certified(cluster: Cluster, lock: HardwareLock, name: str, found: Certified | None) -> bool:
    """The node's certificate is about the hardware it has and about what the inventory says of it."""
    hardware = lock.nodes.get(name)
    node = next((node for node in cluster.nodes if node.name == name), None)
    if found is None or hardware is None or node is None:
        return False
    declared = found.inventory_sha256 in ("", node_part_sha256(cluster, node))
    return declared and found.hardware_sha256 == hardware.sha256


def quarantine_commands(cluster: Cluster, lock: HardwareLock, found: SlurmState) -> list[str]:
    """Drain each node without a certificate for what it is now; drains that are there already stay as they are."""
    commands = []
    for name, node in sorted(found.nodes.items()):
        certified = is_certified(cluster, lock, name, found.certified.get(name))
        if not certified and "DRAIN" not in node.flags:
            commands.append(
                f"scontrol update NodeName={shlex.quote(name)} State=DRAIN Reason={shlex.quote(QUARANTINE)}"
            )
    return commands


@operation()
def quarantine() -> Generator[str, None, None]:
    """On the controller: what is not certified takes no job."""
    commands = quarantine_commands(site.cluster(), site.lock(), host.get_fact(SlurmNodes))
    if not commands:
        host.noop("every node is certified or drained")
    yield from commands


@operation()
def registered() -> Generator[StringCommand, None, None]:
    """On the controller: verify that slurmd of every node this run reached has registered."""
    reached = {other.name for other in host.state.inventory.get_active_hosts()} - {
        h.name for h in host.state.failed_hosts
    }
    found = host.get_fact(SlurmNodes)
    waiting = sorted(name for name, node in found.nodes.items() if name in reached and not node.registered)
    if not waiting:
        host.noop("every slurmd is registered")
        return
    names = shlex.quote(",".join(waiting))
    check = f"scontrol show nodes -o {names} | grep -cE 'State=[A-Z+]*(NOT_RESPONDING|UNKNOWN|DOWN)|State=[A-Z+]*[*]'"
    yield sh(
        f'n=0; while [ "$({check})" != 0 ]; do n=$((n+1)); if [ "$n" -ge {REGISTER_DEADLINE_S} ]; then '
        f"echo 'slurmd did not register within {REGISTER_DEADLINE_S} s:' >&2; sinfo -N -l >&2; exit 1; fi; "
        "sleep 1; done"
    )


def deploy() -> None:
    node = site.node()
    controller, compute = "controller" in node.roles, "compute" in node.roles
    packages(name="Install Slurm", wanted=wanted_packages(node), first=(HOLD_SLURMD,) if compute else ())
    if controller:
        configure(
            name="Run slurmctld",
            plan=lambda: controller_plan(site.cluster(), site.lock()),
            units=(Unit("slurmctld.service"),),
            actions={"reconfigure-slurm": "! systemctl is-active -q slurmctld || scontrol reconfigure"},
        )
        quarantine(name="Quarantine nodes without a certificate")
    barrier(name="The controller runs")
    if compute:
        configure(
            name="Run slurmd",
            plan=lambda: compute_plan(site.cluster(), site.node()),
            units=(Unit("slurmd.service"),),
        )
    barrier(name="slurmd runs everywhere")
    if controller:
        registered(name="Wait until every slurmd is registered")
