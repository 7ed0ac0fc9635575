"""Upgrade a node's packages: only where nobody computes, and never by taking a package away."""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Sequence

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.operations.configure import put_off, sh
from roles.operations.packages import APT, REPAIR


class Upgradable(FactBase[tuple[str, ...]]):
    """`name: old → new` of each package that an upgrade would change, by the lists as they are after an update."""

    @staticmethod
    def default() -> tuple[str, ...]:
        return ()

    def command(self) -> str:
        return f"{APT} update >/dev/null 2>&1; {APT} -s --with-new-pkgs upgrade 2>/dev/null | grep '^Inst'; true"

    def process(self, output: list[str]) -> tuple[str, ...]:
        return parse_upgradable(output)


def parse_upgradable(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines of apt-get -s: `Inst tzdata [2025a-1] (2025b-1 Debian:13/stable [all])`; new ones have no old version."""
    found = (re.match(r"Inst (\S+)(?: \[([^]]+)\])? \((\S+)", line) for line in lines)
    return tuple(f"{one[1]}: {one[2] or 'new'} → {one[3]}" for one in found if one)


@operation()
def upgrade_packages() -> Generator[StringCommand, None, None]:
    """Upgrade what is not held; put off while jobs run here."""
    waiting = host.get_fact(Upgradable)
    if not waiting:
        host.noop("every package is up to date")
        return
    if put_off([f"upgrade of {len(waiting)} packages"], "jobs here"):
        return
    listed = shlex.quote("\n".join(waiting[:200]))
    yield sh(f"{REPAIR} && {APT} --with-new-pkgs upgrade && printf '%s\\n' {listed}")
