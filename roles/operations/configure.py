"""Bring a role's configuration tree and units to the plan: one round trip to compare, then only what is needed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Literal

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.jobs import RunningJobs
from roles.facts.node_state import FileTexts, NodeState, State
from roles.operations.notes import (
    DRIFT_REPORT,
    defer,
    differs,
    lines_of_difference,
    shown,
    tree_differences,
    unit_differences,
)
from roles.operations.settle import Unit, settle_commands
from roles.operations.tree import Difference, Tree, differences, tar_of, write_script

Disturbs = Literal["nobody", "jobs here", "every job"]
LATER = "pyinfra INVENTORY deploys/site.py -y"


@operation()
def configure(
    plan: Callable[[], Tree],
    units: Sequence[Unit] = (),
    actions: Mapping[str, str] | None = None,
    disturbs: Disturbs = "nobody",
) -> Generator[StringCommand, None, None]:
    """Write what of `plan()` differs, do the actions this made pending (or a dead run left), have the units running.

    `plan` is called when the operation runs, not before: the hardware lock may be younger than the deploy's start.
    `disturbs`: whose jobs a change would disturb; while such jobs run it is put off, and listed at the end of the run.
    """
    wanted = plan()
    found = host.get_fact(NodeState, paths=wanted.paths, units=tuple(unit.name for unit in units))
    change = differences(wanted, found)
    triggers = [*(actions or {}), *(f"restart-{unit.name}" for unit in units)]
    left = [trigger for trigger in triggers if trigger in found.pending]
    note(change, found, units, left)
    if (change or left) and disturbs != "nobody" and put_off(change.paths or left, disturbs):
        return
    found.pending += [trigger for trigger in change.triggers if trigger not in found.pending]
    commands = settle_commands(units, actions or {}, found)
    if not change and not commands:
        host.noop(f"{len(wanted.paths)} paths are as they should be, {len(units)} units run, nothing is pending")
    if change:
        command = sh(write_script(change))
        if change.files:
            command.connector_arguments["_stdin"] = tar_of(change.files)
        yield command
    for text in commands:
        yield sh(text)


def note(change: Difference, found: State, units: Sequence[Unit], left: Sequence[str]) -> None:
    """Write down what differs; a drift run gets the lines of files, too, but never those of a secret."""
    texts: dict[str, str] = {}
    if host.data.get(DRIFT_REPORT) and (paths := shown(change.files, found)):
        texts = host.get_fact(FileTexts, paths=paths)
    for what, was, wanted in tree_differences(change, found):
        new = next((file.content for file in change.files if file.path == what and what in texts), "")
        differs(what, was, wanted, lines_of_difference(texts[what], new) if what in texts else ())
    for what, was, wanted in unit_differences([unit.name for unit in units], found):
        differs(what, was, wanted)
    for trigger in left:
        differs(trigger, "left by an earlier run", "done")


def put_off(what: Sequence[str], disturbs: Disturbs) -> bool:
    """Whether jobs run that a change would disturb; then it is noted, and this operation does nothing."""
    jobs = host.get_fact(RunningJobs, everywhere=disturbs == "every job")
    if not jobs:
        return False
    again = f"{LATER} --limit {host.name}" if disturbs == "jobs here" else LATER
    defer(", ".join(what) or "restart of a service", f"{jobs.words}: wait for the end, or drain", again)
    host.noop(f"put off: {jobs.words}")
    return True


def sh(script: str) -> StringCommand:
    """A shell script as one word, so that it also runs whole behind sudo."""
    return StringCommand("sh", "-c", shlex.quote(script))
