"""Shared folders by NFS, local scratch, and the folders of teams; nothing is ever formatted over, shrunk or removed."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

from pyinfra.context import host

from inventory.model import Cluster, Nfs, Node
from inventory.storage import SCRATCH, SCRATCH_LABEL, clients, is_server, mounted
from roles.facts import site
from roles.facts.quotas import QuotasHere, QuotaState
from roles.facts.storage import UNITS, StorageHere, StorageState
from roles.operations.barrier import barrier
from roles.operations.configure import configure
from roles.operations.disks import scratch_disk, stop_if, unmount
from roles.operations.packages import packages
from roles.operations.settle import Unit
from roles.operations.spaces import cannot, folders, has_quotas, quotas, spaces, wanted_quotas
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

CLIENT_OPTIONS = ("vers=4.2", "proto=tcp", "hard", "retry=0", "nosuid", "nodev", "_netdev")
"""hard: a program waits for a dead server instead of losing data; retry=0: klaster-storage.service tries again."""
LOCAL_OPTIONS = ("nosuid", "nodev", "noatime")
OPTIONS = "Options="
MOUNTED_WITHIN_S = 90
WAITS = "klaster-storage.service"
SLURMD_WAITS = f"{UNITS}/slurmd.service.d/40-klaster-storage.conf"
WAITING = (
    "/usr/local/sbin/klaster-storage",
    f"{UNITS}/multi-user.target.wants/{WAITS}",
    f"{UNITS}/{WAITS}",
    SLURMD_WAITS,
)
"""What waits for the mounts, and goes with the last of them."""


def wanted_packages(cluster: Cluster, node: Node) -> tuple[str, ...]:
    server = ("nfs-kernel-server", "acl", "quota") if is_server(cluster, node) else ()
    client = ("nfs-common",) if mounted(cluster, node) else ()
    cache = ("cachefilesd",) if any(share.cache for share in mounted(cluster, node)) else ()
    scratch = ("e2fsprogs",) if node.scratch_disk else ()
    return (*server, *client, *cache, *scratch)


# --- plans -------------------------------------------------------------------------------------------------------


def unit_name(path: str) -> str:
    """The name that systemd wants for the mount unit of a path (systemd-escape --path)."""
    escaped = "".join(c if c.isalnum() or c in "_./" else f"\\x{ord(c):02x}" for c in path.strip("/"))
    return escaped.replace("/", "-") + ".mount"


def server_plan(cluster: Cluster) -> Tree:
    """What is exported to whom, and the disks that are mounted for it."""
    limited = has_quotas(cluster)
    restart = ("restart-nfs-server.service",)
    values = {
        "exports": [(share, clients(cluster, share)) for share in cluster.nfs if clients(cluster, share)],
        "threads": max(8, 2 * len(cluster.nodes)),
        "paths": [share.path for share in cluster.nfs],
    }
    files = [
        File("/etc/exports.d/klaster.exports", render("storage", "exports", values), triggers=("export",)),
        File("/etc/nfs.conf.d/klaster.conf", render("storage", "nfs.conf", values), triggers=restart),
        File(
            f"{UNITS}/nfs-server.service.d/50-klaster.conf",
            render("storage", "nfs-server.service.conf", values),
            triggers=restart,
        ),
    ]
    for share in cluster.nfs:
        if share.device:
            options = (*LOCAL_OPTIONS, *(("usrquota", "grpquota") if limited else ()))
            files.append(_disk_unit(share.path, share.device, options, server=True))
    return Tree(tuple(files), (Directory("/etc/exports.d"), Directory("/etc/nfs.conf.d")))


def _disk_unit(path: str, device: str, options: tuple[str, ...], *, server: bool) -> File:
    values = {
        "what": f"{path} on a disk of this node",
        "device": device,
        "path": path,
        "options": ",".join(options),
        "server": server,
    }
    triggers = ("mount-disks",) if server else (f"restart-{WAITS}",)
    return File(f"{UNITS}/{unit_name(path)}", render("storage", "disk.mount", values), triggers=triggers)


def client_plan(cluster: Cluster, node: Node, found: StorageState) -> Tree:
    """Mount units, and a service that starts them until all are there; slurmd waits for it."""
    shares = mounted(cluster, node)
    files = [_nfs_unit(cluster, share) for share in shares]
    if node.scratch_disk:
        files.append(_disk_unit(SCRATCH, f"/dev/disk/by-label/{SCRATCH_LABEL}", LOCAL_OPTIONS, server=False))
    units = [PurePosixPath(file.path).name for file in files]
    if units:
        values = {"units": units}
        restart = (f"restart-{WAITS}",)
        files.append(
            File(
                WAITING[0],
                render("storage", "klaster-storage", values),
                "755",
                triggers=restart,
            )
        )
        files.append(File(f"{UNITS}/{WAITS}", render("storage", "klaster-storage.service", values), triggers=restart))
    if units and "compute" in node.roles:
        files.append(File(SLURMD_WAITS, render("storage", "slurmd.service.conf", {}), triggers=("reload-units",)))
    if any(share.cache for share in shares):
        text = render("storage", "cachefilesd.default", {})
        files.append(File("/etc/default/cachefilesd", text, triggers=("restart-cachefilesd.service",)))
    own = {f"{UNITS}/{unit_name(share.path)}" for share in cluster.nfs if is_server(cluster, node)}
    old = tuple(path for path in found.units if path not in own | {file.path for file in files})
    return Tree(tuple(files), absent=old if units or not old else (*old, *WAITING))


def _nfs_unit(cluster: Cluster, share: Nfs) -> File:
    options = (*CLIENT_OPTIONS, *(("fsc",) if share.cache else ()))
    values = {"share": share, "server": cluster.storage_node, "options": ",".join(options)}
    path = f"{UNITS}/{unit_name(share.path)}"
    return File(path, render("storage", "nfs.mount", values), triggers=(f"restart-{WAITS}",))


def outdated(cluster: Cluster, node: Node, found: StorageState) -> dict[str, str]:
    """Mount point → what is to become of it, for mounts of klaster's units that other options or nothing replace."""
    plan = client_plan(cluster, node, found)
    options = {file.path: line for file in plan.files for line in file.content.splitlines() if line.startswith(OPTIONS)}
    said = {}
    for path, unit in found.units.items():
        if unit.where not in found.mounts:
            continue
        if path in plan.absent:
            said[unit.where] = "is not to be mounted any more"
        elif path in options and options[path] != f"{OPTIONS}{unit.options}":
            said[unit.where] = "is to be mounted with other options"
    return said


