"""A tree of configuration files: what of it a node lacks, and the script that writes just that."""

from __future__ import annotations

import base64
import hashlib
import io
import shlex
import tarfile
import textwrap
from dataclasses import dataclass

from roles.facts.node_state import PENDING, FileState, State
from roles.operations.before import remember

NEW = ".klaster-new"
"""Suffix of a file that is being written; renamed over the old one when it is complete."""


@dataclass(frozen=True)
class File:
    """A file with its whole content. `triggers` are remembered on the node until `configure` has done them."""

    path: str
    content: str
    mode: str = "644"
    owner: str = "root"
    group: str = "root"
    triggers: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


@dataclass(frozen=True)
class Directory:
    path: str
    mode: str = "755"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class Tree:
    """What must be there, and `absent` paths (files) that must not."""

    files: tuple[File, ...] = ()
    directories: tuple[Directory, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files] + [d.path for d in self.directories] + list(self.absent)


@dataclass(frozen=True)
class Difference:
    files: tuple[File, ...]
    directories: tuple[Directory, ...]
    absent: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.files or self.directories or self.absent)

    @property
    def paths(self) -> list[str]:
        return [*(file.path for file in self.files), *(d.path for d in self.directories), *self.absent]

    @property
    def triggers(self) -> list[str]:
        return list(dict.fromkeys(trigger for file in self.files for trigger in file.triggers))


def differences(wanted: Tree, found: State) -> Difference:
    """The parts of `wanted` that the node does not have as they should be."""
    return Difference(
        files=tuple(file for file in wanted.files if not _same_file(file, found.files.get(file.path))),
        directories=tuple(d for d in wanted.directories if not _same_directory(d, found.files.get(d.path))),
        absent=tuple(path for path in wanted.absent if path in found.files),
    )


def _same_file(file: File, found: FileState | None) -> bool:
    return (
        found is not None
        and found.kind.startswith("regular")
        and found.sha256 == file.sha256
        and (found.mode, found.owner, found.group) == (file.mode, file.owner, file.group)
    )


def _same_directory(directory: Directory, found: FileState | None) -> bool:
    return (
        found is not None
        and found.kind == "directory"
        and (found.mode, found.owner, found.group) == (directory.mode, directory.owner, directory.group)
    )


def write_script(change: Difference) -> str:
    """A shell script that makes the change; the files' contents come as a base64 tar on its standard input.

    Contents never stand in a command line (secrets). Triggers are remembered before a file changes, so that a run
    that dies in between is finished by the next one.
    """
    lines = ["set -e", "umask 022", *remember(change.paths), f"mkdir -p {PENDING}"]
    for directory in change.directories:
        lines.append(
            f"install -d -m {directory.mode} -o {shlex.quote(directory.owner)} -g {shlex.quote(directory.group)} "
            + shlex.quote(directory.path)
        )
    if change.files:
        lines.append("base64 -d | tar -x -p -m -C / -f -")
    lines += [f": > {shlex.quote(f'{PENDING}/{trigger}')}" for trigger in change.triggers]
    lines += [f"mv -f -T {shlex.quote(file.path + NEW)} {shlex.quote(file.path)}" for file in change.files]
    lines += [f"rm -f {shlex.quote(path)}" for path in change.absent]
    return "\n".join(lines)


def tar_of(files: tuple[File, ...]) -> str:
    """The files as a base64 tar (lines of 76), each under its path with the suffix of an unfinished file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in files:
            data = file.content.encode()
            member = tarfile.TarInfo(file.path.lstrip("/") + NEW)
            member.size, member.mode = len(data), int(file.mode, 8)
            member.uname, member.gname = file.owner, file.group
            archive.addfile(member, io.BytesIO(data))
    return "\n".join(textwrap.wrap(base64.b64encode(buffer.getvalue()).decode(), 76))
