"""What the firewall lets in."""

from __future__ import annotations

from inventory.model import Firewall, Ssh
from roles import firewall
from tests.roles.sample import cluster


def _rules(name: str, **changes: object) -> str:
    some = cluster(**changes)
    return firewall.plan(some, some.node(name)).files[0].content


def test_only_ssh_from_outside() -> None:
    """Without openings the only port rule is ssh's, and everything else is dropped."""
    lines = [line.strip() for line in _rules("n1").splitlines()]
    assert "type filter hook input priority filter; policy drop;" in lines
    assert [line for line in lines if "dport" in line] == ["tcp dport 22 accept"]
    assert "ip saddr 10.0.0.0/24 accept" in lines


def test_openings_are_the_controllers() -> None:
    """Ports that the inventory opens are open on the controller only; a trusted network reaches every node."""
    opened = Firewall(open_ports=(3000,), trusted=("10.9.0.0/24",))
    assert "tcp dport 3000 accept" in _rules("head", firewall=opened)
    assert "3000" not in _rules("n1", firewall=opened)
    assert "ip saddr 10.9.0.0/24 accept" in _rules("n1", firewall=opened)


def test_another_ssh_port() -> None:
    """The port that stays open is the one the inventory comes in by."""
    assert "tcp dport 2222 accept" in _rules("n1", ssh=Ssh(port=2222))
