"""Bring the entries of the cluster's directory to the plan with one ldapmodify, which gets them on standard input."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.people import Attributes, DirectoryEntries, Entries
from roles.operations.configure import sh

MODIFY = "ldapmodify -Q -Y EXTERNAL -H ldapi:///"


@dataclass(frozen=True)
class Change:
    """What must be done to one entry: `old` is None for one that is not there."""

    dn: str
    wanted: Attributes
    old: Attributes | None = None
    forget_password: bool = False

    @property
    def differing(self) -> dict[str, tuple[str, ...]]:
        """Attributes that are not as wanted; an empty tuple takes the attribute away."""
        old = self.old or {}
        return {name: values for name, values in self.wanted.items() if set(values) != set(old.get(name, ()))}


@dataclass(frozen=True)
class Plan:
    """Changes in the order in which they must be done, and a sentence if they must not be done at all."""

    changes: tuple[Change, ...] = ()
    refusal: str = ""


def changes(wanted: Sequence[tuple[str, Attributes]], found: Entries) -> tuple[Change, ...]:
    """The entries that are not there or differ; attributes that `wanted` does not name are left alone."""
    every = (Change(dn, attributes, found.get(dn)) for dn, attributes in wanted)
    return tuple(change for change in every if change.old is None or change.differing)


def ldif(changes: Sequence[Change]) -> str:
    """The changes as LDIF for ldapmodify."""
    records = []
    for change in changes:
        lines = [_line("dn", change.dn)]
        if change.old is None:
            lines.append("changetype: add")
            lines += [_line(name, value) for name, values in change.wanted.items() for value in values]
        else:
            lines.append("changetype: modify")
            names = dict(change.differing)
            if change.forget_password:
                names["userPassword"] = ()
            for name, values in names.items():
                lines += [f"replace: {name}", *(_line(name, value) for value in values), "-"]
        records.append("\n".join(lines))
    return "\n\n".join(records) + "\n"


def _line(name: str, value: str) -> str:
    """`name: value`, in base64 where LDIF would misread it."""
    if re.fullmatch(r"[!-9;=-~]([ -~]*[!-~])?", value):
        return f"{name}: {value}"
    return f"{name}:: {base64.b64encode(value.encode()).decode()}"


@operation()
def directory(base: str, plan: Callable[[Entries], Plan]) -> Generator[StringCommand, None, None]:
    """On the directory's own host: make the changes that `plan` finds; a refusal fails the host with its sentence."""
    found = host.get_fact(DirectoryEntries, base=base)
    wanted = plan(found)
    if wanted.refusal:
        yield StringCommand("echo", _quoted(wanted.refusal), ">&2;", "exit 1")
    elif not wanted.changes:
        host.noop(f"{len(found)} entries are as they should be")
    else:
        command = sh(MODIFY)
        command.connector_arguments["_stdin"] = ldif(wanted.changes)
        yield command


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
