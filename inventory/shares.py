"""Who may take what, in Slurm's words: partitions, accounts, QOS and associations that follow from an inventory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from inventory.model import DEPLOY_ACCOUNT, Cluster, Partition
from inventory.people import Limits

NO_LIMIT = ""
TRES = ("cpu", "mem", "gres/gpu")
"""What is counted, in Slurm's names; memory is in MiB."""
OWN_ACCOUNTS = ("root", DEPLOY_ACCOUNT)
"""Accounts that are not a team's: Slurm's own, and the one of certification."""

Settings = Mapping[str, str]
"""Slurm's name of a limit → its value as text, an empty text for no limit; a TRES is `Name/cpu`, `Name/mem` …."""


@dataclass(frozen=True)
class Share:
    """An association: a person (or nobody: the team itself) in an account."""

    account: str
    user: str = ""
    settings: Settings = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Shares:
    """Everything slurmdbd shall know."""

    qos: Mapping[str, Settings]
    accounts: Mapping[str, str]
    """Account → its QOS, also its default one; an empty text for Slurm's own choice."""
    members: tuple[Share, ...]
    default_account: Mapping[str, str]


def partitions(cluster: Cluster) -> tuple[Partition, ...]:
    """The declared partitions, and one for each team that none is named after, of every compute node."""
    declared = {partition.name for partition in cluster.slurm.partitions}
    own = (Partition(name=team.name, teams=(team.name,)) for team in cluster.teams if team.name not in declared)
    return (*cluster.slurm.partitions, *own)


def allowed_accounts(cluster: Cluster, partition: Partition) -> tuple[str, ...]:
    """Slurm accounts that may use it; empty: all."""
    teams = {team.name for team in cluster.teams}
    wanted = partition.teams or ((partition.name,) if partition.name in teams else ())
    # Never Slurm's account root: an allowed account allows all below it, and everything is below root (tried, 24.11).
    return (*wanted, DEPLOY_ACCOUNT) if wanted else ()


def shares(cluster: Cluster, *, gpus: bool) -> Shares:
    """What slurmdbd shall know; `gpus`: Slurm counts GPUs here (it does not know the word before there is one)."""
    members = [Share(DEPLOY_ACCOUNT, DEPLOY_ACCOUNT)]
    members += [
        Share(team, user.name, association_settings(user.limits, gpus=gpus))
        for user in cluster.users
        for team in user.teams
    ]
    return Shares(
        qos={team.name: qos_settings(team.limits, team.member_limits, gpus=gpus) for team in cluster.teams},
        accounts={DEPLOY_ACCOUNT: "", **{team.name: team.name for team in cluster.teams}},
        members=tuple(members),
        default_account={DEPLOY_ACCOUNT: DEPLOY_ACCOUNT, **{user.name: user.teams[0] for user in cluster.users}},
    )


def qos_settings(together: Limits, each: Limits, *, gpus: bool) -> Settings:
    """A team's limits: Grp… for all members together, …PerUser for each; the shorter of two times."""
    times = [limits.job_minutes for limits in (together, each) if limits.job_minutes is not None]
    return {
        **tres("GrpTRES", together, gpus=gpus),
        "GrpJobs": _text(together.jobs),
        **tres("MaxTRESPerUser", each, gpus=gpus),
        "MaxJobsPerUser": _text(each.jobs),
        "MaxWall": _text(min(times, default=None)),
    }


def association_settings(own: Limits, *, gpus: bool) -> Settings:
    """A person's limits in one account."""
    return {
        **tres("GrpTRES", own, gpus=gpus),
        "MaxJobs": _text(own.jobs),
        "MaxSubmitJobs": NO_LIMIT,
        "MaxWall": _text(own.job_minutes),
    }


CLOSED: Settings = MappingProxyType({"MaxJobs": "0", "MaxSubmitJobs": "0"})
"""A person who left the team or the cluster: no new job; the history stays, and a running job may end."""


def tres(name: str, limits: Limits, *, gpus: bool) -> dict[str, str]:
    memory_mib = None if limits.memory_gib is None else limits.memory_gib * 1024
    values = {f"{name}/cpu": _text(limits.cpus), f"{name}/mem": _text(memory_mib)}
    return {**values, f"{name}/gres/gpu": _text(limits.gpus)} if gpus else values


def _text(value: int | None) -> str:
    return NO_LIMIT if value is None else str(value)