# --- what must not be hidden -------------------------------------------------------------------------------------


def refusals(cluster: Cluster, node: Node, found: StorageState) -> list[str]:
    """Sentences about what a mount on this node would hide, first of all the way in."""
    paths = [share.path for share in mounted(cluster, node)]
    said = []
    if is_server(cluster, node):
        paths += [share.path for share in cluster.nfs if share.device]
        said += [why for share in cluster.nfs if share.device and (why := _no_file_system(share, node, found))]
    for path in paths:
        if path in found.mounts:
            said += _foreign(cluster, node, path, found)
            continue
        account = node.ssh_user or cluster.ssh.user
        home = found.accounts.get(account, "")
        if home.startswith(f"{path}/"):
            said.append(
                f"{account}, by whom {node.name} is deployed, has the home {home}, which mounting {path} would hide: "
                f"move it (as root: usermod -m -d /var/lib/{account} {account}), or deploy as root"
            )
        elif names := found.local.get(path, ()):
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            owners = [name for name, at in found.accounts.items() if at in {f"{path}/{entry}" for entry in names}]
            local = f" ({', '.join(owners)}: usermod -m -d gives a local account another home)" if owners else ""
            said.append(
                f"{path} of {node.name} holds {shown}, which the mount would hide: copy what is needed to "
                f"{cluster.storage_node.name}:{path}, then move the rest out of {path}{local}"
            )
    return said


