"""Limits of this machine's kernel that many nodes at once run into: raised while a lab is up, then put back."""

from __future__ import annotations

from pathlib import Path

# Every booted systemd takes about eight inotify instances, and services in the node take more; the kernel's
# default of 128 for all of root's processes ends at a dozen nodes with "Too many open files".
INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
INSTANCES_A_NODE = 40
SPARE_INSTANCES = 256


def make_room(nodes: int, keep: Path) -> None:
    """Raise the limit for so many more nodes if it is too low; the old value is kept in the file `keep`."""
    found = int(INOTIFY_INSTANCES.read_text())
    wanted = SPARE_INSTANCES + INSTANCES_A_NODE * nodes
    if found < wanted:
        if not keep.exists():
            keep.write_text(f"{found}\n")
        INOTIFY_INSTANCES.write_text(f"{wanted}\n")


def put_back(keep: Path) -> None:
    """Set the limit to what it was before `make_room` (nothing to do if that file isn't there)."""
    try:
        before = int(keep.read_text())
    except (FileNotFoundError, ValueError):
        return
    INOTIFY_INSTANCES.write_text(f"{before}\n")
    keep.unlink()
