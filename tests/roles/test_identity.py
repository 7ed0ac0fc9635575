"""The identity role: inventory in → directory, sssd and refusals out."""

from __future__ import annotations

import base64
import hashlib

from hypothesis import given
from hypothesis import strategies as st

from inventory.model import Cluster, Directory, Ldap, Team, User
from roles import identity
from roles.facts.people import Entries, parse_ldif
from roles.operations.directory import Plan, changes, ldif
from tests.roles.sample_people import KEY, with_people

PASSWORD = "a-random-secret"  # noqa: S105 - of a test
ALEX = f"uid=alex,{identity.PEOPLE}"


def _plan(cluster: Cluster, found: Entries) -> Plan:
    return identity.directory_plan(cluster, Ldap(), PASSWORD, found)


def _directory_of(cluster: Cluster) -> Entries:
    """What the directory holds after a run: every wanted attribute that has a value."""
    wanted = identity.entries(cluster, Ldap(), PASSWORD)
    named = {dn: {name: values for name, values in attributes.items() if values} for dn, attributes in wanted}
    return {
        dn: {**values, **({"uid": (dn[4:].split(",")[0],)} if dn[:4] == "uid=" else {})} for dn, values in named.items()
    }


def test_a_second_run_changes_nothing() -> None:
    """A directory that is as declared, in whatever order its values come, needs no change."""
    some = with_people()
    found = {dn: {n: tuple(reversed(v)) for n, v in values.items()} for dn, values in _directory_of(some).items()}
    assert _plan(some, found) == Plan()


def test_an_empty_directory_is_filled_parents_first() -> None:
    """Base, branches, then people, each with uid, key and home; teams list their members."""
    plan = _plan(with_people(), {})
    names = [change.dn for change in plan.changes]
    assert names[0] == identity.BASE
    assert names.index(identity.PEOPLE) < names.index(ALEX)
    text = ldif(plan.changes)
    assert f"sshPublicKey: {KEY}" in text
    assert "uidNumber: 10001" in text
    assert "homeDirectory: /home/alex" in text
    red = text.split(f"dn: cn=red,{identity.GROUPS}")[1].split("\n\n")[0]
    assert {"memberUid: alex", "memberUid: kim"} <= set(red.splitlines())


def test_the_nodes_password_is_written_only_as_a_hash() -> None:
    """No secret is in the LDIF, and the hash is one that an LDAP server accepts."""
    text = ldif(_plan(with_people(), {}).changes)
    assert PASSWORD not in text
    raw = base64.b64decode(identity.salted_hash(PASSWORD).removeprefix("{SSHA}"))
    assert raw[:20] == hashlib.sha1(PASSWORD.encode() + raw[20:]).digest()  # noqa: S324 - what {SSHA} is
    assert f"userPassword: {identity.salted_hash(PASSWORD)}" in text


def test_another_password_of_the_nodes_is_written_again() -> None:
    """The mark beside the hash tells that the secret changed."""
    some = with_people()
    plan = identity.directory_plan(some, Ldap(), "another", _directory_of(some))
    assert [change.dn for change in plan.changes] == [identity.NODES]
    assert "replace: userPassword" in ldif(plan.changes)


def test_a_removed_person_loses_everything_but_the_number() -> None:
    """Key, password, shell and teams go, the account expires, the entry with its uid stays."""
    before = with_people()
    after = with_people(users=before.users[1:])
    plan = _plan(after, _directory_of(before))
    assert identity.in_words(plan) == "change team red, disable alex"
    text = next(block for block in ldif(plan.changes).split("\n\n") if block.startswith(f"dn: {ALEX}"))
    assert "replace: sshPublicKey\n-" in text
    assert "replace: userPassword\n-" in text
    assert "shadowExpire: 1" in text
    assert "loginShell: /usr/sbin/nologin" in text
    assert "changetype: delete" not in ldif(plan.changes)


def test_a_disabled_person_is_left_alone_and_can_come_back() -> None:
    """The second run does nothing; declared again, the same person is as before."""
    before = with_people()
    after = with_people(users=before.users[1:])
    found = dict(_directory_of(before))
    for change in _plan(after, found).changes:
        found[change.dn] = {n: v for n, v in {**(change.old or {}), **change.wanted}.items() if v}
    assert _plan(after, found) == Plan()
    assert identity.in_words(_plan(before, found)) == "change alex, change team red"


