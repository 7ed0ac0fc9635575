"""System accounts with the same uid everywhere, made before the packages that would pick their own."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.operations.before import made_account


@dataclass(frozen=True)
class Account:
    """A system account whose group has its name and number."""

    name: str
    uid: int
    home: str
    shell: str = "/usr/sbin/nologin"


class Passwd(FactBase[dict[str, tuple[int, str, str]]]):
    """Local accounts: name → (uid, home, shell)."""

    @staticmethod
    def default() -> dict[str, tuple[int, str, str]]:
        return {}

    def command(self) -> str:
        return "cat /etc/passwd"

    def process(self, output: list[str]) -> dict[str, tuple[int, str, str]]:
        return parse_passwd(output)


def parse_passwd(lines: Sequence[str]) -> dict[str, tuple[int, str, str]]:
    fields = [line.split(":") for line in lines]
    return {f[0]: (int(f[2]), f[5], f[6]) for f in fields if len(f) == 7 and f[2].isdigit()}


def account_commands(accounts: Sequence[Account], found: dict[str, tuple[int, str, str]]) -> list[str]:
    """Commands that create the missing accounts; a failing one where a uid or name is taken by something else."""
    commands = []
    by_uid = {uid: name for name, (uid, _, _) in found.items()}
    for account in accounts:
        name = shlex.quote(account.name)
        if account.name in found:
            uid = found[account.name][0]
            if uid != account.uid:
                commands.append(
                    _refuse(
                        f"the account {account.name} has uid {uid} here and must have {account.uid} on every node: "
                        f"stop its service, then usermod -u {account.uid} {account.name} and chown its files"
                    )
                )
        elif account.uid in by_uid:
            commands.append(
                _refuse(
                    f"uid {account.uid} is needed for {account.name} and belongs to {by_uid[account.uid]} here: "
                    "give that account another uid"
                )
            )
        else:
            group = f"getent group {name} >/dev/null || groupadd --system --gid {account.uid} {name}"
            commands.append(
                f"{{ {group}; }} && useradd --system --uid {account.uid} --gid {name} --no-create-home "
                f"--home-dir {shlex.quote(account.home)} --shell {shlex.quote(account.shell)} {name} "
                f"&& {made_account(account.name)}"
            )
    return commands


def _refuse(sentence: str) -> str:
    return f"echo {shlex.quote(sentence)} >&2; exit 1"


@operation()
def accounts(wanted: Sequence[Account]) -> Generator[str, None, None]:
    """Have each account with its uid; an account that differs is refused, not changed under a running service."""
    commands = account_commands(wanted, host.get_fact(Passwd))
    if not commands:
        host.noop(f"{len(wanted)} accounts exist")
    yield from commands
