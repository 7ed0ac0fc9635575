"""One command that collects the state a role compares itself with: files, packages, units, pending actions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

PENDING = "/var/lib/klaster/pending"
"""Folder of remembered actions: a file a restart or command that a change made necessary and nobody did yet.

pyinfra forgets a pending restart when a run dies between the change and the restart; a file on the node does not.
"""


@dataclass(frozen=True)
class FileState:
    kind: str
    """As stat says: regular file, regular empty file, directory, symbolic link."""
    mode: str
    owner: str
    group: str
    sha256: str = ""


@dataclass(frozen=True)
class UnitState:
    load: str
    active: str
    enabled: str


@dataclass
class State:
    files: dict[str, FileState] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    """Wanted packages that are properly installed, with their version."""
    broken: list[str] = field(default_factory=list)
    """Packages that an interrupted dpkg left half-way."""
    units: dict[str, UnitState] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)


class NodeState(FactBase[State]):
    """State of the named paths, packages and units, and the pending actions, in one round trip."""

    @staticmethod
    def default() -> State:
        return State()

    def command(self, paths: Sequence[str] = (), packages: Sequence[str] = (), units: Sequence[str] = ()) -> str:
        parts = [f"ls {PENDING} 2>/dev/null | sed 's/^/A|/'"]
        if paths:
            quoted = shlex.join(paths)
            parts.append(f"stat -c 'F|%n|%F|%a|%U|%G' -- {quoted} 2>/dev/null")
            parts.append(f"sha256sum -- {quoted} 2>/dev/null | sed 's/^/S|/'")
        if packages:
            query = "dpkg-query -W -f='D|${db:Status-Abbrev}|${Package}|${Version}\\n'"
            names = "|".join(packages).replace("+", "[+]").replace(".", "[.]")
            # Also whatever an interrupted dpkg left: any state but installed, removed-with-configuration, unknown.
            parts.append(f"{query} | grep -E -e '^D[|].[^inc]' -e '^D[|][^|]*[|]({names})[|]'")
        if units:
            show = "systemctl show -p LoadState,ActiveState,UnitFileState --"
            for unit in units:
                name = shlex.quote(unit)
                parts.append(f"echo 'U|'{name}'|'\"$({show} {name} | tr '\\n' '|')\"")
        return "; ".join([*parts, "true"])

    def process(self, output: list[str]) -> State:
        return parse_state(output)


def parse_state(lines: Sequence[str]) -> State:
    """Parse NodeState's output: lines tagged A (pending), F (stat), S (sha256), D (dpkg), U (unit)."""
    state = State()
    hashes: dict[str, str] = {}
    for line in lines:
        tag, _, rest = line.partition("|")
        if tag == "A":
            state.pending.append(rest)
        elif tag == "F":
            path, kind, mode, owner, group = rest.rsplit("|", 4)
            state.files[path] = FileState(kind, mode, owner, group)
        elif tag == "S":
            digest, _, path = rest.partition("  ")
            hashes[path] = digest
        elif tag == "D":
            _read_package(state, rest)
        elif tag == "U":
            name, _, fields = rest.partition("|")
            values = dict(part.partition("=")[::2] for part in fields.split("|") if part)
            state.units[name] = UnitState(
                values.get("LoadState", ""), values.get("ActiveState", ""), values.get("UnitFileState", "")
            )
    for path, digest in hashes.items():
        if path in state.files:
            found = state.files[path]
            state.files[path] = FileState(found.kind, found.mode, found.owner, found.group, digest)
    return state


def _read_package(state: State, text: str) -> None:
    status, package, version = text.split("|", 2)
    # Second letter: the package's state; third: an error flag. "ii " is installed, "hi " is installed and held.
    if status[1:2] == "i" and status[2:3] in ("", " "):
        state.packages[package] = version
    elif status[1:2] not in ("n", "c"):
        state.broken.append(package)


class FileTexts(FactBase[dict[str, str]]):
    """Contents of text files, path → text; for files without secrets."""

    @staticmethod
    def default() -> dict[str, str]:
        return {}

    def command(self, paths: Sequence[str]) -> str:
        each = "; ".join(f"echo 'P|'{shlex.quote(path)}; sed 's/^/L|/' {shlex.quote(path)}" for path in paths)
        return f"{{ {each}; }} 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, str]:
        texts: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in output:
            tag, _, rest = line.partition("|")
            if tag == "P":
                lines = texts.setdefault(rest, [])
            elif tag == "L":
                lines.append(rest)
        return {path: "\n".join(text) + "\n" for path, text in texts.items()}
