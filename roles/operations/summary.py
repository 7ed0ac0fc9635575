"""The end of a run in one table: what became of each role on each node, and which changes wait for a quiet moment."""

from __future__ import annotations

import atexit
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pyinfra.api.host import Host
from pyinfra.api.state import State, StateStage
from pyinfra.context import host

from roles.operations.notes import DRIFT_REPORT, NOTES, Deferral, Difference

Outcome = Literal["failed", "skipped", "deferred", "changed", "unchanged"]
OUTCOMES: tuple[Outcome, ...] = ("unchanged", "changed", "deferred", "failed", "skipped")
_WORST: tuple[Outcome, ...] = ("failed", "skipped", "deferred", "changed", "unchanged")
UNREACHED = "not reached"


@dataclass
class Run:
    """A run as it ended: role → node → outcome, in the deploy's order, and the nodes that no ssh reached."""

    roles: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    unreached: tuple[str, ...] = ()


Places = Mapping[tuple[int, int], str]
"""(number of the deploy on the command line, line in it) → role."""


def roles_by_line(deploy: str, number: int = 0) -> dict[tuple[int, int], str]:
    """The place of each line of a deploy's text that calls a role (`slurm.deploy()`)."""
    calls = ((line, re.match(r"\s*(\w+)\.deploy", text)) for line, text in enumerate(deploy.splitlines(), 1))
    return {(number, line): found[1] for line, found in calls if found}


def summarise_at_end(deploy_file: str) -> None:
    """Call at the end of a deploy: once a process, when all is over, its table is the last thing that is said."""
    state = host.state
    if host.name != next(iter(state.inventory.get_active_hosts())).name:
        return
    lines = roles_by_line(Path(deploy_file).read_text(encoding="utf-8"), state.current_op_file_number)
    report = host.data.get(DRIFT_REPORT)
    if report:
        atexit.register(_write_drift, state, lines, Path(report))
    else:
        atexit.register(_say, state, lines)


# --- what a run was --------------------------------------------------------------------------------------------------


def read_run(state: State, lines: Places, deferrals: Iterable[Deferral]) -> Run:
    """What pyinfra knows of a run after its end."""
    put_off = {(deferral.node, deferral.operation) for deferral in deferrals}
    run = Run()
    for op_hash in _order(state):
        role = _role(state, lines, op_hash)
        for node, operations in state.ops.items():
            if role and op_hash in operations:
                outcome = _outcome(node, operations[op_hash].operation_meta, (node.name, op_hash) in put_off)
                nodes = run.roles.setdefault(role, {})
                nodes[node.name] = min(outcome, nodes.get(node.name, "unchanged"), key=_WORST.index)
    limited = [node for node in state.inventory if state.is_host_in_limit(node)]
    run.unreached = tuple(node.name for node in limited if node not in state.activated_hosts)
    return run


def _order(state: State) -> list[str]:
    order: list[str] = state.get_op_order()  # type: ignore[no-untyped-call]
    return order


def _role(state: State, lines: Places, op_hash: str) -> str:
    """The role that an operation belongs to, by the line of the deploy it was called from."""
    place = state.op_meta[op_hash].op_order  # the deploy's number on the command line, then line numbers
    return lines.get((place[0], place[1]), "") if len(place) > 1 else ""


def _outcome(node: Host, meta: object, deferred: bool) -> Outcome:
    if not meta.is_complete():  # type: ignore[attr-defined]
        return "skipped"
    if not meta.did_succeed():  # type: ignore[attr-defined]
        return "failed"
    if deferred:
        return "deferred"
    return "changed" if meta.did_change() else "unchanged"  # type: ignore[attr-defined]


# --- what is said of it ----------------------------------------------------------------------------------------------


def short(names: Iterable[str]) -> str:
    """Names as Slurm folds them, in their order of numbers: n1, n2, n3, head → head, n[1-3]."""
    plain: list[str] = []
    numbered: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        found = re.fullmatch(r"(.*?)(\d+)", name)
        if found:
            numbered.setdefault(found[1], []).append(found[2])
        else:
            plain.append(name)
    return ", ".join([*sorted(plain), *(_folded(prefix, digits) for prefix, digits in sorted(numbered.items()))])


