"""Reboot a node that an earlier deploy found in need of it: only drained and idle, one at a time, proved by boot id."""

from __future__ import annotations

import shlex
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.exceptions import OperationError
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.gpu import REBOOT_DUE, REBOOT_MARK
from roles.operations.configure import sh

DEADLINE_S = 900
"""A server with much memory tests it for minutes before it boots."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Due:
    """Why a reboot is due (empty: it is not), which boot this is, and what Slurm says of the node."""

    reason: str = ""
    boot_id: str = ""
    slurm: str = ""
    """State flags, e.g. IDLE+DRAIN; empty where Slurm does not know the node, or is not there."""
    jobs: int = 0


class RebootState(FactBase[Due]):
    """What decides whether this node may be rebooted, in one round trip."""

    @staticmethod
    def default() -> Due:
        return Due()

    def command(self) -> str:
        return (
            f"echo reason=$({REBOOT_DUE}); "
            f"echo boot=$(cat {BOOT_ID}); "
            "n=$(hostname -s); echo slurm=$(timeout 20 scontrol show node -o $n 2>/dev/null "
            "| sed -n 's/.* State=\\([^ ]*\\).*/\\1/p'); "
            "echo jobs=$(timeout 20 squeue -h -w $n 2>/dev/null | wc -l)"
        )

    def process(self, output: list[str]) -> Due:
        return parse_due(output)


def parse_due(lines: Sequence[str]) -> Due:
    values = dict(line.partition("=")[::2] for line in lines)
    jobs = values.get("jobs", "0")
    return Due(values.get("reason", ""), values.get("boot", ""), values.get("slurm", ""), int(jobs or 0))


def obstacle(due: Due) -> str:
    """Why the reboot must wait; empty if it may be done now."""
    if due.jobs:
        return f"{due.jobs} jobs run on it: drain it and wait for them"
    if due.slurm and "DRAIN" not in due.slurm:
        return "it is in service: scontrol update NodeName=… State=DRAIN Reason=reboot, then again"
    return ""


def _reboot(before: str) -> None:
    """Reboot, wait for another boot id, forget the mark; uptimes and open ports prove nothing."""
    host.run_shell_command("nohup sh -c 'sleep 1; systemctl reboot' >/dev/null 2>&1 &")
    deadline = time.monotonic() + DEADLINE_S
    time.sleep(3)
    while time.monotonic() < deadline:
        try:
            host.disconnect()
            host.connect(raise_exceptions=True, show_errors=False)
            ok, output = host.run_shell_command(f"cat {BOOT_ID}")
        except Exception:  # any trouble of a connection while the node is down
            ok, output = False, None
        if ok and output is not None and output.stdout.strip() not in ("", before):
            host.run_shell_command(f"rm -f {REBOOT_MARK}")
            host.log(f"rebooted, boot id {output.stdout.strip()}")
            return
        time.sleep(2)
    raise OperationError(f"{host.name} did not come back within {DEADLINE_S} s: look at its console")


@operation()
def reboot_if_due() -> Generator[FunctionCommand | StringCommand, None, None]:
    """Reboot this node if that is due and disturbs nobody; else say why it waits."""
    due = host.get_fact(RebootState)
    if not due.reason:
        host.noop("no reboot is due")
        return
    if why := obstacle(due):
        sentence = f"{host.name} needs a reboot ({due.reason}), deferred: {why}"
        yield sh(f"echo {shlex.quote(sentence)} >&2; exit 1")
        return
    yield FunctionCommand(_reboot, (due.boot_id,), {})
