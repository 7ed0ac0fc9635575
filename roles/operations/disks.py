"""Stop where something would be lost, and a scratch file system on a disk that is blank or was made by klaster."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Sequence

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.storage import SCRATCH, SCRATCH_LABEL
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