def _folded(prefix: str, digits: Sequence[str]) -> str:
    width = len(digits[0]) if any(one.startswith("0") for one in digits) else 0
    ranges: list[list[int]] = []
    for number in sorted(int(one) for one in digits):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    words = ["-".join(str(end).zfill(width) for end in ends) for ends in ranges]
    return f"{prefix}[{','.join(words)}]" if len(digits) > 1 else f"{prefix}{words[0]}"


def table(run: Run, deferrals: Sequence[Deferral]) -> str:
    """A line a role in which something happened, one for all the others; then what was put off and what was missed."""
    quiet = [role for role, nodes in run.roles.items() if set(nodes.values()) == {"unchanged"}]
    rows = [(role, nodes) for role, nodes in run.roles.items() if role not in quiet]
    every = {node for nodes in run.roles.values() for node in nodes} | set(run.unreached)
    width = max([len(role) for role, _ in rows] + [len("unchanged")])
    said = ["", f"Summary: {_counted(len(every), 'node')}, {_counted(len(run.roles), 'role')}"]
    for role, nodes in rows:
        words = [f"{outcome} on {short(there)}" for outcome in OUTCOMES if (there := _where(nodes, outcome))]
        said.append(f"  {role:<{width}}  {'; '.join(words)}")
    if quiet:
        said.append(f"  {'unchanged':<{width}}  {', '.join(quiet)}")
    if run.unreached:
        said.append(f"  {UNREACHED}: {short(run.unreached)}; the next run brings them up to date")
    return "\n".join([*said, *_deferred_lines(deferrals)])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _where(nodes: Mapping[str, Outcome], outcome: Outcome) -> list[str]:
    return [node for node, found in nodes.items() if found == outcome]


def _deferred_lines(deferrals: Sequence[Deferral]) -> list[str]:
    """The same change on many nodes is one line."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for deferral in deferrals:
        alike.setdefault((deferral.what, deferral.why, deferral.command), []).append(deferral.node)
    if not alike:
        return []
    lines = ["Put off, or left for you to do:"]
    for (what, why, command), nodes in alike.items():
        lines += [f"  {short(nodes)}: {what} ({why})", f"    then: {command}"]
    return lines


def _say(state: State, lines: Places) -> None:
    if state.current_stage < StateStage.Execute or not state.is_executing:
        return  # a dry run, or one that was not confirmed
    deferrals = tuple(NOTES.deferrals)
    if NOTES.stopped:
        print(f"\nStopped, nothing more was done: {NOTES.stopped}", file=sys.stderr, flush=True)
    run = read_run(state, lines, deferrals)
    if run.roles:
        print(table(run, deferrals), file=sys.stderr, flush=True)


# --- drift -----------------------------------------------------------------------------------------------------------


def read_drift(state: State, lines: Places, differences: Iterable[Difference]) -> list[dict[str, object]]:
    """Every difference with its role; an operation that would change and said no more is one, under its name."""
    noted = list(differences)
    told = {(difference.node, difference.operation) for difference in noted}
    for op_hash in _order(state):
        for node, operations in state.ops.items():
            would = op_hash in operations and operations[op_hash].operation_meta._maybe_is_change
            if would and (node.name, op_hash) not in told:
                name = ", ".join(sorted(state.op_meta[op_hash].names))
                noted.append(Difference(node.name, op_hash, name, "not done", "done"))
    return [{**asdict(one), "role": _role(state, lines, one.operation)} for one in noted]


def _write_drift(state: State, lines: Places, path: Path) -> None:
    """For bin/drift, which started this run: what was found, and which nodes could not be asked."""
    limited = [node for node in state.inventory if state.is_host_in_limit(node)]
    silent = [node.name for node in limited if node not in state.active_hosts]
    document = {
        "asked": [node.name for node in limited if node in state.active_hosts],
        "not_asked": silent,
        "differences": read_drift(state, lines, NOTES.differences),
    }
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
