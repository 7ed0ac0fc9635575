"""Verdicts on storage: mounted from where it should be, served to nodes only, the same on all, limited as declared."""

from __future__ import annotations

from inventory.model import Cluster, External, Node
from inventory.storage import SCRATCH, clients, is_server, mounted
from validation.checks.node import (
    Finding,
    Subject,
    answer,
    failed,
    inconclusive,
    mounts,
    not_applicable,
    passed,
    problem,
    units,
)

INVENTORY = "inventory"
SERVER_UNIT = "nfs-server.service"
NFS_TYPE, NFS_OPTIONS = "nfs4", ("nosuid", "nodev", "vers=4.2", "hard")
OPEN_TO_ALL = ("*", "<world>", "0.0.0.0/0")
KIB_A_GIB = 1024 * 1024


def asked_paths(cluster: Cluster, node: Node) -> list[str]:
    """Paths whose file system the probe looks at."""
    external = [s.path for s in cluster.storage if isinstance(s, External) and set(s.on) & set(node.roles)]
    served = [share.path for share in cluster.nfs] if is_server(cluster, node) else []
    return [*external, *served, *(s.path for s in mounted(cluster, node)), *([SCRATCH] if node.scratch_disk else [])]


def asked_units(cluster: Cluster, node: Node) -> tuple[str, ...]:
    return (SERVER_UNIT,) if is_server(cluster, node) else ()


# --- mounts ------------------------------------------------------------------------------------------------------


def storage_mounts(subject: Subject) -> Finding:
    """Each declared storage is the mount it should be and answers; an empty folder looks fine otherwise."""
    cluster, node = subject.cluster, subject.node
    external = [s for s in cluster.storage if isinstance(s, External) and set(s.on) & set(node.roles)]
    scratch = [External(path=SCRATCH, fstype="ext4")] if node.scratch_disk else []
    shares = mounted(cluster, node)
    if not external and not scratch and not shares:
        return not_applicable("no storage declared for this node")
    server = cluster.storage_node
    parts = [f"{s.path} mounted{f' as {s.fstype}' if s.fstype else ''}" for s in (*external, *scratch)]
    parts += [f"{share.path} of {server.name} as {NFS_TYPE}" for share in shares]
    required = ", ".join(parts)
    wanted: list[tuple[str, str, str]] = [(s.path, s.fstype or "", "") for s in (*external, *scratch)]
    wanted += [(share.path, NFS_TYPE, f"{server.address}:{share.path}") for share in shares]
    for path, fstype, source in wanted:
        if finding := _mount(subject, path, fstype, source, required):
            return finding
    found = mounts(subject.probe)
    return passed(", ".join(f"{path} is {found[path][0]}" for path, _, _ in wanted), required, INVENTORY)


def _mount(subject: Subject, path: str, fstype: str, source: str, required: str) -> Finding | None:
    """What is wrong with one mount; `source` is set for a folder of the cluster's own server."""
    found, why = mounts(subject.probe), problem(subject.probe, f"filesystem:{path}")
    if source and (path not in found or why) and server_is_down(subject):
        return _down(subject, required)
    how = "systemctl status klaster-storage" if source or path == SCRATCH else "see /etc/fstab"
    if path not in found:
        measured = f"{path} is not there" if why else f"{path} is a folder, not a mount"
        return failed(measured, required, INVENTORY, "mount", f"mount it: {how}")
    if why:
        service = f"NFS on {subject.cluster.storage_node.name}" if source else f"storage {path}"
        remedy = "its server does not answer: look at the server first, then unmount (umount -f -l) and mount"
        return failed(why, required, INVENTORY, "storage-stale", remedy, culprit_kind="service", culprit=service)
    kind, options = found[path]
    if fstype and kind != fstype:
        remedy = "mount the declared file system, or correct the inventory"
        return failed(f"{path} is {kind}", required, INVENTORY, "mount-type", remedy)
    if source:
        return _nfs_mount(subject, path, source, options, required)
    writable = [name for name in _writable(subject, path) if name != subject.name]
    if writable and answer(subject.probe, f"filesystem:{path}")["read_only"]:
        remedy = f"mount it writable ({how}); look at its server and the kernel's log, which may have made it read-only"
        measured = f"{path} is read-only here, and writable on {', '.join(writable[:3])}"
        return failed(measured, required, "the other nodes", "mount-options", remedy)
    return None


def _writable(subject: Subject, path: str) -> list[str]:
    """Nodes on which the file system at a path can be written."""
    found = {name: probe.get(f"filesystem:{path}", {}).get("ok") for name, probe in subject.fleet.probes.items()}
    return sorted(name for name, stat in found.items() if stat and not stat["read_only"])


def _nfs_mount(subject: Subject, path: str, source: str, options: str, required: str) -> Finding | None:
    """It is the server's folder, mounted as the deploy does it."""
    real = mount_sources(subject)[path]
    if real != source:
        remedy = f"unmount it and start klaster-storage.service; the server is {subject.cluster.storage_node.name}"
        return failed(f"{path} is {real}", f"{path} from {source}", INVENTORY, "mount-source", remedy)
    missing = [option for option in NFS_OPTIONS if option not in options.split(",")]
    if missing:
        remedy = f"run the deploy, then umount {path} and systemctl restart klaster-storage when no job runs"
        return failed(f"{path} without {', '.join(missing)}", ", ".join(NFS_OPTIONS), "field-notes", "mount-options",
                      remedy)  # fmt: skip
    return None


