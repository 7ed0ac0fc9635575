"""People: a directory on the controller, or somebody else's, read by sssd on every node."""

from __future__ import annotations

import base64
import hashlib
import shlex
from pathlib import Path

from pyinfra.context import host

from inventory.errors import InventoryError
from inventory.loading import secrets_path
from inventory.model import Cluster, Directory, Ldap, Node, User
from roles.facts import site
from roles.facts.people import Attributes, DirectoryEntries, Entries
from roles.operations.configure import configure
from roles.operations.directory import Change, Plan, changes, directory
from roles.operations.packages import packages
from roles.operations.secret_store import SecretStore
from roles.operations.settle import Unit
from roles.operations.template import render
from roles.operations.tree import Directory as Folder
from roles.operations.tree import File, Tree

BASE = "dc=klaster"
"""The same in every cluster: a renamed cluster keeps its people."""
PEOPLE, GROUPS, NODES = f"ou=people,{BASE}", f"ou=groups,{BASE}", f"cn=nodes,{BASE}"
NOBODY_LOGS_IN = "/usr/sbin/nologin"
SSSD = {"ldap": ("sssd-ldap",), "ad": ("sssd-ad", "adcli"), "freeipa": ("sssd-ipa",)}
KNOWN_WITHIN_S = 20
# sssd starts the services of its file itself; Debian's sockets for the same ones would fail at every boot.
_SOCKETS = " ".join(f"sssd-{name}.socket" for name in ("nss", "pam", "pam-priv", "ssh"))
SOCKETS_OFF = f"systemctl -q disable --now {_SOCKETS} 2>/dev/null; systemctl reset-failed {_SOCKETS} 2>/dev/null"


def wanted_packages(people: Ldap | Directory, node: Node) -> tuple[str, ...]:
    kind = "ldap" if isinstance(people, Ldap) else people.kind
    server = ("slapd", "ldap-utils") if isinstance(people, Ldap) and "controller" in node.roles else ()
    return (*SSSD[kind], "sssd-tools", "libnss-sss", "libpam-sss", *server)


# --- the directory -----------------------------------------------------------------------------------------------


def server_plan(certificate: tuple[str, str], ca_certificate: str) -> Tree:
    """slapd's configuration: TLS only, nothing for strangers, administered by root on its own host."""
    restart = ("restart-slapd.service",)
    key, own = certificate
    values = {"base": BASE, "nodes": NODES}
    return Tree(
        files=(
            File(
                "/etc/ldap/klaster.conf",
                render("identity", "slapd.conf", values),
                "640",
                group="openldap",
                triggers=restart,
            ),
            File("/etc/ldap/klaster.key", key, "640", group="openldap", triggers=restart),
            File("/etc/ldap/klaster.crt", own + ca_certificate, triggers=restart),
            File("/etc/default/slapd", render("identity", "slapd.default", values), triggers=restart),
            File("/usr/local/sbin/klaster-password", render("identity", "klaster-password", {"people": PEOPLE}), "755"),
        ),
        directories=(Folder("/var/lib/ldap/klaster", "700", "openldap", "openldap"),),
    )


def entries(cluster: Cluster, people: Ldap, password: str) -> list[tuple[str, Attributes]]:
    """Everything that the inventory says of people, parents first."""
    wanted: list[tuple[str, Attributes]] = [
        (BASE, {"objectClass": ("dcObject", "organization"), "o": ("klaster",)}),
        (PEOPLE, {"objectClass": ("organizationalUnit",)}),
        (GROUPS, {"objectClass": ("organizationalUnit",)}),
        (NODES, {"objectClass": ("organizationalRole", "simpleSecurityObject"), "description": (_mark(password),)}),
    ]
    wanted += [(f"uid={user.name},{PEOPLE}", _person(user, people)) for user in cluster.users]
    wanted += [(f"cn={user.name},{GROUPS}", _group(user.uid, ())) for user in cluster.users]
    for team in cluster.teams:
        members = tuple(user.name for user in cluster.users if team.name in user.teams)
        wanted.append((f"cn={team.name},{GROUPS}", _group(team.group_id, members)))
    return wanted


def _person(user: User, people: Ldap) -> Attributes:
    return {
        "objectClass": ("account", "posixAccount", "shadowAccount", "ldapPublicKey"),
        "cn": (user.name,),
        "uidNumber": (str(user.uid),),
        "gidNumber": (str(user.uid),),
        "homeDirectory": (f"{people.homes}/{user.name}",),
        "loginShell": (people.shell,),
        "sshPublicKey": user.ssh_keys,
        "shadowExpire": (),
    }


