"""Containers and the registry of a cluster, as an inventory declares them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from inventory.errors import Mismatch, nearest
from inventory.spec import Spec
from inventory.words import AbsolutePath, HostName, IndexUrl, Port, Switch

if TYPE_CHECKING:
    from inventory.model import Cluster

FIRST_SUBORDINATE_ID, SUBORDINATE_IDS = 100_000, 65_536
"""A person's range of ids inside containers follows from the uid, so that it's the same on every node."""


def first_subordinate_id(uid: int, first_uid: int) -> int:
    """Start of the range of `SUBORDINATE_IDS` ids that a person's containers may use; above 10⁵, without overlap."""
    return FIRST_SUBORDINATE_ID + (uid - first_uid) * SUBORDINATE_IDS


class Containers(Spec):
    """Rootless podman on every compute node, GPUs through CDI."""

    storage: AbsolutePath = Field(
        default="/var/lib/klaster-containers",
        description="Folder on each node's own disk for people's images and containers; never on NFS.",
    )
    docker: Switch = Field(default=False, description="Docker too. Its socket is root's: only for administrators.")
    slurm_oci: Switch = Field(default=True, description="srun --container runs an image, without root.")


class Registry(Spec):
    """A container registry behind TLS of the cluster's CA; pushing is for administrators, pulling for all."""

    node: HostName | None = Field(default=None, description="The node it runs on; unset: the controller.")
    port: Port = Field(default=5000, description="Its port for https.")
    folder: AbsolutePath = Field(default="/var/lib/klaster-registry", description="Where the images are kept.")
    cache_of: IndexUrl | None = Field(
        default=None, description="Another registry whose images it also fetches and keeps (Docker Hub limits pulls)."
    )
    cache_port: Port = Field(default=5002, description="Port of that cache; it gives what the other one gives.")
    keep_untagged: Switch = Field(default=False, description="Leave out the weekly removal of images without a tag.")


def registry_node(cluster: Cluster) -> str:
    """Name of the node that runs the registry; the cluster must have one."""
    assert cluster.registry is not None
    return cluster.registry.node or cluster.controller.name


def check_containers(cluster: Cluster) -> None:
    """Mismatch where registry and containers do not fit the nodes and storage of the cluster."""
    if cluster.registry and cluster.registry.node:
        names = [node.name for node in cluster.nodes]
        if cluster.registry.node not in names:
            text = f'Registry: no node "{cluster.registry.node}" {nearest(cluster.registry.node, names)}'
            raise Mismatch(text, cluster.registry.place)
    if cluster.registry and cluster.registry.port == cluster.registry.cache_port:
        raise Mismatch("Registry: port and cache_port must differ", cluster.registry.place)
    if cluster.containers is None:
        return
    for storage in cluster.storage:
        path, shared = cluster.containers.storage, storage.path.rstrip("/") + "/"
        if f"{path}/".startswith(shared):
            raise Mismatch(
                f"Containers: storage {path} lies in the shared storage {storage.path}, where rootless containers do "
                "not work; take a folder on each node's own disk",
                cluster.containers.place,
            )
