"""Faults of what a node has to work with: processor time, memory, disks, limits."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lab.errors import CommandFailed, LabError
from lab.fault_model import Fault, Memory, Site
from lab.fault_system import attempt
from lab.network import processes_in
from lab.process import end, launch, recorded, run, start_time

CPU_SHARE = 0.3
"""Of one processor."""
PERIOD_US = 100_000
MEMORY_BYTES = 160 << 20
"""Enough for a log-in, not for a rank with torch."""
DISK_BYTES_S = 5_000_000
CGROUPS = Path("/sys/fs/cgroup")
OLD_LIMIT = re.compile(r"^Max (open files|locked memory)\s+(\S+)\s+(\S+)", re.M)


# --- control groups: version 2 where the node's group has the controller, else one of version 1 beside it ----------


def _own_group(site: Site, controller: str) -> Path | None:
    """The node's group of version 2 if the machine's systemd gave it this controller."""
    init = site.init
    if init is None:
        return None
    line = next((one for one in Path(f"/proc/{init}/cgroup").read_text().splitlines() if one.startswith("0::")), "0::")
    group = CGROUPS / line[3:].lstrip("/")
    group = group.parent if group.name == "init.scope" else group
    try:
        return group if controller in (group / "cgroup.controllers").read_text().split() else None
    except OSError:
        return None


def _v1_group(site: Site, controller: str) -> Path:
    return CGROUPS / controller / site.group


def _without(controller: str) -> Callable[[Site | None], str]:
    old = CGROUPS / ("blkio" if controller == "io" else controller)
    new = CGROUPS / "cgroup.controllers"

    def why(_: Site | None) -> str:
        if old.is_dir() or (new.exists() and controller in new.read_text().split()):
            return ""
        return f"this machine has no control groups for {controller}"

    return why


def _hold(site: Site, controller: str, old: str, file: tuple[str, str], old_files: dict[str, str]) -> None:
    """Write the limit into the node's group; where there is none, into one of version 1 that all its processes join."""
    if group := _own_group(site, controller):
        (group / file[0]).write_text(file[1])
        return
    made = _v1_group(site, old)
    made.mkdir(parents=True, exist_ok=True)
    for name, value in old_files.items():
        (made / name).write_text(value)
    for _ in range(3):  # a process that forks meanwhile leaves its child outside
        for pid in processes_in(site.node.netns):
            with suppress(OSError):
                (made / "cgroup.procs").write_text(str(pid))


