"""Bring a role's configuration tree and units to the plan: one round trip to compare, then only what is needed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Mapping, Sequence

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.node_state import NodeState
from roles.operations.settle import Unit, settle_commands
from roles.operations.tree import Tree, differences, tar_of, write_script


@operation()
def configure(
    plan: Callable[[], Tree], units: Sequence[Unit] = (), actions: Mapping[str, str] | None = None
) -> Generator[StringCommand, None, None]:
    """Write what of `plan()` differs, do the actions this made pending (or a dead run left), have the units running.

    `plan` is called when the operation runs, not before: the hardware lock may be younger than the deploy's start.
    """
    wanted = plan()
    found = host.get_fact(NodeState, paths=wanted.paths, units=tuple(unit.name for unit in units))
    change = differences(wanted, found)
    if change:
        command = sh(write_script(change))
        if change.files:
            command.connector_arguments["_stdin"] = tar_of(change.files)
        yield command
    found.pending += [trigger for trigger in change.triggers if trigger not in found.pending]
    commands = settle_commands(units, actions or {}, found)
    if not change and not commands:
        host.noop(f"{len(wanted.paths)} paths are as they should be, {len(units)} units run, nothing is pending")
    for text in commands:
        yield sh(text)


def sh(script: str) -> StringCommand:
    """A shell script as one word, so that it also runs whole behind sudo."""
    return StringCommand("sh", "-c", shlex.quote(script))