def mount_sources(subject: Subject) -> dict[str, str]:
    """Mount point → what is mounted, the last mount of each."""
    rows = (line.split() for line in str(answer(subject.probe, "mounts")).splitlines())
    return {point.encode().decode("unicode_escape"): source for source, point, *_ in rows}


def server_is_down(subject: Subject) -> bool:
    """The server's own node says that its NFS does not run."""
    probe = subject.fleet.probes.get(subject.cluster.storage_node.name)
    if probe is None or problem(probe, "services"):
        return False
    return units(probe).get(SERVER_UNIT, {}).get("ActiveState", "") != "active"


def _down(subject: Subject, required: str) -> Finding:
    server = subject.cluster.storage_node.name
    remedy = f"on {server}: systemctl status nfs-server; journalctl -u nfs-server -n 50; systemctl start nfs-server"
    return failed(f"{SERVER_UNIT} does not run on {server}", required, INVENTORY, "nfs-down", remedy,
                  culprit_kind="service", culprit=f"NFS on {server}")  # fmt: skip


# --- exports -----------------------------------------------------------------------------------------------------


def exports(text: str) -> dict[str, dict[str, set[str]]]:
    """Path → client → options, from etab: `/home<tab>10.0.0.2(rw,sync,root_squash,…)`."""
    found: dict[str, dict[str, set[str]]] = {}
    for line in text.splitlines():
        path, _, rest = line.partition("\t")
        client, _, options = rest.partition("(")
        if client:
            name = path.encode().decode("unicode_escape")
            found.setdefault(name, {})[client.strip()] = set(options.rstrip(")").split(","))
    return found


def storage_exports(subject: Subject) -> Finding:
    """The server serves each folder to the nodes' addresses, with root squashed, and nothing to everybody."""
    cluster = subject.cluster
    if not is_server(cluster, subject.node):
        return not_applicable("serves no folder")
    required = f"{', '.join(share.path for share in cluster.nfs)} served to nodes only, root squashed"
    if server_is_down(subject):
        return _down(subject, required)
    found = exports(str(answer(subject.probe, "exports")))
    remedy = "take it out of /etc/exports and /etc/exports.d, run the deploy, then exportfs -ra"
    for path, who in found.items():
        declared = {a for share in cluster.nfs if share.path == path for a in clients(cluster, share)}
        if wide := sorted(set(who) & set(OPEN_TO_ALL)):
            return failed(f"{path} is served to {wide[0]}", required, INVENTORY, "exports-open", remedy)
        if declared and (others := sorted(set(who) - declared)):
            return failed(f"{path} is served to {', '.join(others)}", required, INVENTORY, "exports-open", remedy)
        if loose := sorted(client for client, options in who.items() if "no_root_squash" in options):
            return failed(f"root of {loose[0]} is root in {path}", required, INVENTORY, "exports-root", remedy)
    for share in cluster.nfs:
        if missing := sorted(set(clients(cluster, share)) - set(found.get(share.path, {}))):
            again = f"on {subject.name}: exportfs -ra; is the disk of {share.path} mounted?"
            return failed(f"{share.path} is not served to {missing[0]}", required, INVENTORY, "exports", again)
    return passed(required, required, INVENTORY)


# --- what one node writes, another reads -------------------------------------------------------------------------


def storage_shared(subject: Subject) -> Finding:
    """What one node wrote and closed, the others read; root of a node can't write."""
    if not mounted(subject.cluster, subject.node) and not is_server(subject.cluster, subject.node):
        return not_applicable("no shared folder of the cluster's own")
    required = "every node reads what another wrote, root is nobody"
    if subject.name not in subject.fleet.shared:
        return inconclusive("it was not tried: see check storage-mounts", "mend the mounts first", required, "measured")
    said = {path: text for path, text in subject.fleet.shared[subject.name].items() if text}
    if not said:
        shares = ", ".join(subject.fleet.shared[subject.name])
        return passed(f"{shares}: written and read across nodes", required, "measured")
    path, text = next(iter(said.items()))
    remedy = f"compare `stat {path}` and `findmnt {path}` on the nodes; is it the same server's folder everywhere?"
    return failed(f"{path}: {text}", required, "measured", "storage-shared", remedy)


# --- quotas ------------------------------------------------------------------------------------------------------


def storage_quotas(subject: Subject) -> Finding:
    """On the server: the declared limits are set and enforced; a file system that can't is advice, not a fault."""
    cluster = subject.cluster
    people = {("user", user.uid): (user.name, user.quota_gib) for user in cluster.users if user.quota_gib}
    teams = {("group", team.group_id): (team.name, team.quota_gib) for team in cluster.teams if team.quota_gib}
    if not is_server(cluster, subject.node) or not (people or teams):
        return not_applicable("no quota is declared" if not (people or teams) else "serves no folder")
    required = f"{len(people) + len(teams)} quotas are set and enforced"
    found = answer(subject.probe, "quotas")
    advice = []
    for share in cluster.nfs:
        state = found.get(share.path, {"on": [], "limits": {}})
        if not {"user", "group"} <= set(state["on"]):
            advice.append(f"{share.path}: its file system enforces no quotas (docs/storage.md says how it could)")
            continue
        for (kind, number), (name, gib) in {**people, **(teams if share.teams else {})}.items():
            limit = state["limits"].get(f"{kind} {number}", 0)
            if limit != gib * KIB_A_GIB:
                measured = f"{name} may have {limit / KIB_A_GIB:g} GiB in {share.path}"
                return failed(measured, f"{gib} GiB", INVENTORY, "quotas", "run the deploy again")
    return passed(required if len(advice) < len(cluster.nfs) else "none", required, INVENTORY, "; ".join(advice))
