"""The base role's plan: names, time and ssh that never lock anybody out."""

from __future__ import annotations

from roles import base
from roles.operations.tree import File
from tests.roles.sample import cluster, found, lock


def _files(**changes: object) -> dict[str, File]:
    values: dict[str, object] = {"lock": lock(n1=found()), "hosts_now": "", "by_password": (), "key": "", **changes}
    some = cluster()
    node = some.node(str(values.pop("name", "n1")))
    return {file.path: file for file in base.plan(some, node, **values).files}  # type: ignore[arg-type]


def test_own_name_leaves_the_loopback_address() -> None:
    """An installer's line `127.0.1.1 n1` goes, other names on such a line stay."""
    text = base.hosts_file("127.0.0.1 localhost\n127.0.1.1 n1.home n1 printer\n# a remark about n1\n", cluster())
    assert "127.0.1.1 printer" in text.splitlines()
    assert "10.0.0.2 n1" in text.splitlines()
    assert "# a remark about n1" in text
    assert sum("n1" in line.split() for line in text.splitlines() if not line.startswith("#")) == 1


def test_hosts_file_is_stable() -> None:
    """Rendering over its own result changes nothing."""
    once = base.hosts_file("127.0.0.1 localhost\n127.0.1.1 n1\n", cluster())
    assert base.hosts_file(once, cluster()) == once


def test_a_removed_node_leaves_the_hosts_file() -> None:
    """The block is replaced as a whole."""
    some = cluster()
    smaller = cluster(nodes=some.nodes[:2])
    assert "n2" not in base.hosts_file(base.hosts_file("", some), smaller)


def test_controller_is_the_clock_of_the_others() -> None:
    """Nodes ask the controller; the controller serves the cluster's network."""
    assert "server 10.0.0.1 iburst" in _files()["/etc/chrony/chrony.conf"].content
    controller = _files(name="head")["/etc/chrony/chrony.conf"].content
    assert "allow 10.0.0.0/24" in controller
    assert "server 10.0.0.1" not in controller


def test_a_container_does_not_set_its_machines_clock() -> None:
    """chronyd runs with -x where the clock is shared, and only there."""
    contained = _files(lock=lock(n1=found(virtualisation="systemd-nspawn")))
    assert "-x" in contained["/etc/default/chrony"].content
    assert "/etc/systemd/system/chrony.service.d/50-klaster.conf" in contained
    assert "-x" not in _files()["/etc/default/chrony"].content


def test_password_login_stays_for_people_without_a_key() -> None:
    """Hardening sshd never locks out somebody whose only way in is a password."""
    path = "/etc/ssh/sshd_config.d/10-klaster.conf"
    assert "PasswordAuthentication no" in _files()[path].content
    kept = _files(by_password=("sam",))[path].content
    assert "PasswordAuthentication" not in kept
    assert "sam" in kept


def test_a_node_is_read_before_it_is_changed() -> None:
    """Its hosts file, who has only a password, and why it waits for a reboot come out of one answer."""
    lines = ["127.0.0.1 localhost", "#people", "alex", "#reboot", "/run/reboot-required is there"]
    assert base.Before().process(lines) == base.Found(
        "127.0.0.1 localhost\n", ("alex",), "/run/reboot-required is there"
    )
    assert base.Before().process(["#people", "#reboot"]).reboot == ""
