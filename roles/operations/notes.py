"""What operations note while they run, for the end of the run: differences they found, and changes they put off."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyinfra.context import host

from roles.facts.node_state import State, UnitState
from roles.operations.tree import Difference as Change
from roles.operations.tree import File

DRIFT_REPORT = "drift_report"
"""Host data: the file that a drift run writes what it found to."""
MOST_LINES = 20
SECRET_MODES = ("600", "640", "400", "440")
"""The content of files with these modes is never shown, only that it differs."""


@dataclass(frozen=True)
class Difference:
    """One thing on one node that is not as the inventory says."""

    node: str
    operation: str
    """Hash of the operation that found it; its place in the deploy says which role it belongs to."""
    what: str
    was: str
    wanted: str
    lines: tuple[str, ...] = ()
    """Lines of a file that differ, as diff shows them."""


@dataclass(frozen=True)
class Deferral:
    """One change that was not made because it would disturb a job, and the command that makes it."""

    node: str
    operation: str
    what: str
    why: str
    command: str


@dataclass
class Notes:
    """Dictionaries as ordered sets: an operation is asked while it is prepared and again when it runs."""

    differences: dict[Difference, None] = field(default_factory=dict)
    deferrals: dict[Deferral, None] = field(default_factory=dict)
    stopped: str = ""
    """Why an operation ended the run on every node."""


NOTES = Notes()
"""Of this process, which is one run of pyinfra."""


def differs(what: str, was: str, wanted: str, lines: Sequence[str] = ()) -> None:
    """Note, from inside an operation, that something is not as it should be."""
    NOTES.differences[Difference(host.name, str(host.current_op_hash), what, was, wanted, tuple(lines))] = None


def defer(what: str, why: str, command: str) -> None:
    """Note, from inside an operation, that a change waits, why, and what makes it."""
    NOTES.deferrals[Deferral(host.name, str(host.current_op_hash), what, why, command)] = None


def tree_differences(change: Change, found: State) -> list[tuple[str, str, str]]:
    """(what, was, wanted) of every path that differs."""
    told = [(file.path, *_file_words(file, found)) for file in change.files]
    for directory in change.directories:
        state = found.files.get(directory.path)
        was = f"{state.kind} {state.mode} {state.owner}:{state.group}" if state else "not there"
        told.append((directory.path, was, f"directory {directory.mode} {directory.owner}:{directory.group}"))
    return [*told, *((path, "there", "not there") for path in change.absent)]


def _file_words(file: File, found: State) -> tuple[str, str]:
    state = found.files.get(file.path)
    if state is None:
        return "not there", f"file {file.mode} {file.owner}:{file.group}"
    if not state.kind.startswith("regular"):
        return state.kind, "regular file"
    was, wanted = [], []
    if state.sha256 != file.sha256:
        was.append(f"content {state.sha256[:12]}")
        wanted.append(f"content {file.sha256[:12]}")
    if (state.mode, state.owner, state.group) != (file.mode, file.owner, file.group):
        was.append(f"{state.mode} {state.owner}:{state.group}")
        wanted.append(f"{file.mode} {file.owner}:{file.group}")
    return ", ".join(was), ", ".join(wanted)


def unit_differences(units: Sequence[str], found: State) -> list[tuple[str, str, str]]:
    """(what, was, wanted) of every unit that does not run or is not enabled."""
    told = []
    for unit in units:
        state = found.units.get(unit, UnitState("", "", ""))
        if state.active != "active":
            told.append((unit, state.active or "not there", "active"))
        if state.enabled not in ("enabled", "static", "indirect", "generated", "alias"):
            told.append((unit, state.enabled or "not enabled", "enabled"))
    return told


def shown(files: Sequence[File], found: State) -> tuple[str, ...]:
    """Paths of `files` whose content is another one and may be shown to whoever runs the deploy."""
    return tuple(
        file.path
        for file in files
        if file.mode not in SECRET_MODES and file.path in found.files and found.files[file.path].sha256 != file.sha256
    )


def lines_of_difference(was: str, wanted: str) -> list[str]:
    """The lines that go (-) and come (+), without context."""
    every = difflib.unified_diff(was.splitlines(), wanted.splitlines(), lineterm="", n=0)
    changed = [line for line in every if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    more = [f"… {len(changed) - MOST_LINES} more lines"] if len(changed) > MOST_LINES else []
    return changed[:MOST_LINES] + more
