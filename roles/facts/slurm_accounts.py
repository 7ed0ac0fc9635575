"""What slurmdbd knows: QOS, accounts, associations and default accounts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

QOS_COLUMNS = ("GrpTRES", "GrpJobs", "MaxTRESPerUser", "MaxJobsPerUser", "MaxWall")
SHARE_COLUMNS = ("GrpTRES", "MaxJobs", "MaxSubmitJobs", "MaxWall")


@dataclass
class AccountsState:
    qos: dict[str, dict[str, str]] = field(default_factory=dict)
    """Name → limit → value, as inventory.shares writes them; what has no limit is not there."""
    accounts: set[str] = field(default_factory=set)
    associations: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """(account, user or empty text) → its limits, and `QOS` and `DefaultQOS`."""
    default_account: dict[str, str] = field(default_factory=dict)


class SlurmAccounts(FactBase[AccountsState]):
    """Everything of one cluster in slurmdbd, in one round trip; empty while slurmdbd is not there."""

    @staticmethod
    def default() -> AccountsState:
        return AccountsState()

    def command(self, cluster: str) -> str:
        show = "timeout 20 sacctmgr -nP show"
        shares = f"Account,User,{','.join(SHARE_COLUMNS)},QOS,DefaultQOS"
        return (
            "command -v sacctmgr >/dev/null || exit 0; "
            f"{show} qos format=Name,{','.join(QOS_COLUMNS)} 2>/dev/null | sed 's/^/Q|/'; "
            f"{show} account format=Account 2>/dev/null | sed 's/^/A|/'; "
            f"{show} associations cluster={shlex.quote(cluster)} format={shares} 2>/dev/null | sed 's/^/S|/'; "
            f"{show} user format=User,DefaultAccount 2>/dev/null | sed 's/^/U|/'; true"
        )

    def process(self, output: list[str]) -> AccountsState:
        return parse_accounts(output)


def parse_accounts(lines: Sequence[str]) -> AccountsState:
    """Parse `sacctmgr -nP show` lines tagged Q (QOS), A (account), S (association) and U (user)."""
    state = AccountsState()
    for line in lines:
        tag, *cells = line.split("|")
        if tag == "Q" and len(cells) == len(QOS_COLUMNS) + 1:
            state.qos[cells[0]] = _limits(QOS_COLUMNS, cells[1:])
        elif tag == "A" and cells:
            state.accounts.add(cells[0])
        elif tag == "S" and len(cells) == len(SHARE_COLUMNS) + 4:
            limits = _limits(SHARE_COLUMNS, cells[2:-2])
            state.associations[cells[0], cells[1]] = {**limits, "QOS": cells[-2], "DefaultQOS": cells[-1]}
        elif tag == "U" and len(cells) == 2:
            state.default_account[cells[0]] = cells[1]
    return state


def _limits(names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, cell in zip(names, cells, strict=True):
        if "TRES" in name:
            for part in filter(None, cell.split(",")):
                kind, _, value = part.partition("=")
                found[f"{name}/{kind}"] = mebibytes(value) if kind == "mem" else value
        elif name == "MaxWall":
            if cell:
                found[name] = str(minutes(cell))
        elif cell:
            found[name] = cell
    return found


def mebibytes(text: str) -> str:
    """Slurm's 64G, 65536M or 1T as a number of MiB."""
    number = re.fullmatch(r"([0-9.]+)([KMGTP]?)", text)
    if number is None:
        return text
    factor = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}[number[2]]
    return str(round(float(number[1]) * factor))


def minutes(text: str) -> int:
    """Slurm's [days-]hours:minutes:seconds as minutes."""
    days, _, rest = text.rpartition("-")
    hours, mins, _ = (int(part) for part in rest.split(":"))
    return int(days or 0) * 1440 + hours * 60 + mins
