"""Folders of teams as they are, and what the file system below a path says of quotas."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase


@dataclass(frozen=True)
class Folder:
    owner: str = ""
    """uid:gid"""
    mode: str = ""
    acl: tuple[str, ...] = ()
    """Entries by number, as `getfacl -cpn` prints them, sorted."""


class FoldersHere(FactBase[dict[str, Folder]]):
    """Owner, mode and access list of folders; those that are not there are missing."""

    @staticmethod
    def default() -> dict[str, Folder]:
        return {}

    def command(self, paths: Sequence[str]) -> str:
        quoted = shlex.join(paths)
        return (
            f"stat -c 'S|%n|%u:%g|%a|%F' -- {quoted} 2>/dev/null; "
            f'for p in {quoted}; do [ -d "$p" ] && getfacl -cpn -- "$p" | sed "s#^#A|$p|#"; done; true'
        )

    def process(self, output: list[str]) -> dict[str, Folder]:
        return parse_folders(output)


def parse_folders(lines: Sequence[str]) -> dict[str, Folder]:
    found: dict[str, tuple[str, str]] = {}
    entries: dict[str, list[str]] = {}
    for line in lines:
        tag, path, *rest = line.split("|")
        if tag == "S":
            found[path] = (rest[0], rest[1] if rest[2] == "directory" else rest[2])
        elif rest and rest[0].strip():
            entries.setdefault(path, []).append(rest[0].strip())
    return {path: Folder(owner, mode, tuple(sorted(entries.get(path, ())))) for path, (owner, mode) in found.items()}


@dataclass
class QuotaState:
    """What the file system of a path does about quotas; limits are in KiB, 0 for none."""

    fstype: str = ""
    target: str = ""
    on: set[str] = field(default_factory=set)
    """Of "user" and "group": which are enforced."""
    accounted: set[str] = field(default_factory=set)
    """Counted, but not enforced."""
    limits: dict[tuple[str, int], int] = field(default_factory=dict)


class QuotasHere(FactBase[dict[str, QuotaState]]):
    """For each path: its file system, whether quotas are on there, and the limits that are set."""

    @staticmethod
    def default() -> dict[str, QuotaState]:
        return {}

    def command(self, paths: Sequence[str]) -> str:
        return (
            f'for p in {shlex.join(paths)}; do findmnt -nro FSTYPE,TARGET -T "$p" | sed "s#^#F|$p|#"; '
            't=$(findmnt -nro TARGET -T "$p"); [ -n "$t" ] || continue; '
            'quotaon -pug "$t" 2>/dev/null | sed "s#^#O|$p|#"; '
            'for k in user group; do repquota -vn --$k "$t" 2>/dev/null | sed "s#^#$k|$p|#"; done; '
            "done; true"
        )

    def process(self, output: list[str]) -> dict[str, QuotaState]:
        return parse_quotas(output)


def parse_quotas(lines: Sequence[str]) -> dict[str, QuotaState]:
    """Parse findmnt (F|), `quotaon -p` (O|) and `repquota -n` (user|, group|: `#10001 -- used soft hard …`)."""
    found: dict[str, QuotaState] = {}
    for line in lines:
        tag, path, text = line.split("|", 2)
        state = found.setdefault(path, QuotaState())
        words = text.split()
        if tag == "F" and len(words) == 2:
            state.fstype, state.target = words
        elif tag == "O" and len(words) > 3 and words[1] == "quota":
            # "user quota on /data (/dev/sdb) is on", or "… is on (enforced)", "… is on (accounting)", "… is off"
            if "is on" in text and "accounting" not in text:
                state.on.add(words[0])
            elif "accounting" in text:
                state.accounted.add(words[0])
        elif tag in ("user", "group") and text.startswith("#") and words[0][1:].isdigit():
            state.limits[tag, int(words[0][1:])] = int(words[4])
    return found
