"""Folders of teams with their access lists, and quotas; contents of folders are never touched."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.model import DEPLOY_UID, Cluster, Team
from inventory.storage import OWN_FOLDER, PUBLIC
from roles.facts.quotas import Folder, FoldersHere, QuotasHere, QuotaState

KIB_A_GIB = 1024 * 1024
Quotas = Mapping[tuple[str, int], int]
"""("user" or "group", number) → GiB; 0 for no limit."""


@dataclass(frozen=True)
class Space:
    """A folder of people: who owns it, and who else may do what in it and in all that is made in it later."""

    path: str
    owner: str
    mode: str
    entries: tuple[str, ...]

    @property
    def acl(self) -> tuple[str, ...]:
        return tuple(sorted((*self.entries, *(f"default:{entry}" for entry in self.entries))))


def folders(cluster: Cluster) -> list[Space]:
    """All folders that klaster makes in shared ones: those of teams, and one in each that only validation uses."""
    entries = ("user::rwx", "group::r-x", "other::r-x")
    own = [Space(f"{share.path}/{OWN_FOLDER}", f"{DEPLOY_UID}:{DEPLOY_UID}", "755", entries) for share in cluster.nfs]
    return [*own, *team_folders(cluster)]


def team_folders(cluster: Cluster) -> list[Space]:
    """One folder a team for its members, open for its readers; and one that all read and administrators write."""
    root = next((share.path for share in cluster.nfs if share.teams), None)
    if root is None:
        return []
    made = []
    for team in cluster.teams:
        entries = ("user::rwx", "group::rwx", "mask::rwx", "other::---", *_readers(cluster, team))
        made.append(Space(f"{root}/{team.name}", f"0:{team.group_id}", "2770", entries))
    writers = tuple(f"user:{user.uid}:rwx" for user in cluster.users if user.administrator)
    public = ("user::rwx", "group::r-x", "mask::rwx" if writers else "mask::r-x", "other::r-x", *writers)
    made.append(Space(f"{root}/{PUBLIC}", "0:0", "775" if writers else "755", public))
    return made


def _readers(cluster: Cluster, team: Team) -> tuple[str, ...]:
    groups = {other.name: other.group_id for other in cluster.teams}
    people = {user.name: user.uid for user in cluster.users}
    return tuple(f"group:{groups[name]}:r-x" if name in groups else f"user:{people[name]}:r-x" for name in team.readers)


def space_commands(wanted: Sequence[Space], found: dict[str, Folder]) -> list[str]:
    """Commands for what differs; a path that is something else than a folder is refused."""
    commands = []
    for space in wanted:
        path, old = shlex.quote(space.path), found.get(space.path)
        if old is not None and not old.mode.isdigit():
            sentence = f"{space.path} is a {old.mode} and is to be a team's folder: move it away"
            commands.append(f"echo {shlex.quote(sentence)} >&2; exit 1")
        elif old is None or (old.owner, old.mode, old.acl) != (space.owner, space.mode, space.acl):
            entries = ",".join(space.acl)
            commands.append(
                f"mkdir -p {path} && chown {space.owner} {path} && setfacl --set {entries} {path} && "
                f"chmod {space.mode} {path}"
            )
    return commands


@operation()
def spaces(wanted: Sequence[Space]) -> Generator[str, None, None]:
    """On the server: each team's folder with its owner, mode and access list."""
    commands = space_commands(wanted, host.get_fact(FoldersHere, paths=[space.path for space in wanted]))
    if not commands:
        host.noop(f"{len(wanted)} folders are as they should be")
    yield from commands


# --- quotas ------------------------------------------------------------------------------------------------------


def has_quotas(cluster: Cluster) -> bool:
    limits = (*(team.quota_gib for team in cluster.teams), *(user.quota_gib for user in cluster.users))
    return any(limit is not None for limit in limits)


def wanted_quotas(cluster: Cluster) -> dict[str, Quotas]:
    """Path of a shared folder → limits there: people's in each, teams' where their folders are; empty for none."""
    if not has_quotas(cluster):
        return {}
    people = {("user", user.uid): user.quota_gib or 0 for user in cluster.users}
    teams = {("group", team.group_id): team.quota_gib or 0 for team in cluster.teams}
    return {share.path: {**people, **(teams if share.teams else {})} for share in cluster.nfs}


def cannot(path: str, state: QuotaState) -> str:
    """Why the file system of a path can't limit anybody; empty if it can, or if the path is not there yet."""
    if not state.fstype or {"user", "group"} <= state.on | state.accounted:
        return ""
    remedy = {
        "ext4": "unmounted, tune2fs -O quota gives it to it; then it needs the options usrquota,grpquota",
        "xfs": "it needs the mount options uquota,gquota",
    }.get(state.fstype, "ext4 and xfs can")
    return f"{path} can't: quotas are off on its {state.fstype} at {state.target}; {remedy}"


def quota_commands(wanted: Mapping[str, Quotas], found: dict[str, QuotaState]) -> list[str]:
    """setquota for what differs, where quotas are possible; two folders of one file system are limited once."""
    commands: list[str] = []
    for path, limits in wanted.items():
        state = found.get(path, QuotaState())
        if cannot(path, state) or not state.target:
            continue
        target = shlex.quote(state.target)
        if state.accounted - state.on:
            commands.append(f"quotaon -ug {target}")
        for (kind, number), gib in limits.items():
            if state.limits.get((kind, number), 0) != gib * KIB_A_GIB:
                limit = gib * KIB_A_GIB
                commands.append(f"setquota -{kind[0]} {number} {limit} {limit} 0 0 {target}")
    return list(dict.fromkeys(commands))


@operation()
def quotas(wanted: Mapping[str, Quotas]) -> Generator[str, None, None]:
    """On the server: the limits of people and teams, in every file system that can."""
    found = host.get_fact(QuotasHere, paths=tuple(wanted))
    commands = quota_commands(wanted, found)
    if not commands:
        host.noop("; ".join(said for path in wanted if (said := cannot(path, found.get(path, QuotaState())))) or "set")
    yield from commands
