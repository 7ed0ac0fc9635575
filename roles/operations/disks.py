"""Stop where something would be lost, unmount what nobody uses, make scratch on a disk that is blank or klaster's."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Mapping, Sequence

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.storage import SCRATCH, SCRATCH_LABEL
from roles.facts.jobs import RunningJobs
from roles.facts.storage import Disk, StorageHere
from roles.operations.configure import sh


@operation()
def stop_if(refusals: Callable[[], Sequence[str]]) -> Generator[StringCommand, None, None]:
    """Fail this host with the sentences, if there are any."""
    said = refusals()
    if not said:
        host.noop("nothing is in the way")
        return
    yield sh(f"echo {shlex.quote('; '.join(said))} >&2; exit 1")


UNMOUNT_WITHIN_S = 60


@operation()
def unmount(outdated: Callable[[], Mapping[str, str]], node: str) -> Generator[StringCommand, None, None]:
    """Unmount what is mounted otherwise than it is to be; in use, or while jobs run, fail in a sentence instead.

    `outdated()`: mount point → what is to become of it, e.g. "is to be mounted with other options".
    """
    found = outdated()
    if not found:
        host.noop("nothing is mounted otherwise than it is to be")
        return
    jobs = host.get_fact(RunningJobs, everywhere=False)
    for path, what in found.items():
        if jobs:
            why = f"{path} of {node} {what}, but {jobs.words} there: wait for the end, or drain, and run this again"
            yield sh(f"echo {shlex.quote(why)} >&2; exit 1")
        else:
            yield sh(unmount_command(path, what, node))


def unmount_command(path: str, what: str, node: str) -> str:
    """A plain umount, never lazy or forced; the links in /proc say who is in the way without asking the server."""
    quoted, below = shlex.quote(path), shlex.quote(f"{path}/*")
    links = "/proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/exe /proc/[0-9]*/fd/"
    users = (
        f"p=$(find {links} -lname {quoted} -o -lname {below} 2>/dev/null | cut -d/ -f3 | sort -nu | head -n 5 "
        '| while read -r n; do echo "$(stat -c %U /proc/$n) runs $(cat /proc/$n/comm) ($n)"; done '
        "| paste -sd, | sed 's/,/, /g')"
    )
    why = shlex.quote(f"{path} of {node} {what}, but it can't be unmounted: ")
    rest = '"${p:-its server does not answer, or the kernel holds it}; end what uses it and run this again"'
    return (
        f"timeout {UNMOUNT_WITHIN_S} umount {quoted} 2>/dev/null || ! grep -q {shlex.quote(f' {path} ')} "
        f"/proc/self/mounts || {{ {users}; echo {why}{rest} >&2; exit 1; }}"
    )


def refuse_disk(disk: str, node: str, found: Disk | None) -> str:
    """Why scratch can't be made there; empty if it can, or is there already."""
    if found is None:
        return f"{node} has no disk {disk} for {SCRATCH}: correct scratch_disk in the inventory (lsblk shows the disks)"
    if found.blank or is_ours(found):
        return ""
    parts = [f"a file system {found.fstype}" + (f' "{found.label}"' if found.label else "")] if found.fstype else []
    parts += [f"a partition table ({found.table})"] if found.table else []
    parts += [f"in use: {', '.join(found.used[:3])}"] if found.used else []
    return (
        f"{disk} of {node} is not blank ({'; '.join(parts) or 'data at its begin or end'}) and {SCRATCH} is only made "
        f"on a blank disk: if nothing on it is needed, wipe it yourself (wipefs -a {disk}), or name another"
    )


def is_ours(found: Disk) -> bool:
    return found.fstype == "ext4" and found.label == SCRATCH_LABEL


def make_command(disk: str) -> str:
    """mkfs, which looks once more: nothing may have been put on the disk since it was looked at."""
    quoted = shlex.quote(disk)
    filled = (
        f"if blkid -p {quoted} >/dev/null; then echo {shlex.quote(f'{disk} is not blank any more')} >&2; exit 1; fi"
    )
    make = f"mkfs.ext4 -q -m 0 -L {SCRATCH_LABEL} {quoted}"
    open_to_all = f"d=$(mktemp -d); mount {quoted} $d; chmod 1777 $d; umount $d; rmdir $d"
    return f"set -e; {filled}; {make}; {open_to_all}; udevadm settle -t 10"


@operation()
def scratch_disk(disk: str, node: str) -> Generator[StringCommand, None, None]:
    """A file system with klaster's label on the disk; refused in a sentence if anything else is on it."""
    found = host.get_fact(StorageHere, paths=(), disks=(disk,)).disks.get(disk)
    if why := refuse_disk(disk, node, found):
        yield sh(f"echo {shlex.quote(why)} >&2; exit 1")
    elif found is not None and is_ours(found):
        host.noop(f"{disk} holds scratch")
    else:
        yield sh(make_command(disk))
