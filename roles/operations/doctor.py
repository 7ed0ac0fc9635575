"""What each node's probe means: findings with their remedies, and the one table of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inventory.cards import generation
from inventory.model import Cluster, Node
from roles.facts.doctor import Probe
from roles.operations.summary import short

Weight = Literal["stops", "look"]
KNOWN = {("debian", "12"), ("debian", "13"), ("ubuntu", "24.04"), ("ubuntu", "24.10"), ("ubuntu", "25.04")}
OLD_SLURM = {("debian", "12")}
"""Their Slurm is older than 23.11."""
SKEW_S = 1.0
ROOM_MIB = {"/": 6000, "/var": 4000, "/tmp": 500, "/boot": 300}  # noqa: S108 - a mount point to measure
MEMORY_MIB = 1500
FIRMWARE_YEARS = 6
_LOCAL = ("127.", "172.17.", "10.88.")
"""Loopback, and what docker and podman give to their own bridges everywhere."""
UIDS = {"klaster": 901, "munge": 902, "slurm": 64030}


@dataclass(frozen=True)
class Finding:
    """`stops`: a deploy or a certification would fail; `look`: it may, or will be slower or less safe."""

    node: str
    weight: Weight
    what: str
    remedy: str


def examine(
    cluster: Cluster, probes: Mapping[str, Probe], unreached: Sequence[str], offsets: Mapping[str, float], year: int
) -> list[Finding]:
    """All findings, node by node; `offsets`: seconds that each node's clock is ahead of the control machine's."""
    found = [
        Finding(
            name, "stops", f"no ssh to {cluster.node(name).address}",
            f"is it on? ssh -p {cluster.ssh.port} {cluster.node(name).ssh_user or cluster.ssh.user}@"
            f"{cluster.node(name).address} shows why; a changed host key: ssh-keygen -R {cluster.node(name).address}",
        )
        for name in unreached
    ]  # fmt: skip
    for name, probe in probes.items():
        node = cluster.node(name)
        for check in (_system, _names, _packages, _room, _network, _ids, _habits):
            found += [Finding(name, *rest) for rest in check(cluster, node, probe)]
        found += [Finding(name, *rest) for rest in _clock(offsets.get(name, 0.0))]
        found += [Finding(name, *rest) for rest in _age(probe, year)]
    return found + _twins(probes)


Rest = tuple[Weight, str, str]


def _system(cluster: Cluster, node: Node, probe: Probe) -> Iterator[Rest]:
    system = (probe.distribution, probe.release)
    if not probe.root:
        user = node.ssh_user or cluster.ssh.user
        yield (
            "stops",
            f"{user} may not use sudo without a password",
            f"/etc/sudoers.d/{user}: {user} ALL=(ALL) NOPASSWD: ALL",
        )
    if system not in KNOWN:
        yield "stops", f"{' '.join(system).strip() or 'unknown'} is not supported", "install Debian 13 or Ubuntu 24.04"
    elif system in OLD_SLURM:
        yield "stops", f"{' '.join(system)} has a Slurm older than 23.11", "upgrade it to Debian 13"
    if probe.architecture not in ("x86_64", ""):
        yield "stops", f"architecture {probe.architecture}", "only x86_64 is supported"
    if 0 < probe.memory_mib < MEMORY_MIB:
        yield "stops", f"{probe.memory_mib} MiB of memory", f"{MEMORY_MIB} MiB are needed to import torch"
    if node.gpus and probe.cards < node.gpu_count:
        yield (
            "stops",
            f"{probe.cards} NVIDIA cards on the bus, {node.gpu_count} declared",
            "seat the card and its power; look at lspci | grep -i nvidia",
        )
    stack = cluster.gpu_stack
    if stack is not None and node.gpus and probe.secure_boot:
        yield "look", "Secure Boot is on: the kernel module needs an enrolled key", "mokutil --import, or switch it off"
    for gpu in node.gpus:
        if stack is not None and (gpu.generation or generation(gpu.model)) is None:
            yield "stops", f"generation of {gpu.model} is not known", "say Gpu(generation=…) in the inventory"


def _names(cluster: Cluster, node: Node, probe: Probe) -> Iterator[Rest]:
    if "." in probe.host_name:
        yield "look", f"its host name is the long {probe.host_name}", f"the deploy sets {node.name}; nothing to do"
    elif probe.host_name and probe.host_name != node.name:
        yield (
            "look",
            f"it calls itself {probe.host_name}",
            f"is {node.address} really {node.name}? The deploy renames it",
        )
    if probe.addresses and node.address not in probe.addresses:
        yield "look", f"{node.address} is on none of its interfaces", "a router in between? Ranks need the own address"


def _packages(cluster: Cluster, node: Node, probe: Probe) -> Iterator[Rest]:
    if probe.apt:
        yield (
            "look",
            f"{', '.join(probe.apt)} is at work",
            "the deploy waits 5 minutes for it; else wait until it is done",
        )
    if probe.broken:
        yield "look", f"half-configured: {short(probe.broken)}", "the deploy repairs it; by hand: dpkg --configure -a"
    for url, works in probe.sources.items():
        if not works:
            yield "stops", f"package source does not answer: {url}", "check the network, the proxy, and sources.list"
    if not probe.sources:
        yield "stops", "no package source", "write /etc/apt/sources.list"


def _room(cluster: Cluster, node: Node, probe: Probe) -> Iterator[Rest]:
    for path, needed in ROOM_MIB.items():
        free = probe.free_mib.get(path)
        if free is not None and free < needed:
            weight: Weight = "stops" if path == "/" else "look"
            yield weight, f"{free} MiB free in {path}, {needed} wanted", "apt-get clean; journalctl --vacuum-size=100M"
    wanted = {storage.path for storage in cluster.storage if set(getattr(storage, "on", node.roles)) & set(node.roles)}
    for path in sorted(wanted & set(probe.missing_mounts)):
        yield "stops", f"{path} is not mounted", "mount it, or look at the server that exports it"


def _network(cluster: Cluster, node: Node, probe: Probe) -> Iterator[Rest]:
    interface = probe.addresses.get(node.address, "")
    if node.address in probe.leased:
        yield (
            "look",
            f"{node.address} comes from DHCP and may change",
            "reserve it in the router, or set it on the node",
        )
    if interface in probe.wireless:
        yield "look", f"{node.address} is on WLAN ({interface})", "use a cable: WLAN stalls collectives"
    for peer in probe.deaf:
        yield "stops", f"can't reach ssh of {peer}", f"cable, switch, or a firewall on {peer}"
    taken = {cluster.slurm.node_port: "slurmd"} if "compute" in node.roles else {}
    if node is cluster.controller:
        taken[cluster.slurm.controller_port] = "slurmctld"
    for port, program in taken.items():
        if port in probe.listening and not probe.accounts.get("slurm"):
            yield (
                "stops",
                f"port {port} of {program} is taken",
                f"ss -ltnp 'sport = :{port}'; or another port in Slurm()",
            )


def _ids(cluster: Cluster, node: Node, probe: Probe) -> Iterator[Rest]:
    by_uid = {uid: name for name, uid in probe.accounts.items()}
    for name, uid in UIDS.items():
        if probe.accounts.get(name, uid) != uid:
            yield (
                "stops",
                f"{name} has uid {probe.accounts[name]} and must have {uid}",
                f"stop its service; usermod -u {uid} {name}; chown its files",
            )
        elif by_uid.get(uid, name) != name:
            yield "stops", f"uid {uid} of {name} belongs to {by_uid[uid]}", f"give {by_uid[uid]} another uid"


def _habits(cluster: Cluster, node: Node, probe: Probe) -> Iterator[Rest]:
    if probe.swap:
        yield (
            "look",
            f"swap on {', '.join(probe.swap)}",
            "a job that swaps stalls all others: swapoff -a, and /etc/fstab",
        )
    if probe.battery and probe.sleep != "masked":
        yield "look", "a laptop that may fall asleep", "the deploy masks suspend; leave it on its charger, lid open"
    if cluster.substrate == "hardware" and probe.virtualisation not in ("none", ""):
        yield (
            "look",
            f"a virtual machine ({probe.virtualisation})",
            "times vary with its neighbours; expect slow verdicts",
        )
    if probe.failed_units:
        yield "look", f"failed units: {', '.join(probe.failed_units[:4])}", "systemctl status UNIT says why"


def _clock(offset_s: float) -> Iterator[Rest]:
    if abs(offset_s) > SKEW_S:
        weight: Weight = "stops" if abs(offset_s) > 60 else "look"
        ahead = "ahead of" if offset_s > 0 else "behind"
        yield weight, f"clock {abs(offset_s):.0f} s {ahead} this machine's", "timedatectl set-ntp true; hwclock -w"


def _age(probe: Probe, year: int) -> Iterator[Rest]:
    if probe.firmware_year and year - probe.firmware_year > FIRMWARE_YEARS and probe.virtualisation == "none":
        yield (
            "look",
            f"firmware of {probe.firmware_year}",
            "look for a newer one: PCIe and memory faults get mended there",
        )


def _twins(probes: Mapping[str, Probe]) -> list[Finding]:
    """What must be each machine's own and is not: clones of one disk image, or one address on two machines."""
    own_id: dict[str, list[str]] = {name: [probe.machine_id] for name, probe in probes.items()}
    own_key: dict[str, list[str]] = {name: [probe.host_key] for name, probe in probes.items()}
    own_address = {name: [one for one in p.addresses if not one.startswith(_LOCAL)] for name, p in probes.items()}
    return [
        *_shared(own_id, "the same machine id", "rm /etc/machine-id; systemd-machine-id-setup; reboot"),
        *_shared(own_key, "the same ssh host key", "rm /etc/ssh/ssh_host_*; dpkg-reconfigure openssh-server"),
        *_shared(own_address, "an address", "give one of them another address"),
    ]


def _shared(own: Mapping[str, Sequence[str]], what: str, remedy: str) -> Iterator[Finding]:
    owners: dict[str, list[str]] = {}
    for name, values in own.items():
        for value in filter(None, values):
            owners.setdefault(value, []).append(name)
    for names in owners.values():
        for name in names if len(names) > 1 else ():
            yield Finding(name, "stops", f"{what} is also that of {short(set(names) - {name})}", remedy)


def page(findings: Sequence[Finding], asked: Sequence[str]) -> str:
    """One table, what stops first; alike findings of many nodes are one row."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in sorted(findings, key=lambda finding: finding.weight != "stops"):
        alike.setdefault((one.weight, one.what, one.remedy), []).append(one.node)
    if not alike:
        return f"Doctor: {short(asked)}: nothing found"
    rows = [("", "nodes", "finding", "remedy")]
    rows += [(weight, short(nodes), what, remedy) for (weight, what, remedy), nodes in alike.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    stops = sum(key[0] == "stops" for key in alike)
    return "\n".join(
        [*(line.rstrip() for line in lines), f"Doctor: {stops} findings stop a deploy, {len(alike) - stops} to look at"]
    )
