"""What a node has where shared folders and scratch are to be: mounts, homes, disks, and how a folder may be used."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

UNITS = "/etc/systemd/system"
MARK = "# Written by klaster"


@dataclass(frozen=True)
class Mount:
    source: str
    fstype: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class MountUnit:
    """A mount unit that klaster wrote: the place and the options in it."""

    where: str
    options: str = ""


@dataclass
class Disk:
    """A block device; `blank`: no signature of anything, no partition, nothing but zeros at both ends."""

    fstype: str = ""
    label: str = ""
    table: str = ""
    blank: bool = False
    used: tuple[str, ...] = ()
    """Its partitions and where it is mounted."""


@dataclass
class StorageState:
    mounts: dict[str, Mount] = field(default_factory=dict)
    """Mount point → the mount that is seen there."""
    accounts: dict[str, str] = field(default_factory=dict)
    """Local account → home directory."""
    local: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Wanted path that nothing is mounted at → names in it that hold more than a fresh home does."""
    disks: dict[str, Disk] = field(default_factory=dict)
    """Wanted disks that are there."""
    units: dict[str, MountUnit] = field(default_factory=dict)
    """File of a mount unit that klaster wrote → what it says."""


# A fresh home has these three files; the search stops at the first other one.
_CONTENT = 'find "$e" -xdev ! -type d ! -name .bashrc ! -name .profile ! -name .bash_logout -print -quit'
_LOCAL = (
    'for p in PATHS; do grep -q " $p " /proc/self/mounts && continue; for e in "$p"/* "$p"/.[!.]*; do '
    f'[ -e "$e" ] && [ "${{e##*/}}" != lost+found ] || continue; '
    f'[ -z "$(timeout 20 {_CONTENT})" ] || echo "L|$p|${{e##*/}}"; done; done'
)
_UNITS = (
    f"grep -ls '^{MARK}' {UNITS}/*.mount | while read -r f; do "
    'echo "W|$f|$(sed -n s/^Where=//p "$f")|$(sed -n s/^Options=//p "$f")"; done'
)
_DISKS = (
    'for d in DISKS; do [ -b "$d" ] || continue; echo "D|$d"; '
    'blkid -p -o export "$d" 2>/dev/null | sed "s#^#K|$d|#"; '
    'lsblk -nrpo NAME,MOUNTPOINTS "$d" | sed "1s#^[^ ]* *##" | sed "s#^#C|$d|#"; '
    's=$(($(blockdev --getsize64 "$d") / 1048576)); '
    'for at in 0 $((s - 1)); do dd if="$d" bs=1M count=1 skip="$at" 2>/dev/null; done '
    "| tr -d '\\000' | head -c 1 | wc -c | sed \"s#^#Z|$d|#\"; done"
)


class StorageHere(FactBase[StorageState]):
    """All of it in one round trip; nothing in it touches a mounted shared folder, whose server may be dead."""

    @staticmethod
    def default() -> StorageState:
        return StorageState()

    def command(self, paths: Sequence[str], disks: Sequence[str]) -> str:
        parts = ["sed 's/^/M|/' /proc/self/mounts", "sed 's/^/U|/' /etc/passwd"]
        parts += [_UNITS]
        parts += [_LOCAL.replace("PATHS", shlex.join(paths))] if paths else []
        parts += [_DISKS.replace("DISKS", shlex.join(disks))] if disks else []
        return "; ".join([*parts, "true"])

    def process(self, output: list[str]) -> StorageState:
        return parse_storage(output)


def parse_storage(lines: Sequence[str]) -> StorageState:
    """Parse lines of mounts (M|), passwd (U|), local content (L|), units (W|) and disks (D|, K|, C|, Z|)."""
    found = StorageState()
    for line in lines:
        tag, _, rest = line.partition("|")
        first, _, value = rest.partition("|")
        if tag == "M":
            source, point, fstype, options, *_ = rest.split()
            found.mounts[point] = Mount(source, fstype, tuple(options.split(",")))
        elif tag == "U" and rest.count(":") == 6:
            found.accounts[rest.split(":")[0]] = rest.split(":")[5]
        elif tag == "L":
            found.local[first] = (*found.local.get(first, ()), value)
        elif tag == "W":
            where, _, options = value.partition("|")
            found.units[first] = MountUnit(where, options)
        elif tag == "D":
            found.disks[rest] = Disk()
        elif tag in ("K", "C", "Z"):
            _read_disk(found.disks[first], tag, value)
    return found


def _read_disk(disk: Disk, tag: str, value: str) -> None:
    name, _, text = value.partition("=")
    if tag == "K":
        disk.fstype = text if name == "TYPE" else disk.fstype
        disk.label = text if name == "LABEL" else disk.label
        disk.table = text if name == "PTTYPE" else disk.table
    elif tag == "C" and value.strip():
        disk.used = (*disk.used, value.strip())
    elif tag == "Z":
        disk.blank = value == "0" and not (disk.fstype or disk.table or disk.used)
