"""What can be put into a lab for real so that an alert must fire, and which alerts a lab can't have, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests import nvidia

Step = tuple[str, ...]
"""("ssh", node, command), or the words of a bin/lab verb."""


@dataclass(frozen=True)
class Trouble:
    """`alerts` must fire about `node` (the cluster, if empty) and no other; after `undo` they go."""

    alerts: tuple[str, ...]
    node: str
    how: str
    put: tuple[Step, ...]
    undo: tuple[Step, ...]
    lane: str = ""
    """Troubles of one lane come one after another, lanes side by side; `n2` comes after all of `n2/…`."""


def on(node: str, alert: str, how: str, put: str, undo: str, *, about: str | None = None, lane: str = "") -> Trouble:
    """Shell commands on a node, told about it or about whom else."""
    where = node if about is None else about
    return Trouble((alert,), where, how, (("ssh", node, put),), (("ssh", node, undo),), lane or node)


def stopped(alert: str, unit: str, node: str = "n2", **more: str) -> Trouble:
    return on(node, alert, f"`systemctl stop {unit}`", f"systemctl stop {unit}", f"systemctl start {unit}", **more)


def frozen(alert: str, unit: str, **more: str) -> Trouble:
    stop, go = (f"systemctl kill -s {signal} {unit}" for signal in ("STOP", "CONT"))
    return on("n2", alert, f"{unit} frozen (SIGSTOP)", stop, go, **more)


def played(alerts: tuple[str, ...], recording: str, how: str) -> Trouble:
    return Trouble(alerts, "n1", f"simulated cards: {how}", (("gpu", "n1", recording),), (("gpu", "n1", "eight"),))


def late(alert: str, stamp: str) -> Trouble:
    file, how = f"/var/lib/klaster/stamps/{stamp}", f"the stamp of {stamp} is two days old"
    return on("head", alert, how, f"touch -d '2 days ago' {file}", f"touch {file}", lane=stamp)


# A folder of its own that is really small: an overlay whose upper part is in memory.
SMALL = (
    "mkdir -p /mnt/small /srv/small && mount -t tmpfs -o size=64m none /mnt/small && cd /mnt/small && mkdir u w && "
    "mount -t overlay -o lowerdir=/srv/small,upperdir=/mnt/small/u,workdir=/mnt/small/w none /srv/small && "
    "head -c 63m /dev/zero > /srv/small/full; true"
)
NOT_SMALL = "umount /srv/small /mnt/small"
HANG = (
    "mkdir -p /mnt/kept /tmp/u /tmp/w && mount --bind /shared /mnt/kept && "
    "fuse-overlayfs -o lowerdir=/mnt/kept,upperdir=/tmp/u,workdir=/tmp/w /shared && pkill -STOP fuse-overlayfs"
)
NO_HANG = "pkill -CONT fuse-overlayfs; umount -l /shared; umount /mnt/kept"
GONE, BACK = (
    "mkdir -p /mnt/kept && mount --bind /shared /mnt/kept && umount /shared",
    "mount --bind /mnt/kept /shared && umount /mnt/kept",
)
# slurmctld may be stopped for a trouble of another lane just now.
DRAIN, RESUME = (
    f'timeout 300 sh -c "until scontrol update nodename=n1 state={words}; do sleep 5; done"'
    for words in ("drain reason=somebody-looks", "resume")
)
FOUR = "a row to be remapped, 91 °C, a brake by heat, half of the lanes, each on a card of its own"
FLUSH, NO_CHRONYC = "nft delete table inet klaster", "chmod -x /usr/bin/chronyc"
FLAP = ("flap", "n1", "3")


def troubles(folder: Path) -> tuple[Trouble, ...]:
    """All of them; recordings of cards that are made for it are written into `folder`."""
    xid, four = recordings(folder)
    return (
        # GPUs, simulated, on n1
        played(("GpuRemapPending", "GpuHot", "GpuThrottled", "GpuLinkDegraded"), four, FOUR),
        played(("GpuEcc",), "ecc-uncorrectable", "an uncorrectable error"),
        played(("GpuXid",), xid, "Xid 63 in the kernel's log"),
        played(("GpuFellOffBus",), "xid-79", "Xid 79 in the kernel's log"),
        played(("GpuMissing",), "seven-of-eight", "one of eight is lost"),
        played(("GpuDriverHangs",), "hangs", "nvidia-smi never returns"),
        # n2; slurmctld first, since nothing is known of nodes meanwhile
        stopped("SlurmControllerDown", "slurmctld", "head", about="", lane="n2/slurm"),
        stopped("SlurmdDown", "slurmd", lane="n2/slurm"),
        stopped("ServiceDown", "munge", lane="n2/slurm"),
        frozen("SlurmNodeNotResponding", "slurmd", lane="n2/slurm"),
        on("n2", "DiskFull", "a small file system filled to the brim", SMALL, NOT_SMALL, lane="n2/disk"),
        on("n2", "MountMissing", "`umount /shared`", GONE, BACK, lane="n2/disk"),
        on("n2", "MountStale", "the file server of /shared frozen (a FUSE one)", HANG, NO_HANG, lane="n2/disk"),
        on("n2", "FirewallOff", f"`{FLUSH}`", FLUSH, "nft -f /etc/klaster/firewall.nft", lane="n2/watch"),
        on("n2", "AgentQuestionFails", f"`{NO_CHRONYC}`", NO_CHRONYC, "chmod +x /usr/bin/chronyc", lane="n2/watch"),
        # these take n2's other alerts with them
        Trouble(("NodeDown",), "n2", "`bin/lab cut head n2`", (("cut", "head", "n2"),), (("heal",),)),
        frozen("TargetMissing", "prometheus-node-exporter"),
        stopped("AgentStale", "klaster-agent"),
        # what the whole cluster needs of head
        stopped("RegistryDown", "docker-registry", "head"),
        stopped("LdapDown", "slapd", "head"),
        late("NightlyLate", "nightly"),
        late("BackupLate", "backup-mine"),
        # slow ones, about n1 so that nothing of n2's hides them
        on("head", "NodeDrained", "`scontrol update … state=drain`", DRAIN, RESUME, about="n1", lane="drain"),
        Trouble(("LinkFlaps",), "n1", "its cable pulled and plugged three times", (FLAP,), (), "flap"),
    )


def together() -> tuple[Trouble, ...]:
    """Those that take several nodes at once: after the others, one after another."""
    hang = tuple(("ssh", node, HANG) for node in ("n1", "n2"))
    go_on = tuple(("ssh", node, NO_HANG) for node in ("n1", "n2"))
    cut = tuple(("cut", "head", node) for node in ("n1", "n2"))
    slow, nightly = ("shape", "n2", "50"), ("ssh", "head", "systemctl start klaster-nightly; true")
    shaped = "`bin/lab shape n2 50`, then the nightly certification"
    return (
        Trouble(("StorageDown",), "", "the file server of /shared frozen for two of three nodes", hang, go_on),
        Trouble(("ManyNodesDown",), "", "`bin/lab cut` between the head and both others", cut, (("heal",),)),
        Trouble(("CertificateFailed",), "", shaped, (slow, nightly), (("heal",), nightly)),
    )


def recordings(folder: Path) -> tuple[str, str]:
    """Eight cards with Xid 63 in the kernel's log; eight of which four have a trouble each."""
    xid = nvidia.healthy()
    xid.kernel.append(f"[ 9.1] NVRM: Xid (PCI:{nvidia.bus(2)[4:16].lower()}): 63, Row Remapper: New row marked")
    four = nvidia.healthy()
    four.cards[0]["remapped_rows/remapped_row_pending"] = "Yes"
    four.cards[1]["temperature/gpu_temp"] = "91 C"
    four.cards[2]["clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown"] = "Active"
    four.cards[3]["pci/pci_gpu_link_info/link_widths/current_link_width"] = "8x"
    paths = []
    for name, node in (("xid-63", xid), ("four", four)):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        for file, text in nvidia.files_of(node).items():
            (place / file).write_text(text, encoding="utf-8")
        paths.append(str(place))
    return paths[0], paths[1]


NO_HARDWARE = "no such part in a lab node"
TOO_LONG = "told only after an hour"
NOT_LIVE = {
    "CertificateExpires": TOO_LONG,
    "NodeCertificateExpires": TOO_LONG,
    "TlsExpires": TOO_LONG,
    "GpuIdleAllocated": f"{TOO_LONG} of a job with a card",
    "ClockOff": "the lab's nodes share one clock",
    "TimeNotSynchronised": "the lab's nodes share one clock, which chronyd there only watches",
    "DiskFillsUp": "needs half an hour of a steady rate",
    "MemoryPressure": "the lab's nodes share one machine's memory",
    "OutOfMemoryKill": "the lab's nodes share one kernel's count",
    "GpuWaitsForData": "needs a card at work",
    "NfsSlow": "this machine's kernel has no NFS",
    "LinkErrors": "a virtual link has no broken frames",
    "LinkSlow": "a virtual link reports 10 Gb/s whatever it is shaped to",
    "MemoryErrors": NO_HARDWARE,
    "RaidDegraded": NO_HARDWARE,
}
"""Alert → why it can't be had in the lab: these are played with promtool only."""
