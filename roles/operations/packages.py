"""Install a role's Debian packages in one go, after repairing what an interrupted run left half-way."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence

from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.node_state import NodeState, State
from roles.operations.before import recorded
from roles.operations.notes import differs

LOCK_TIMEOUT_S = 300
APT = (
    "DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout="
    f"{LOCK_TIMEOUT_S} -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
)
# dpkg does not wait for its lock, and an apt of the run before may still be at work: repeat for as long as apt would.
REPAIR = (
    f"n=0; until DEBIAN_FRONTEND=noninteractive dpkg --configure -a --force-confdef --force-confold; "
    f'do n=$((n+1)); [ "$n" -lt {LOCK_TIMEOUT_S // 5} ] || exit 1; sleep 5; done; {APT} --fix-broken install'
)
# Package lists of the last day are good enough; older ones, or none, are fetched.
UPDATE = (
    "if [ -z \"$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mmin -1440 -print -quit)\" ]; "
    f"then {APT} update; fi"
)


def install_commands(wanted: Sequence[str], found: State, first: Sequence[str] = ()) -> list[str]:
    """Shell commands that lead from the found state to all `wanted` packages installed; empty if they are.

    `first` are commands for the moment before something is installed.
    """
    commands = []
    if found.broken:
        commands.append(REPAIR)
    missing = sorted(set(wanted) - set(found.packages))
    if missing:
        install = f"{APT} --no-install-recommends install {shlex.join(missing)}"
        # A list of yesterday may name a version that the mirror has replaced: fetch lists once more, try again.
        commands += first
        commands.append(recorded(f"{UPDATE} && {{ {install} || {{ {APT} update && {install}; }}; }}"))
    return commands


@operation()
def packages(wanted: Sequence[str], first: Sequence[str] = ()) -> Generator[str, None, None]:
    """Install the `wanted` packages that are missing, without recommended ones, after the commands of `first`."""
    found = host.get_fact(NodeState, packages=tuple(wanted))
    commands = install_commands(wanted, found, first)
    for package in found.broken:
        differs(f"package {package}", "half-installed", "installed")
    for package in sorted(set(wanted) - set(found.packages) - set(found.broken)):
        differs(f"package {package}", "not installed", "installed")
    if not commands:
        host.noop(f"{len(wanted)} packages are installed")
    yield from commands
