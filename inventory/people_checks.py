"""What must hold between teams, people, their limits and the directory they are kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inventory.errors import Mismatch, nearest
from inventory.people import Directory, Limits, Team, User

if TYPE_CHECKING:
    from inventory.model import Cluster

_NAMES_OF_SLURM = ("normal",)
"""Slurm's own QOS; a team's QOS has the team's name."""


def check_shares(cluster: Cluster) -> None:
    """Cross-check numbers of groups, limits, partitions of teams, and the directory; Mismatch at the first misfit."""
    _check_groups(cluster)
    _check_limits(cluster)
    _check_team_partitions(cluster)
    if isinstance(cluster.identity, Directory):
        _check_directory(cluster.identity)


def _check_groups(cluster: Cluster) -> None:
    seen: dict[int, Team] = {}
    for team in cluster.teams:
        if team.name in _NAMES_OF_SLURM:
            raise Mismatch(f'team "{team.name}" has the name of something of Slurm; choose another', team.place)
        if other := seen.get(team.group_id):
            text = f'teams "{other.name}" and "{team.name}" both have the gid {team.group_id}'
            raise Mismatch(f"{text}; give one of them a gid= of its own", team.place)
        seen[team.group_id] = team


def _check_limits(cluster: Cluster) -> None:
    if any(node.gpus for node in cluster.nodes):
        return
    owners: list[tuple[Team | User, Limits]] = [(user, user.limits) for user in cluster.users]
    owners += [(team, limits) for team in cluster.teams for limits in (team.limits, team.member_limits)]
    for owner, limits in owners:
        if limits.gpus is not None:
            kind = type(owner).__name__.lower()
            text = f'{kind} "{owner.name}" has a limit of GPUs and no node declares one'
            raise Mismatch(
                f"{text}; add gpus=(Gpu(…),) to the nodes that have cards, or take the limit out", owner.place
            )


def _check_team_partitions(cluster: Cluster) -> None:
    teams = {team.name for team in cluster.teams}
    for partition in cluster.slurm.partitions:
        for team in partition.teams:
            if team not in teams:
                raise Mismatch(
                    f'partition "{partition.name}": no team "{team}" {nearest(team, teams)}', partition.place
                )
        if partition.name in teams and partition.teams and partition.name not in partition.teams:
            text = f'partition "{partition.name}" is named like a team that may not use it'
            raise Mismatch(f'{text}; add "{partition.name}" to its teams, or rename it', partition.place)
    priorities = {partition.priority for partition in cluster.slurm.partitions}
    if cluster.slurm.preempt != "off" and len(priorities | ({1} if teams else set())) == 1:
        text = f'preempt="{cluster.slurm.preempt}" does nothing: every partition has the priority {priorities.pop()}'
        raise Mismatch(f"{text}; give one of them a higher priority", cluster.slurm.place)


def _check_directory(directory: Directory) -> None:
    if directory.kind == "ldap":
        for name in ("servers", "search_base"):
            if not getattr(directory, name):
                raise Mismatch(f'a directory of kind "ldap" needs {name}=…', directory.place)
        if bool(directory.bind_dn) != bool(directory.bind_password_file):
            raise Mismatch("bind_dn and bind_password_file belong together; give both or neither", directory.place)
        return
    for name in ("servers", "search_base", "bind_dn", "bind_password_file"):
        if getattr(directory, name):
            text = f'{name} is for kind "ldap"; a node that has joined "{directory.domain}" finds it by itself'
            raise Mismatch(f"{text}: take it out", directory.place)
