"""Home directories of people, and no local account that would hide one of them."""

from __future__ import annotations

import shlex
from collections.abc import Generator

from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.model import Cluster, Directory, Ldap, Nfs, Node
from roles.facts import site
from roles.facts.people import LocalPeople, PeopleHere


def clashes(cluster: Cluster, found: LocalPeople) -> list[str]:
    """Sentences about local accounts and groups that would hide a declared person or own their files."""
    said = []
    by_uid = {uid: name for name, uid in found.users.items()}
    by_gid = {gid: name for name, gid in found.groups.items()}
    for user in cluster.users:
        if (uid := found.users.get(user.name, user.uid)) != user.uid:
            said.append(
                f"{user.name} is a local account with uid {uid} here, which hides the person with uid {user.uid}: "
                f"rename it, or usermod -u {user.uid} {user.name} and chown what it owns"
            )
        elif (name := by_uid.get(user.uid, user.name)) != user.name:
            said.append(f"uid {user.uid} of {user.name} is that of the local account {name}: give one another number")
    for team in cluster.teams:
        gid, name = found.groups.get(team.name, team.group_id), by_gid.get(team.group_id, team.name)
        if gid != team.group_id:
            said.append(f"{team.name} is a local group with gid {gid} here, which hides the team: rename it")
        elif name != team.name:
            said.append(f"gid {team.group_id} of team {team.name} is that of the local group {name}: give one another")
    return said


def home_commands(cluster: Cluster, homes: str, found: LocalPeople) -> list[str]:
    """Commands that make the missing home directories, by number: the node may not know the person yet."""
    commands = []
    for user in cluster.users:
        if user.name not in found.homes:
            # Made aside and renamed: an interrupted run leaves no half a home.
            new, home = shlex.quote(f"{homes}/.new-{user.name}"), shlex.quote(f"{homes}/{user.name}")
            commands.append(
                f"rm -rf {new} && mkdir -p {shlex.quote(homes)} && cp -r /etc/skel {new} && "
                f"chown -R {user.uid}:{user.uid} {new} && chmod 700 {new} && mv -T {new} {home}"
            )
    return commands


def makes_homes(cluster: Cluster, people: Ldap | Directory, node: Node) -> bool:
    """Below a shared folder its server makes them, once (the controller, where others serve it); else each node."""
    below = [share for share in cluster.storage if f"{people.homes}/".startswith(f"{share.path.rstrip('/')}/")]
    if not below:
        return True
    return node == (cluster.storage_node if isinstance(below[0], Nfs) else cluster.controller)


@operation()
def people_here(cluster: Cluster, homes: str, make: bool) -> Generator[str, None, None]:
    """Refuse local accounts in the way of declared people, and make missing home directories."""
    found = host.get_fact(PeopleHere, homes=homes)
    said = clashes(cluster, found)
    commands = [f"echo {shlex.quote('; '.join(said))} >&2; exit 1"] if said else []
    if make and not said:
        commands = home_commands(cluster, homes, found)
    if not commands:
        host.noop(f"no local account is in the way of {len(cluster.users)} people")
    yield from commands


def look() -> None:
    """Before anything is mounted: a local account in the way stops the run on its node."""
    cluster = site.cluster()
    if cluster.people is not None and cluster.nfs:
        people_here(name="Look for local accounts in the way", cluster=cluster, homes="", make=False)


def deploy() -> None:
    cluster, node = site.cluster(), site.node()
    people = cluster.people
    if people is None:
        return
    people_here(
        name="Look for local accounts in the way, make home directories",
        cluster=cluster,
        homes=people.homes,
        make=makes_homes(cluster, people, node),
    )
