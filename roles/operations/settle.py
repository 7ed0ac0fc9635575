"""Do what changes made necessary (restarts, reloads, commands), start what must run, and verify that it does."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.facts.node_state import PENDING, State, UnitState

START_DEADLINE_S = 30


@dataclass(frozen=True)
class Unit:
    """A systemd unit that must be enabled and running; restarted when `restart-<name>` is pending."""

    name: str
    start_within_s: int | None = None
    """For a unit that waits for something: a deploy does not wait for ever."""

    def systemctl(self, verb: str) -> str:
        deadline = f"timeout {self.start_within_s} " if self.start_within_s else ""
        return f"{deadline}systemctl {verb} {shlex.quote(self.name)}"


def settle_commands(units: Sequence[Unit], actions: Mapping[str, str], found: State) -> list[str]:
    """Commands, in order: the pending actions of this role, then starts; each marker goes when its action is done.

    `actions` maps a trigger to the shell command that satisfies it, in the order in which they are done; a unit's
    own trigger is `restart-<unit>`. Triggers of other roles stay.
    """
    commands = []
    for trigger, command in actions.items():
        if trigger in found.pending:
            commands.append(_done(trigger, command))
    for unit in units:
        trigger, state = f"restart-{unit.name}", found.units.get(unit.name, UnitState("", "", ""))
        name = shlex.quote(unit.name)
        if trigger in found.pending:
            commands.append(_done(trigger, f"systemctl daemon-reload && {unit.systemctl('restart')}"))
            commands.append(_verify(unit.name))
        elif state.active != "active":
            commands.append(
                f"systemctl daemon-reload && systemctl reset-failed {name} 2>/dev/null; {unit.systemctl('start')}"
            )
            commands.append(_verify(unit.name))
        if state.enabled not in ("enabled", "static", "indirect", "generated", "alias"):
            commands.append(f"systemctl enable {name}")
    return commands


def _done(trigger: str, command: str) -> str:
    return f"{{ {command}; }} && rm -f {shlex.quote(f'{PENDING}/{trigger}')}"


def _verify(unit: str) -> str:
    """systemd may call a start a success before the daemon dies: require it active twice, two seconds apart."""
    name = shlex.quote(unit)
    return (
        f"n=0; until systemctl is-active -q {name}; do n=$((n+1)); "
        f'[ "$n" -lt {START_DEADLINE_S} ] || break; sleep 1; done; sleep 1; '
        f"systemctl is-active -q {name} || {{ echo {name} does not stay up, its last lines: >&2; "
        f"journalctl -u {name} -n 15 --no-pager -o cat >&2; systemctl status --no-pager -n 0 {name} >&2; exit 1; }}"
    )
