"""What the firewall lets in: ssh, what roles need from the nodes that need it, and what the inventory opens."""

from __future__ import annotations

from inventory.model import Firewall, Link, Monitoring, Network, Node, Registry, Ssh, Team
from roles import firewall
from tests.roles.sample import cluster

SMALL = (
    Node(name="head", address="10.0.0.1", roles=("controller", "compute")),
    Node(name="n1", address="10.0.0.2"),
)


def _lines(name: str, **changes: object) -> list[str]:
    some = cluster(**changes)
    text = firewall.plan(some, some.node(name)).files[0].content
    return [line.strip() for line in text.splitlines()]


def _ports(name: str, **changes: object) -> list[str]:
    return [line for line in _lines(name, **changes) if "dport" in line]


def _verdict(lines: list[str], group: str, port: int, protocol: str = "tcp") -> str:
    """What becomes of a packet of an address of `group` (a node's is in `nodes`, too)."""
    groups = {"nodes", group}
    for line in lines:
        words = line.split()
        if "dport" not in words or words[words.index("dport") - 1] != protocol:
            continue
        low, _, high = words[words.index("dport") + 1].partition("-")
        source = next((word[1:] for word in words if word.startswith("@")), "nodes")
        if int(low) <= port <= int(high or low) and (source in groups):
            return "accept" if "accept" in words else "drop"
    return "drop"


def test_strangers_get_ssh_only() -> None:
    """Every rule but ssh's asks for a node's address, also in the cluster's own network; everything else is dropped."""
    lines = _lines("n1", monitoring=Monitoring())
    assert "type filter hook input priority filter; policy drop;" in lines
    assert [line for line in lines if "dport" in line and "saddr" not in line] == ["tcp dport 22 accept"]
    assert not any("10.0.0.0/24" in line for line in lines)


def test_ranks_reach_each_other() -> None:
    """Compute nodes have any port of a training for one another; the controller only what the kernel hands out."""
    n1, head = _ports("n1"), _ports("head")
    assert _verdict(n1, "compute", 29500) == "accept"
    assert _verdict(n1, "compute", 40000, "udp") == "accept"
    assert _verdict(n1, "controller", 29500) == "drop"
    assert _verdict(n1, "controller", 40000) == "accept"
    assert _verdict(head, "compute", 29500) == "drop"
    assert _verdict(head, "compute", 62000) == "accept", "srun listens there"


def test_services_are_for_those_who_need_them() -> None:
    """Slurm for all nodes, exporters for the controller, Prometheus for nobody, people's directory for all nodes."""
    changes = {"monitoring": Monitoring(), "teams": (Team(name="red"),)}
    head, n1 = _ports("head", **changes), _ports("n1", **changes)
    for port in (6817, 636, 19532):
        assert _verdict(head, "compute", port) == "accept"
    assert _verdict(head, "compute", 123, "udp") == "accept"
    assert _verdict(head, "compute", 9090) == "drop"
    assert _verdict(n1, "controller", 9100) == "accept"
    assert _verdict(n1, "compute", 9100) == "drop", "the ranks' range must not open it again"
    assert _verdict(n1, "compute", 6818) == "accept"


def test_a_controller_that_computes_keeps_its_services_closed() -> None:
    """Where ranks run on the controller, too, their range opens neither Prometheus nor its exporter."""
    head = _ports("head", nodes=SMALL, monitoring=Monitoring())
    assert _verdict(head, "compute", 29500) == "accept"
    assert [_verdict(head, "compute", port) for port in (9090, 9093, 9100, 9180)] == ["drop"] * 4


def test_the_registry_is_for_nodes() -> None:
    """Its node takes the other nodes in, and other nodes have no such rule."""
    lines = _ports("n1", registry=Registry(node="n1"))
    assert next(line for line in lines if "registry" in line).startswith("ip saddr @nodes tcp dport")
    assert not [line for line in _ports("head", registry=Registry(node="n1")) if "registry" in line]


def test_addresses_of_all_networks_count() -> None:
    """A node's second address is as good as its first."""
    networks = tuple(Network(name=f"net{i}", cidr=f"10.{i}.0.0/24", speed_gbps=1) for i in (0, 1))
    nodes = (
        Node(name="head", address="10.0.0.1", roles=("controller",)),
        Node(name="n1", address="10.0.0.2", links=(Link(network="net1", address="10.1.0.2"),)),
    )
    assert "elements = { 10.0.0.2, 10.1.0.2 }" in _lines("head", networks=networks, nodes=nodes)


def test_openings_are_the_controllers() -> None:
    """Ports that the inventory opens are open on the controller only; a trusted network reaches every node."""
    opened = Firewall(open_ports=(3000,), trusted=("10.9.0.0/24",))
    assert "tcp dport 3000 accept" in _lines("head", firewall=opened)
    assert not any("dport 3000" in line for line in _lines("n1", firewall=opened))
    assert "ip saddr 10.9.0.0/24 accept" in _lines("n1", firewall=opened)


def test_another_ssh_port() -> None:
    """The port that stays open is the one the inventory comes in by."""
    assert "tcp dport 2222 accept" in _lines("n1", ssh=Ssh(port=2222))