def _release(site: Site, controller: str, old: str, file: tuple[str, str]) -> None:
    if group := _own_group(site, controller):
        (group / file[0]).write_text(file[1])
    made = _v1_group(site, old)
    for _ in range(50):
        if not made.is_dir():
            break
        for pid in (made / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (CGROUPS / old / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            made.rmdir()
        time.sleep(0.02)
    with suppress(OSError):  # of other nodes' groups there may be more
        made.parent.rmdir()


def _slow_cpu(site: Site) -> None:
    quota = int(PERIOD_US * CPU_SHARE)
    old = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    _hold(site, "cpu", "cpu", ("cpu.max", f"{quota} {PERIOD_US}"), old)


def _full_cpu(site: Site, _: Memory) -> None:
    _release(site, "cpu", "cpu", ("cpu.max", f"max {PERIOD_US}"))


def _low_memory(site: Site) -> None:
    """What the node uses already counts in version 2 and does not in version 1."""
    group = _own_group(site, "memory")
    used = int((group / "memory.current").read_text()) if group else 0
    limit = str(used + MEMORY_BYTES)
    _hold(site, "memory", "memory", ("memory.max", limit), {"memory.limit_in_bytes": limit})


def _full_memory(site: Site, _: Memory) -> None:
    _release(site, "memory", "memory", ("memory.max", "max"))


def _device(site: Site) -> str:
    """MAJOR:MINOR of the machine's disk that the node's files lie on."""
    device = site.files.upper.stat().st_dev
    number = f"{device >> 8 & 0xFFF}:{device & 0xFF}"
    if not Path(f"/sys/dev/block/{number}").exists():
        raise LabError(f"{site.files.upper} lies on no disk of its own ({number}): nothing to slow down")
    parent = Path(f"/sys/dev/block/{number}").resolve().parent / "dev"
    return parent.read_text().strip() if parent.exists() else number


def _slow_disk(site: Site) -> None:
    line = f"{_device(site)} {DISK_BYTES_S}"
    new = f"{_device(site)} rbps={DISK_BYTES_S} wbps={DISK_BYTES_S}"
    old = {"blkio.throttle.read_bps_device": line, "blkio.throttle.write_bps_device": line}
    _hold(site, "io", "blkio", ("io.max", new), old)


def _fast_disk(site: Site, _: Memory) -> None:
    _release(site, "io", "blkio", ("io.max", f"{_device(site)} rbps=max wbps=max"))


# --- file systems -------------------------------------------------------------------------------------------------

SCRATCH = "/tmp"  # noqa: S108 - the node's


OTHER_DISK = "/srv/scratch"


def _fill(site: Site, where: str, options: str, script: str) -> None:
    """A small file system of its own is filled, so that the machine's disk stays as it is."""
    site.sh(f"mkdir -p {where} && mount -t tmpfs -o {options} klaster-fault {where}")
    site.sh(f"{script} 2>/dev/null || true")


def _disk_full(site: Site) -> None:
    _fill(site, SCRATCH, "size=32m,mode=1777", f"head -c 33m /dev/zero > {SCRATCH}/full")


def _inodes_full(site: Site) -> None:
    touch_all = f"i=0; while [ $i -lt 300 ] && touch {SCRATCH}/$i; do i=$((i+1)); done"
    _fill(site, SCRATCH, "size=2g,nr_inodes=200,mode=1777", touch_all)


def _other_full(site: Site) -> None:
    """A disk that no default path lies on."""
    _fill(site, OTHER_DISK, "size=32m", f"head -c 33m /dev/zero > {OTHER_DISK}/full")


def _read_only(site: Site) -> None:
    site.sh("mount --bind /var/tmp /var/tmp && mount -o remount,ro,bind /var/tmp")


def _unmount(site: Site, _: Memory) -> None:
    attempt(site, "for m in $(awk '$1 == \"klaster-fault\" {print $2}' /proc/self/mounts); do umount -l $m; done")
    attempt(site, f"mountpoint -q /var/tmp && umount -l /var/tmp; rmdir {OTHER_DISK}")


def _small_shm(site: Site) -> None:
    site.sh("mount -o remount,size=64m /dev/shm")


def _shm_before(site: Site) -> Memory:
    return {"size": int(site.sh("stat -f -c '%b %S' /dev/shm | awk '{print $1 * $2}'"))}


def _large_shm(site: Site, memory: Memory) -> None:
    attempt(site, f"mount -o remount,size={memory['size']} /dev/shm")


# --- limits of jobs -----------------------------------------------------------------------------------------------


def _slurmd(site: Site) -> str:
    pid = site.sh("systemctl show -p MainPID --value slurmd").strip()
    if pid in ("", "0"):
        raise LabError(f"slurmd does not run on {site.node.name}: deploy first, or choose another node")
    return pid


def _limits_before(site: Site) -> Memory:
    found = OLD_LIMIT.findall(site.sh(f"cat /proc/{_slurmd(site)}/limits"))
    names = {"open files": "nofile", "locked memory": "memlock"}
    return {names[row]: soft for row, soft, _ in found}


def _few_files(site: Site) -> None:
    site.sh(f"prlimit --pid {_slurmd(site)} --nofile=256:")


def _little_locked(site: Site) -> None:
    site.sh(f"prlimit --pid {_slurmd(site)} --memlock=65536:")


def _limits_back(site: Site, memory: Memory) -> None:
    """Only the soft limits were lowered: not every machine lets its root raise a hard one again."""
    words = " ".join(f"--{name}={value}:" for name, value in memory.items())
    if site.init:
        site.sh(f"p=$(systemctl show -p MainPID --value slurmd); [ $p = 0 ] || prlimit --pid $p {words}")


# --- the whole machine --------------------------------------------------------------------------------------------


def _spin(site: Site) -> None:
    with Path("/dev/null").open("wb") as log:
        launch(["sh", "-c", "while :; do :; done & while :; do :; done"], site.record, log)


def _rest(site: Site, _: Memory) -> None:
    if pid := recorded(site.record):
        children = [int(p) for p in _children(pid)]
        end([pid, *children])
    site.record.unlink(missing_ok=True)


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if start_time(pid) else []
    except OSError:
        with suppress(CommandFailed):
            return run(["pgrep", "-P", str(pid)]).split()
        return []


FAULTS = (
    Fault("slow-cpu", "The node gets 30 % of one processor.", _slow_cpu, _full_cpu, unable=_without("cpu")),
    Fault("low-memory", "The node has no memory for a rank.", _low_memory, _full_memory, unable=_without("memory")),
    Fault("slow-disk", "The node's disk does 5 MB/s.", _slow_disk, _fast_disk, unable=_without("io")),
    Fault("disk-full", f"The node's {SCRATCH} is full.", _disk_full, _unmount),
    Fault("inodes-full", f"The node's {SCRATCH} has no inode left.", _inodes_full, _unmount),
    Fault("scratch-full", f"A further disk of the node, {OTHER_DISK}, is full.", _other_full, _unmount),
    Fault("read-only", "A folder of the node can't be written.", _read_only, _unmount),
    Fault("small-shm", "Shared memory has 64 MB.", _small_shm, _large_shm, _shm_before),
    Fault("few-files", "Jobs may open 256 files.", _few_files, _limits_back, _limits_before),
    Fault("little-locked", "Jobs may lock 64 KiB of memory.", _little_locked, _limits_back, _limits_before),
    Fault("busy-machine", "Two processes of this machine spin beside the lab.", _spin, _rest, takes="machine"),
)  # fmt: skip
