"""Homes of people, and local accounts in their way."""

from __future__ import annotations

import subprocess
from pathlib import Path

from inventory.model import External, Ldap
from roles import homes
from roles.facts.people import LocalPeople, parse_local
from tests.roles.sample_people import with_people


def test_local_accounts_and_homes_are_read() -> None:
    """Accounts, groups and folders come out of their tagged lines."""
    found = parse_local(["U|root:x:0:0:root:/root:/bin/bash", "G|users:x:100:", "H|alex", "U|broken"])
    assert found == LocalPeople({"root": 0}, {"users": 100}, {"alex"})


def test_a_local_account_that_hides_a_person_is_refused() -> None:
    """The desktop's own alex with uid 1000, a taken number and a taken group are one sentence each."""
    some = with_people()
    red = some.teams[0].group_id
    assert homes.clashes(some, LocalPeople({"root": 0}, {"users": 100})) == []
    said = homes.clashes(some, LocalPeople({"alex": 1000, "old": 10_002}, {"red": 1001, "plugdev": 46}))
    assert len(said) == 3
    assert "usermod -u 10001 alex" in said[0]
    assert "is that of the local account old" in said[1]
    assert "local group with gid 1001" in said[2]
    assert "belongs" not in str(homes.clashes(some, LocalPeople({"alex": 10_001}, {"red": red})))


def test_an_account_with_the_declared_number_is_adopted() -> None:
    """A local account with the person's name and uid is no clash."""
    assert homes.clashes(with_people(), LocalPeople({"alex": 10_001}, {"alex": 10_001})) == []


def test_missing_homes_are_made_and_others_left_alone(tmp_path: Path) -> None:
    """The commands make a private home from the skeleton; a home that is there is not touched."""
    some = with_people()
    commands = homes.home_commands(some, str(tmp_path), LocalPeople(homes={"kim", "ada"}))
    assert len(commands) == 1
    assert f"chown -R 10001:10001 {tmp_path}/.new-alex" in commands[0]
    subprocess.run(["sh", "-c", commands[0].replace("chown -R 10001:10001", "true")], check=True)
    assert (tmp_path / "alex").stat().st_mode & 0o777 == 0o700
    assert [path.name for path in tmp_path.iterdir()] == ["alex"]


def test_shared_homes_are_made_once() -> None:
    """Below a declared storage only the controller makes them; local ones are made on each node."""
    some = with_people(storage=(External(path="/shared"),))
    head, n1 = some.controller, some.node("n1")
    assert homes.makes_homes(some, Ldap(homes="/shared/home"), head)
    assert not homes.makes_homes(some, Ldap(homes="/shared/home"), n1)
    assert homes.makes_homes(some, Ldap(homes="/home"), n1)
    assert homes.makes_homes(some, Ldap(homes="/sharedhome"), n1)
