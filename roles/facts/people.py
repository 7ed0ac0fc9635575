"""What a node knows of people by itself, and what the cluster's directory holds."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

Attributes = Mapping[str, tuple[str, ...]]
Entries = Mapping[str, Attributes]
"""Distinguished name → attribute → values."""


@dataclass
class LocalPeople:
    users: dict[str, int] = field(default_factory=dict)
    """Local account → uid."""
    groups: dict[str, int] = field(default_factory=dict)
    homes: set[str] = field(default_factory=set)
    """Names of the folders below the folder of home directories."""


class PeopleHere(FactBase[LocalPeople]):
    """Local accounts and groups, and which home directories there are, in one round trip."""

    @staticmethod
    def default() -> LocalPeople:
        return LocalPeople()

    def command(self, homes: str) -> str:
        return (
            "sed 's/^/U|/' /etc/passwd; sed 's/^/G|/' /etc/group; "
            f"timeout 20 ls -1 -- {shlex.quote(homes)} 2>/dev/null | sed 's/^/H|/'; true"
        )

    def process(self, output: list[str]) -> LocalPeople:
        return parse_local(output)


def parse_local(lines: Sequence[str]) -> LocalPeople:
    """Parse lines of passwd (U|), group (G|) and names of homes (H|)."""
    found = LocalPeople()
    for line in lines:
        tag, _, rest = line.partition("|")
        fields = rest.split(":")
        if tag == "H":
            found.homes.add(rest)
        elif len(fields) > 2 and fields[2].isdigit():
            (found.users if tag == "U" else found.groups)[fields[0]] = int(fields[2])
    return found


READ = "dn objectClass o ou cn uid uidNumber gidNumber homeDirectory loginShell sshPublicKey shadowExpire memberUid"


class DirectoryEntries(FactBase[Entries]):
    """All entries of the directory on the controller, without any password; none while it is not there."""

    @staticmethod
    def default() -> Entries:
        return {}

    def command(self, base: str) -> str:
        search = f"ldapsearch -Q -Y EXTERNAL -H ldapi:/// -LLL -o ldif-wrap=no -b {shlex.quote(base)}"
        return f"timeout 20 {search} '(objectClass=*)' {READ} description 2>/dev/null; true"

    def process(self, output: list[str]) -> Entries:
        return parse_ldif(output)


def parse_ldif(lines: Sequence[str]) -> Entries:
    """Parse unwrapped LDIF; `name:: text` is base64."""
    entries: dict[str, dict[str, tuple[str, ...]]] = {}
    current: dict[str, tuple[str, ...]] = {}
    for line in lines:
        name, mark, value = line.partition(":")
        if not mark or line.startswith("#"):
            continue
        if value.startswith(":"):
            value = base64.b64decode(value[1:].strip()).decode("utf-8", "replace")
        value = value.strip()
        if name == "dn":
            current = entries.setdefault(value, {})
        else:
            current[name] = (*current.get(name, ()), value)
    return entries
