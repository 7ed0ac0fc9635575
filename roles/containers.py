"""Rootless podman on the nodes: storage on their own disk, ids from the inventory, GPUs through CDI."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.facts import FactBase
from pyinfra.context import host

from inventory.containers import SUBORDINATE_IDS, first_subordinate_id
from inventory.hardware import FoundNode
from inventory.model import Cluster, Node
from inventory.people import FIRST_PERSON_UID
from roles.facts import site
from roles.operations.configure import configure
from roles.operations.packages import packages
from roles.operations.settle import Unit
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

# Without recommended packages podman lacks what rootless needs: the two id programs, a network, an init.
PODMAN = ("podman", "buildah", "skopeo", "crun", "uidmap", "passt", "fuse-overlayfs", "catatonit", "netavark",
          "aardvark-dns")  # fmt: skip
DOCKER = ("docker.io",)
CDI = ("klaster-cdi.service", "klaster-cdi.path")


class SubordinateIds(FactBase[tuple[tuple[str, ...], tuple[str, ...]]]):
    """Lines of /etc/subuid and /etc/subgid."""

    def command(self) -> str:
        return "cat /etc/subuid 2>/dev/null; echo '#subgid'; cat /etc/subgid 2>/dev/null; true"

    def process(self, output: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        split = output.index("#subgid")
        return tuple(output[:split]), tuple(output[split + 1 :])

    @staticmethod
    def default() -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (), ()


def subordinate_ids(cluster: Cluster, current: Sequence[str]) -> str:
    """The file with a range for each person of the inventory; other local accounts keep theirs."""
    names = {user.name for user in cluster.users}
    kept = [line for line in current if line.strip() and line.partition(":")[0] not in names]
    ours = [f"{u.name}:{first_subordinate_id(u.uid, FIRST_PERSON_UID)}:{SUBORDINATE_IDS}" for u in cluster.users]
    return "".join(f"{line}\n" for line in [*kept, *ours])


def wanted_packages(cluster: Cluster) -> tuple[str, ...]:
    assert cluster.containers is not None
    return (*PODMAN, *(DOCKER if cluster.containers.docker else ()))


def has_cdi(cluster: Cluster, node: Node) -> bool:
    """NVIDIA's container toolkit is only in NVIDIA's repository."""
    return bool(node.gpus and cluster.gpu_stack and cluster.gpu_stack.set.container_toolkit)


def plan(
    cluster: Cluster, node: Node, found: FoundNode | None, ids: tuple[Sequence[str], Sequence[str]] = ((), ())
) -> Tree:
    """Files of the role on `node`; `ids`: what /etc/subuid and /etc/subgid hold now."""
    containers = cluster.containers
    assert containers is not None
    shm_mib = max(64, (found.memory_mib if found else 4096) // 2)
    files = [
        File("/etc/containers/storage.conf", render("containers", "storage.conf", {"storage": containers.storage})),
        File(
            "/etc/containers/containers.conf.d/klaster.conf",
            render("containers", "containers.conf", {"shm_mib": shm_mib}),
        ),
        File("/etc/subuid", subordinate_ids(cluster, ids[0])),
        File("/etc/subgid", subordinate_ids(cluster, ids[1])),
    ]
    if has_cdi(cluster, node):
        files += [_unit(name, "cdi") for name in CDI]
    if containers.docker:
        files.append(
            File(
                "/etc/docker/daemon.json", render("containers", "daemon.json", {}), triggers=("restart-docker.service",)
            )
        )
    if containers.slurm_oci and "controller" in node.roles:
        files.append(File("/etc/slurm/oci.conf", render("containers", "oci.conf", {}), triggers=("reconfigure-oci",)))
    # As /tmp: everybody makes a folder there, and nobody removes another's.
    return Tree(tuple(files), (Directory("/etc/containers"), Directory(containers.storage, "1777")))


def _unit(name: str, trigger: str) -> File:
    template = name.removeprefix("klaster-")
    return File(f"/etc/systemd/system/{name}", render("containers", template, {}), triggers=(trigger,))


def _plan_here() -> Tree:
    return plan(site.cluster(), site.node(), site.lock().nodes.get(host.name), host.get_fact(SubordinateIds))


def deploy() -> None:
    cluster = site.cluster()
    if cluster.containers is None:
        return
    packages(name="Install rootless containers", wanted=wanted_packages(cluster))
    configure(
        name="Configure rootless containers",
        plan=_plan_here,
        units=(Unit("docker.service"),) if cluster.containers.docker else (),
        disturbs="jobs here" if cluster.containers.docker else "nobody",  # a restart ends its containers
        actions={
            "cdi": f"systemctl daemon-reload && systemctl enable --quiet --now {' '.join(CDI)}",
            "reconfigure-oci": "! systemctl is-active -q slurmctld || scontrol reconfigure",
        },
    )
