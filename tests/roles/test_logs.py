"""Who sends logs, who receives them, and what searches them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from inventory.model import Monitoring
from roles import logs
from tests.roles.sample import cluster

PROGRAM = Path(__file__).resolve().parents[2] / "files" / "logs" / "klaster-logs.py"


def test_nodes_send_and_the_controller_receives() -> None:
    """A node sends over https to the controller's address; the controller keeps no more than the inventory allows."""
    some = cluster(monitoring=Monitoring())
    sender = {file.path: file.content for file in logs.plan(some, some.node("n1"), 4, ("K", "C")).files}
    assert "URL=https://10.0.0.1:19532\n" in sender["/etc/systemd/journal-upload.conf.d/50-klaster.conf"]
    head = {file.path: file.content for file in logs.plan(some, some.node("head"), 4, ("K", "C")).files}
    assert "MaxUse=4G" in head["/etc/systemd/journal-remote.conf.d/50-klaster.conf"]
    tls = head["/etc/klaster/journal-tls.conf"]
    assert "accept = 10.0.0.1:19532" in tls
    assert "requireCert = yes" in tls
    assert "verifyChain = yes" in tls


def test_the_receiver_itself_is_on_the_loopback() -> None:
    """What checks no certificate can't be reached from another machine."""
    some = cluster(monitoring=Monitoring())
    head = {file.path: file.content for file in logs.plan(some, some.node("head"), 4, ("K", "C")).files}
    socket = head[f"/etc/systemd/system/{logs.SOCKET}.d/50-klaster.conf"]
    assert [line for line in socket.splitlines() if line.startswith("ListenStream=")] == [
        "ListenStream=",
        "ListenStream=127.0.0.1:19533",
    ]


def test_the_key_is_roots() -> None:
    """The private key is readable for root only."""
    some = cluster(monitoring=Monitoring())
    for name in ("head", "n1"):
        key = next(f for f in logs.plan(some, some.node(name), 4, ("K", "C")).files if f.path.endswith("journal.key"))
        assert (key.mode, key.owner) == ("600", "root")


@pytest.fixture
def search() -> ModuleType:
    """The program klaster-logs."""
    spec = importlib.util.spec_from_file_location("klaster_logs", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--node", "n1"], ["_HOSTNAME=n1"]),
        (["--unit", "slurmd"], ["_SYSTEMD_UNIT=slurmd.service"]),
        (["--unit", "klaster-nightly.timer"], ["_SYSTEMD_UNIT=klaster-nightly.timer"]),
        (["--node", "n1", "--kernel"], ["_HOSTNAME=n1", "_TRANSPORT=kernel"]),
        (["--job", "7", "--rank", "3"], ["SYSLOG_IDENTIFIER=job7.rank3"]),
        (["--grep", "Xid"], ["--grep=Xid", "--case-sensitive=yes"]),
    ],
)
def test_a_question_becomes_a_journalctl_command(search: ModuleType, words: list[str], expected: list[str]) -> None:
    """By node, unit, kernel, job and rank, and text, over all machines' journals."""
    command = search.command(search.parser().parse_args(words))
    assert command[:2] == ["journalctl", "--merge"]
    assert command[-len(expected) :] == expected