def test_a_number_is_never_given_away() -> None:
    """A uid of somebody who left, or another uid for a known name, is refused with a sentence."""
    before = with_people()
    found = _directory_of(before)
    heir = with_people(users=(User(name="max", uid=10_001, teams=("red",)),))
    assert "was that of alex" in _plan(heir, found).refusal
    moved = with_people(users=(User(name="alex", uid=10_009, teams=("red",)),))
    assert "put uid=10001 back" in _plan(moved, found).refusal
    other = with_people(teams=(Team(name="red", gid=70_001), Team(name="blue")))
    assert f"say gid={before.teams[0].group_id}" in _plan(other, found).refusal


@given(st.text(min_size=1, max_size=40).filter(lambda text: "\0" not in text and text == text.strip()))
def test_ldif_carries_any_text(value: str) -> None:
    """What is written as LDIF is read back the same, also with colons, spaces and other alphabets."""
    text = ldif(changes([("cn=x,dc=klaster", {"description": (value,)})], {}))
    assert parse_ldif(text.splitlines())["cn=x,dc=klaster"]["description"] == (value,)


def _conf(people: Ldap | Directory) -> dict[str, str]:
    tree = identity.node_plan(with_people(identity=people), people, PASSWORD, "CA")
    return {file.path: file.content for file in tree.files}


def test_sssd_asks_the_controller_over_tls_and_remembers() -> None:
    """TLS is demanded, lists are not asked for, log-ins are cached, the file is not for everybody."""
    tree = identity.node_plan(with_people(), Ldap(), PASSWORD, "CA")
    conf = next(file for file in tree.files if file.path == "/etc/sssd/sssd.conf")
    for line in ("ldap_uri = ldaps://head", "ldap_tls_reqcert = demand", "cache_credentials = true",
                 "enumerate = false", "ignore_group_members = true", f"ldap_default_authtok = {PASSWORD}"):  # fmt: skip
        assert line in conf.content.splitlines()
    assert conf.mode == "640"
    assert conf.group == "root"


def test_every_change_of_people_reaches_every_node() -> None:
    """A key, a team or a person more changes sssd's file, whose change makes the node ask anew; limits do not."""
    one = with_people()
    keyed = with_people(users=(one.users[0].model_copy(update={"ssh_keys": ()}), *one.users[1:]))
    limited = with_people(
        users=(one.users[0], one.users[1].model_copy(update={"limits": one.teams[0].limits}), one.users[2])
    )
    assert identity.fingerprint(one) != identity.fingerprint(keyed)
    assert identity.fingerprint(one) == identity.fingerprint(limited)


def test_only_administrators_get_sudo() -> None:
    """The sudoers file names the administrators and nobody else."""
    text = _conf(Ldap())["/etc/sudoers.d/klaster-people"]
    assert "ada ALL=" in text
    assert "alex" not in text


def test_a_directory_of_others_is_read_as_declared() -> None:
    """An LDAP server, Active Directory and FreeIPA of others each get their own provider; nothing is written there."""
    ldap = Directory(kind="ldap", domain="x.org", servers=("ldaps://a.x.org", "ldaps://b.x.org"), search_base="dc=x")
    text = _conf(ldap)["/etc/sssd/sssd.conf"]
    assert "ldap_uri = ldaps://a.x.org, ldaps://b.x.org" in text
    assert "authtok" not in text
    assert "id_provider = ad" in _conf(Directory(kind="ad", domain="x.org"))["/etc/sssd/sssd.conf"]
    assert "ipa_domain = x.org" in _conf(Directory(kind="freeipa", domain="x.org"))["/etc/sssd/sssd.conf"]
    head = with_people().controller
    assert "slapd" not in identity.wanted_packages(ldap, head)
    assert "slapd" in identity.wanted_packages(Ldap(), head)


def test_strangers_may_read_nothing() -> None:
    """slapd listens with TLS only, refuses anonymous binds, and passwords can be used but not read."""
    files = {file.path: file for file in identity.server_plan(("key", "crt\n"), "ca\n").files}
    conf = files["/etc/ldap/klaster.conf"].content
    assert "disallow bind_anon" in conf
    assert "rootpw" not in conf
    own = conf.split("access to attrs=userPassword")[1].split("access to")[0]
    assert " read" not in own
    assert 'SLAPD_SERVICES="ldaps:/// ldapi:///"' in files["/etc/default/slapd"].content
    assert files["/etc/ldap/klaster.key"].mode == "640"
