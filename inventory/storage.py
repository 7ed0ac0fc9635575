"""Storage of a cluster: folders that one node serves to the others by NFS, or that others provide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from inventory.errors import Mismatch, nearest
from inventory.spec import Spec
from inventory.words import AbsolutePath, Switch, Text

if TYPE_CHECKING:
    from inventory.model import Cluster, Node

Role = Literal["controller", "compute", "storage"]

SCRATCH = "/scratch"
SCRATCH_LABEL = "klaster-scratch"
"""Label of the file system on a scratch disk: what has it was made by this product."""
OWN_FOLDER = ".klaster"
"""Folder of the deploy account in each shared folder, for what validation writes and reads."""
PUBLIC = "public"
"""Folder beside those of the teams that everybody may read."""
_SYSTEM = ("/", "/etc", "/usr", "/var", "/boot", "/dev", "/proc", "/sys", "/run", "/root", "/bin", "/lib")


def block_device(text: str) -> str:
    """A disk or a partition of one."""
    if not text.startswith("/dev/") or text == "/dev/":
        raise ValueError(f'"{text}" is not a block device such as /dev/disk/by-id/nvme-…')
    return text


BlockDevice = Annotated[AbsolutePath, AfterValidator(block_device)]


class External(Spec):
    """Storage that others provide and mount (a NAS, Lustre, CephFS): only checked, by mount and file-system type."""

    path: AbsolutePath = Field(description="Where it is mounted.")
    fstype: Text | None = Field(default=None, description="File-system type the mount must have; unset: any.")
    on: tuple[Role, ...] = Field(default=("controller", "compute"), description="Roles whose nodes must have it.")


class Nfs(Spec):
    """A folder of the node with the role storage (the controller where none has it), mounted by the others."""

    kind: Literal["nfs"] = Field(default="nfs", description="Tells it from External; leave it out.")
    path: AbsolutePath = Field(description="The folder, the same on every node, e.g. /home.")
    device: BlockDevice | None = Field(
        default=None, description="Disk with a file system of yours that the server mounts there; unset: as it is."
    )
    teams: Switch = Field(
        default=False, description="Holds a folder a team, PATH/TEAM, and PATH/public, which all may read."
    )
    cache: Switch = Field(default=False, description="Keep what was read on each node's own disk (cachefilesd).")
    on: tuple[Role, ...] = Field(default=("controller", "compute"), description="Roles whose nodes mount it.")


def _which(value: object) -> str:
    """Tells the kinds apart, also when a cluster is read back from its text form."""
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "nfs" if kind == "nfs" else "external"


Storage = Annotated[Annotated[External, Tag("external")] | Annotated[Nfs, Tag("nfs")], Discriminator(_which)]


def mounted(cluster: Cluster, node: Node) -> tuple[Nfs, ...]:
    """The shared folders that a node mounts from the server; none on the server itself."""
    if node == cluster.storage_node:
        return ()
    return tuple(share for share in cluster.nfs if set(share.on) & set(node.roles))


def expected_mounts(cluster: Cluster, node: Node) -> list[tuple[str, str | None]]:
    """What must be mounted on a node, with the type of its file system; None for any."""
    external = [s for s in cluster.storage if isinstance(s, External) and set(s.on) & set(node.roles)]
    scratch: list[tuple[str, str | None]] = [(SCRATCH, "ext4")] if node.scratch_disk else []
    return [(s.path, s.fstype) for s in external] + [(s.path, "nfs4") for s in mounted(cluster, node)] + scratch


def clients(cluster: Cluster, share: Nfs) -> tuple[str, ...]:
    """Addresses of the nodes that mount it."""
    return tuple(node.address for node in cluster.nodes if share in mounted(cluster, node))


def is_server(cluster: Cluster, node: Node) -> bool:
    return bool(cluster.nfs) and node == cluster.storage_node


def check_storage(cluster: Cluster) -> None:
    """Cross-check the storage and what teams expect of it; Mismatch at the first misfit."""
    served = cluster.nfs
    _check_paths(cluster)
    servers = [node for node in cluster.nodes if "storage" in node.roles]
    if len(servers) > 1:
        names = " and ".join(node.name for node in servers)
        raise Mismatch(f'at most one node has the role "storage"; found {names}', servers[1].place)
    spaces = [share for share in served if share.teams]
    if len(spaces) > 1:
        raise Mismatch(f"both {spaces[0].path} and {spaces[1].path} hold the teams' folders", spaces[1].place)
    _check_teams(cluster, bool(spaces))
    for user in cluster.users:
        if user.quota_gib is not None and not served:
            raise Mismatch(f'user "{user.name}" has a quota and no Nfs(…) is declared that could hold it', user.place)


def _check_paths(cluster: Cluster) -> None:
    for share in cluster.nfs:
        if share.path in _SYSTEM:
            raise Mismatch(f"{share.path} belongs to each node's own system; share a folder as /data", share.place)
        for other in cluster.storage:
            if other.path.startswith(f"{share.path}/"):
                raise Mismatch(f"{other.path} lies in {share.path}; declare folders beside each other", other.place)
        for node in cluster.nodes:
            if share.device and node == cluster.storage_node and node.scratch_disk == share.device:
                raise Mismatch(f"{share.device} is both {share.path} and scratch of {node.name}", share.place)
            if node.scratch_disk and share.path == SCRATCH:
                raise Mismatch(f"{SCRATCH} is the scratch of {node.name}; it can't be shared too", share.place)


def _check_teams(cluster: Cluster, spaces: bool) -> None:
    names = [team.name for team in cluster.teams]
    known = (*names, *(user.name for user in cluster.users))
    for team in cluster.teams:
        if (team.quota_gib is not None or team.readers) and not spaces:
            text = f'team "{team.name}" has a quota or readers and no storage holds the teams\' folders'
            raise Mismatch(f"{text}; say Nfs(path=…, teams=True)", team.place)
        for reader in team.readers:
            if reader not in known:
                raise Mismatch(f'team "{team.name}": no team or user "{reader}" {nearest(reader, known)}', team.place)
    if spaces and PUBLIC in names:
        raise Mismatch(f'a team can\'t be called "{PUBLIC}": its folder is for everybody')