def _group(gid: int, members: tuple[str, ...]) -> Attributes:
    return {"objectClass": ("posixGroup",), "gidNumber": (str(gid),), "memberUid": members}


def _mark(password: str) -> str:
    """Tells whether the stored hash is that of this password, without reading the hash."""
    return hashlib.sha256(f"nodes {password}".encode()).hexdigest()[:16]


def salted_hash(password: str) -> str:
    """{SSHA} of a long random password; its salt follows from it, so that the same password gives the same text."""
    salt = hashlib.sha256(f"salt {password}".encode()).digest()[:8]
    digest = hashlib.sha1(password.encode() + salt).digest()  # noqa: S324 - 192 random bits can't be guessed
    return "{SSHA}" + base64.b64encode(digest + salt).decode()


def directory_plan(cluster: Cluster, people: Ldap, password: str, found: Entries) -> Plan:
    """What to change: the inventory's people as declared, everybody else without key, password, shell and teams."""
    wanted = entries(cluster, people, password)
    refusal = _reused_number(cluster, found)
    every = list(changes(wanted, found))
    for at, change in enumerate(every):
        if change.dn == NODES:
            every[at] = Change(NODES, {**change.wanted, "userPassword": (salted_hash(password),)}, change.old)
    named = {dn for dn, _ in wanted}
    for dn, attributes in found.items():
        if dn in named:
            continue
        off: Attributes = {}
        if dn.endswith(f",{PEOPLE}"):
            off = {"loginShell": (NOBODY_LOGS_IN,), "sshPublicKey": (), "shadowExpire": ("1",)}
        elif dn.endswith(f",{GROUPS}"):
            off = {"memberUid": ()}
        change = Change(dn, off, attributes, forget_password=dn.endswith(f",{PEOPLE}"))
        if change.differing:
            every.append(change)
    return Plan(tuple(every), refusal)


def _reused_number(cluster: Cluster, found: Entries) -> str:
    """Files belong to numbers: a number that was somebody else's is not given away, and nobody's changes."""
    by_name = {a["uid"][0]: int(a["uidNumber"][0]) for a in found.values() if "uidNumber" in a and "uid" in a}
    by_uid = {uid: name for name, uid in by_name.items()}
    for user in cluster.users:
        if by_name.get(user.name, user.uid) != user.uid:
            return f"{user.name} has uid {by_name[user.name]} in the directory and {user.uid} in the inventory: \
files belong to the number, so put uid={by_name[user.name]} back"
        if by_uid.get(user.uid, user.name) != user.name:
            return f"uid {user.uid} of {user.name} was that of {by_uid[user.uid]}, whose files may still be there: \
give {user.name} another uid"
    gids = {dn: int(a["gidNumber"][0]) for dn, a in found.items() if dn.endswith(f",{GROUPS}") and "gidNumber" in a}
    by_gid = {gid: dn for dn, gid in gids.items()}
    for team in cluster.teams:
        dn = f"cn={team.name},{GROUPS}"
        if gids.get(dn, team.group_id) != team.group_id:
            return f"team {team.name} has gid {gids[dn]} in the directory: say gid={gids[dn]} in the inventory"
        if by_gid.get(team.group_id, dn) != dn:
            other = by_gid[team.group_id].split(",")[0].removeprefix("cn=")
            return f"gid {team.group_id} of team {team.name} belongs to {other}: give {team.name} a gid= of its own"
    return ""


def in_words(plan: Plan) -> str:
    """The changes of people and teams for the operation's name; empty where there is none."""
    words = []
    for change in plan.changes:
        name = change.dn.split(",")[0].partition("=")[2]
        kind = "team " if change.dn.endswith(f",{GROUPS}") else ""
        private = kind and any(c.dn == f"uid={name},{PEOPLE}" for c in plan.changes)
        if not change.dn.endswith((f",{PEOPLE}", f",{GROUPS}")) or private:
            continue
        verb = "add" if change.old is None else "disable" if change.forget_password else "change"
        words.append(f"{verb} {kind}{name}")
    more = f" and {len(words) - 8} more" if len(words) > 8 else ""
    return ", ".join(words[:8]) + more


# --- every node --------------------------------------------------------------------------------------------------


