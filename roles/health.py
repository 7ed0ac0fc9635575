"""Put the light health check on compute nodes; Slurm starts it (slurm.conf), and it drains by the one policy."""

from __future__ import annotations

import json
from pathlib import Path

from inventory import drain_policy
from inventory.hardware import SIMULATED, HardwareLock
from inventory.model import DEPLOY_ACCOUNT, Cluster, Node
from inventory.storage import expected_mounts
from roles.facts import site
from roles.operations.configure import configure
from roles.operations.template import FILES, render
from roles.operations.tree import Directory, File, Tree

FOLDER = "/usr/local/lib/klaster/health"
PROGRAMS = ("health.py", "health_checks.py")
DISKS = ("/", "/tmp", "/var")  # noqa: S108 - looked at, not written


def questions(cluster: Cluster, node: Node, lock: HardwareLock) -> dict[str, object]:
    """What the check compares this node with."""
    found = lock.nodes[node.name]
    links = [cluster.link(node, network) for network in cluster.networks]
    return {
        "node": node.name,
        "disks": DISKS,
        "storage": [{"path": path, "fstype": fstype} for path, fstype in expected_mounts(cluster, node)],
        "links": [link.model_dump(include={"address", "mtu", "speed_gbps"}) for link in links if link.address],
        "cpus": found.cpus,
        "memory_mib": found.memory_mib,
        "gpus": sum(not gpu.uuid.startswith(SIMULATED) for gpu in found.gpus),
        "venv": cluster.training.venv if cluster.training.source != "debian" else "",
        "drain_share": cluster.slurm.drain_share,
    }


def plan(cluster: Cluster, node: Node, lock: HardwareLock) -> Tree:
    """The program, the policy beside it, what it asks, and the script that Slurm starts."""
    programs = {name: (FILES / "health" / name).read_text(encoding="utf-8") for name in PROGRAMS}
    policy = Path(drain_policy.__file__).read_text(encoding="utf-8")
    asked = json.dumps(questions(cluster, node, lock), indent=1, sort_keys=True) + "\n"
    return Tree(
        (
            *(File(f"{FOLDER}/{name}", program) for name, program in programs.items()),
            File(f"{FOLDER}/drain_policy.py", policy),
            File("/etc/klaster/health.json", asked),
            File(f"{FOLDER}/check", render("health", "check", {"folder": FOLDER, "account": DEPLOY_ACCOUNT}), "755"),
        ),
        (Directory("/etc/klaster"), Directory(str(Path(FOLDER).parent)), Directory(FOLDER)),
    )


def deploy() -> None:
    """Before Slurm's configuration names it: a job must never find a prolog that is not there."""
    if "compute" in site.node().roles and site.cluster().slurm.health:
        configure(
            name="Install the health check",
            plan=lambda: plan(site.cluster(), site.node(), site.lock()),
        )
