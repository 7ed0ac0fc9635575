"""The probe's questions about local disks: how full each one is, and how fast; sent before probe.py, as one program."""

import mmap
import os
import time
from collections.abc import Callable

TYPE_CHECKING = False  # the real one is not in the smallest Python
if TYPE_CHECKING:
    from probe import filesystem, text

LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay", "tmpfs")
NOT_A_PLACE_FOR_FILES = ("/proc", "/sys", "/dev", "/run", "/boot", "/snap", "/var/lib/containers", "/var/lib/docker")
MOST_DISKS = 24
CHUNK_BYTES = 2 << 20
CHUNKS, BUDGET_S = 5, 1.5
SPEED_FOLDER = "/var/tmp"  # noqa: S108 - on the disk of the system, and never in memory


def local_disks(leave_out: list) -> dict:
    """Every local file system that programs may write to: how full it is; read-only only where fstab doesn't say so."""
    meant = {line.split()[1] for line in _fstab() if "ro" in line.split()[3].split(",")}
    found = {}
    for line in text("/proc/self/mounts").splitlines():
        _, point, fstype, _, *_ = line.split()
        point = point.encode().decode("unicode_escape")
        hidden = any(point == top or point.startswith(top + "/") for top in (*NOT_A_PLACE_FOR_FILES, *leave_out))
        if fstype in LOCAL and not hidden and len(found) < MOST_DISKS:
            found[point] = filesystem(point)
            found[point]["read_only"] = found[point]["read_only"] and point not in meant
    return found


def _fstab() -> list:
    try:
        lines = text("/etc/fstab").splitlines()
    except OSError:
        return []
    return [line for line in lines if not line.startswith("#") and len(line.split()) >= 4]


def disk_speed() -> dict:
    """The best of some chunks written past the cache to the disk, MB/s: a neighbour's burst slows one, not all."""
    path = f"{SPEED_FOLDER}/.klaster-disk-{os.getpid()}"
    buffer = mmap.mmap(-1, CHUNK_BYTES)  # aligned, as O_DIRECT wants it
    buffer.write(os.urandom(CHUNK_BYTES))
    best, end = 0.0, time.monotonic() + BUDGET_S
    try:
        disk = _open(path)
        try:
            for _ in range(CHUNKS):
                began = time.monotonic()
                os.lseek(disk, 0, os.SEEK_SET)
                os.write(disk, buffer)
                best = max(best, CHUNK_BYTES / 1e6 / max(time.monotonic() - began, 1e-6))
                if time.monotonic() > end:
                    break
        finally:
            os.close(disk)
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return {"write_mb_s": round(best, 1), "folder": SPEED_FOLDER}


def _open(path: str) -> int:
    how = os.O_WRONLY | os.O_CREAT | os.O_DSYNC
    try:
        return os.open(path, how | os.O_DIRECT, 0o600)
    except OSError:  # this file system has no O_DIRECT
        return os.open(path, how, 0o600)


def disk_questions(leave_out: list) -> dict[str, Callable[[], object]]:
    return {"local_disks": lambda: local_disks(leave_out), "disk_speed": disk_speed}