def node_plan(cluster: Cluster, people: Ldap | Directory, password: str, ca_certificate: str) -> Tree:
    """sssd, where ssh asks for keys, who may use sudo, and home directories that a log-in makes."""
    kind = "ldap" if isinstance(people, Ldap) else people.kind
    values = {
        "cluster": cluster, "people": people, "own": isinstance(people, Ldap), "kind": kind, "base": BASE,
        "nodes": NODES, "password": password, "fingerprint": fingerprint(cluster),
        "ca": "/etc/sssd/klaster-directory-ca.crt",
    }  # fmt: skip
    files = [
        # Its unit lets the group (root) read it at every start.
        File("/etc/sssd/sssd.conf", render("identity", "sssd.conf", values), "640", triggers=("sssd",)),
        File("/etc/sudoers.d/klaster-people", render("identity", "sudoers", values), "440"),
        File(
            "/etc/ssh/sshd_config.d/20-klaster-people.conf",
            render("identity", "sshd.conf", values),
            triggers=("sshd-people",),
        ),
        File(
            "/usr/share/pam-configs/klaster-homes",
            render("identity", "pam-homes", values),
            triggers=("pam-auth-update",),
        ),
    ]
    if ca_certificate:
        files.append(File("/etc/sssd/klaster-directory-ca.crt", ca_certificate, triggers=("sssd",)))
    return Tree(tuple(files))


def fingerprint(cluster: Cluster) -> str:
    """Changes with every change of people: then each node forgets what it remembered of them, and asks anew."""
    people = [user.model_dump(exclude={"limits"}) for user in cluster.users]
    teams = [(team.name, team.group_id) for team in cluster.teams]
    return hashlib.sha256(repr((people, teams)).encode()).hexdigest()[:16]


def actions(cluster: Cluster) -> dict[str, str]:
    """Commands for what a change makes necessary; a configuration that sshd refuses is taken away again."""
    known = " && ".join(
        f'[ "$(id -u {user.name} 2>/dev/null)" = {user.uid} ] && id -G {user.name} >/dev/null '
        f"&& sss_ssh_authorizedkeys {user.name} >/dev/null"
        for user in cluster.users
    )
    names = ", ".join(user.name for user in cluster.users)
    sentence = shlex.quote(f"sssd does not know all of {names} with the inventory's uids: journalctl -u sssd -n 30")
    wait = (
        f"n=0; until {{ {known or 'true'}; }}; do n=$((n+1)); "
        f'[ "$n" -lt {KNOWN_WITHIN_S} ] || {{ echo {sentence} >&2; exit 1; }}; sss_cache -E; sleep 1; done'
    )
    conf = "/etc/ssh/sshd_config.d/20-klaster-people.conf"
    return {
        "pam-auth-update": "DEBIAN_FRONTEND=noninteractive pam-auth-update --package",
        "sshd-people": f"mkdir -p /run/sshd; sshd -t || {{ rm -f {conf}; exit 1; }}; "
        "! systemctl is-active -q ssh || systemctl reload ssh",
        "sssd": f"systemctl daemon-reload; {SOCKETS_OFF}; sss_cache -E 2>/dev/null; "
        f"systemctl restart sssd && {{ {wait}; }}",
    }


# --- what runs ---------------------------------------------------------------------------------------------------


def _store() -> SecretStore:
    return SecretStore(secrets_path(host.data.inventory_file))


def _server_plan_here() -> Tree:
    head = site.cluster().controller
    return server_plan(_store().server_certificate(head.name, [head.address]), _store().ca()[1])


def _node_plan_here() -> Tree:
    cluster = site.cluster()
    people = cluster.people
    if isinstance(people, Directory):
        password = _read(people.bind_password_file, secret=True) if people.bind_password_file else ""
        return node_plan(cluster, people, password, _read(people.ca_file) if people.ca_file else "")
    assert people is not None
    return node_plan(cluster, people, _store().password("directory"), _store().ca()[1])


def _read(name: str, *, secret: bool = False) -> str:
    """A file of the person at the control machine; InventoryError if it is not there or others can read a secret."""
    path = Path(name).expanduser()
    if not path.is_file():
        raise InventoryError(f"identity: {path} is not there")
    if secret and path.stat().st_mode & 0o077:
        raise InventoryError(f"identity: {path} holds a password and others can read it: chmod 600 {path}")
    text = path.read_text(encoding="utf-8")
    return text.strip() if secret else text


def deploy() -> None:
    cluster, node = site.cluster(), site.node()
    people = cluster.people
    if people is None:
        return
    packages(name="Install sssd and the directory", wanted=wanted_packages(people, node))
    if isinstance(people, Ldap) and "controller" in node.roles:
        configure(name="Run the directory", plan=_server_plan_here, units=(Unit("slapd.service"),))
        password = _store().password("directory")

        def plan(found: Entries) -> Plan:
            return directory_plan(cluster, people, password, found)

        words = in_words(plan(host.get_fact(DirectoryEntries, base=BASE)))
        directory(name=f"Write people into the directory{f': {words}' if words else ''}", base=BASE, plan=plan)
    configure(
        name="Let every node know people", plan=_node_plan_here, units=(Unit("sssd.service"),), actions=actions(cluster)
    )