def _no_file_system(share: Nfs, node: Node, found: StorageState) -> str:
    """A disk to be served must be there, with a file system: klaster makes none on it."""
    disk = found.disks.get(share.device or "")
    if disk is None:
        return f"{node.name} has no disk {share.device} for {share.path}: lsblk shows its disks"
    if not disk.fstype:
        return (
            f"{share.device} of {node.name} holds no file system to serve as {share.path}, and klaster makes none: "
            f"if nothing on it is needed, mkfs.ext4 -O quota {share.device}"
        )
    return ""


def _foreign(cluster: Cluster, node: Node, path: str, found: StorageState) -> list[str]:
    """Something else is mounted there already."""
    mount = found.mounts[path]
    if is_server(cluster, node):
        return []
    wanted = f"{cluster.storage_node.address}:{path}"
    if mount.source == wanted and mount.fstype == "nfs4":
        return []
    return [f"{mount.source} ({mount.fstype}) is mounted at {path} of {node.name}, where {wanted} is to be: unmount it"]


# --- operations --------------------------------------------------------------------------------------------------

ACTIONS = {
    "reload-units": "systemctl daemon-reload",
    "mount-disks": "systemctl daemon-reload",
    "export": "! systemctl is-active -q nfs-server || exportfs -ra",
}


def _state() -> StorageState:
    cluster, node = site.cluster(), site.node()
    disks = [disk for disk in (node.scratch_disk, *_devices(cluster, node)) if disk]
    return host.get_fact(StorageHere, paths=[share.path for share in cluster.nfs], disks=disks)


def _devices(cluster: Cluster, node: Node) -> list[str]:
    return [share.device for share in cluster.nfs if share.device] if is_server(cluster, node) else []


def _serve(cluster: Cluster) -> None:
    disks = [unit_name(share.path) for share in cluster.nfs if share.device]
    units = (*(Unit(name) for name in disks), Unit("nfs-server.service"))
    own = shlex.join(share.path for share in cluster.nfs if not share.device)
    export = f"mkdir -p {own}; {ACTIONS['export']}" if own else ACTIONS["export"]
    configure(
        name="Export to the nodes",
        plan=lambda: server_plan(site.cluster()),
        units=units,
        actions={**ACTIONS, "export": export},
    )
    spaces(name="Make the folders of teams", wanted=folders(cluster))
    wanted = wanted_quotas(cluster)
    if wanted:
        states: dict[str, QuotaState] = host.get_fact(QuotasHere, paths=tuple(wanted))
        later = {s.path for s in cluster.nfs if s.device and states.get(s.path, QuotaState()).target != s.path}
        no = "; ".join(
            said for path in wanted if path not in later and (said := cannot(path, states.get(path, QuotaState())))
        )
        quotas(name=f"Set quotas{f' ({no})' if no else ''}", wanted=wanted)


def deploy() -> None:
    cluster, node = site.cluster(), site.node()
    if is_server(cluster, node) or mounted(cluster, node) or node.scratch_disk:
        stop_if(name="Look for what a mount would hide", refusals=lambda: refusals(cluster, node, _state()))
        packages(name="Install NFS", wanted=wanted_packages(cluster, node))
    if is_server(cluster, node):
        _serve(cluster)
    if cluster.nfs:
        barrier(name="Shared folders are served")
    if node.scratch_disk:
        scratch_disk(name=f"Have scratch on {node.scratch_disk}", disk=node.scratch_disk, node=node.name)
    wanted = bool(mounted(cluster, node) or node.scratch_disk)
    if wanted or _state().units:
        unmount(
            name="Unmount what is to be mounted otherwise",
            outdated=lambda: outdated(site.cluster(), site.node(), _state()),
            node=node.name,
        )
        cached = any(share.cache for share in mounted(cluster, node))
        configure(
            name="Mount shared folders and scratch",
            plan=lambda: client_plan(site.cluster(), site.node(), _state()),
            units=(
                *((Unit("cachefilesd.service"),) if cached else ()),
                *((Unit(WAITS, MOUNTED_WITHIN_S),) if wanted else ()),
            ),
            actions=ACTIONS,
        )
