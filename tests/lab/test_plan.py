"""The plan of a lab: addresses, names and shapes, from an inventory alone."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.model import Cluster, Link, Network, Node
from lab.errors import LabError
from lab.plan import Instance, make_plan, tbf, this_instance

LAN = Network(name="lan", cidr="10.77.0.0/24", speed_gbps=1)


def cluster(*nodes: Node, networks: tuple[Network, ...] = (LAN,), **other: object) -> Cluster:
    values = {"name": "c", "substrate": "rehearsal", "state_dir": "/var/lib/c", "networks": networks} | other
    return Cluster(nodes=nodes, **values)


HEAD = Node(name="head", address="10.77.0.10", roles=("controller", "compute"))


def test_a_node_has_its_inventory_address_and_declared_speed() -> None:
    """A node's plug has the address, prefix, speed and MTU that the inventory resolves for it."""
    port = make_plan(cluster(HEAD)).nodes[0].ports[0]
    assert (port.address, port.prefix, port.speed_mbit, port.mtu) == ("10.77.0.10", 24, 1000, 1500)


def test_a_second_network_is_a_second_plug_for_those_who_are_in_it() -> None:
    """A node gets a plug a network that it has a link to, and only those."""
    fast = Network(name="fast", cidr="10.77.8.0/24", speed_gbps=10, mtu=9000)
    both = Node(name="n1", address="10.77.0.11", links=(Link(network="fast", address="10.77.8.11"),))
    plan = make_plan(cluster(HEAD, both, networks=(LAN, fast)))
    assert [len(node.ports) for node in plan.nodes] == [1, 2]
    second = plan.nodes[1].ports[1]
    assert (second.inner, second.bridge, second.address, second.speed_mbit) == ("eth1", "br1", "10.77.8.11", 10_000)
    assert [bridge.mtu for bridge in plan.bridges] == [1500, 9000]


def test_a_bridge_carries_the_largest_mtu_of_its_links() -> None:
    """One node with jumbo frames raises the bridge's MTU, or its frames would be dropped there."""
    jumbo = Node(name="n1", address="10.77.0.11", links=(Link(network="lan", mtu=9000),))
    assert make_plan(cluster(HEAD, jumbo)).bridges[0].mtu == 9000


@given(count=st.integers(1, 200), prefix=st.integers(20, 24))
def test_nothing_is_given_out_twice(count: int, prefix: int) -> None:
    """In any lab, interfaces, namespaces, MAC and IP addresses are unique and interface names fit the kernel."""
    network = Network(name="lan", cidr=f"10.77.0.0/{prefix}", speed_gbps=1)
    nodes = [Node(name=f"n{i}", address=f"10.77.0.{i + 10}") for i in range(1, count)]
    plan = make_plan(cluster(HEAD, *nodes, networks=(network,)))
    ports = [port for node in plan.nodes for port in node.ports]
    for values in ([p.outer for p in ports], [p.mac for p in ports], [p.address for p in ports]):
        assert len(set(values)) == count
    assert len({node.netns for node in plan.nodes} | {plan.instance.switch, plan.instance.outside}) == count + 2
    assert all(len(port.outer) <= 15 for port in ports)


@given(prefix=st.integers(16, 28))
def test_the_outside_is_in_no_network(prefix: int) -> None:
    """The stranger's address is outside all of the cluster's networks, the second one next door too."""
    first = Network(name="lan", cidr=f"10.77.0.0/{prefix}", speed_gbps=1)
    after = ipaddress.IPv4Network(first.cidr).broadcast_address + 1
    second = Network(name="next", cidr=f"{after}/{prefix}", speed_gbps=1)
    plan = make_plan(cluster(HEAD, networks=(first, second)))
    assert not any(ipaddress.IPv4Address(plan.outside) in ipaddress.IPv4Network(n.cidr) for n in (first, second))


def test_the_control_machine_has_the_last_address() -> None:
    """This machine's end is .254 of the first network, the switch's .1, and a stranger's 10.77.1.9."""
    plan = make_plan(cluster(HEAD))
    assert (plan.control, plan.bridges[0].gateway, plan.outside) == ("10.77.0.254", "10.77.0.1", "10.77.1.9")


@pytest.mark.parametrize("address", ["10.77.0.1", "10.77.0.254"])
def test_reserved_addresses_are_refused(address: str) -> None:
    """A node on an address that the lab itself uses is one clear error."""
    with pytest.raises(LabError, match=rf'node "n1": the lab keeps {address}'):
        make_plan(cluster(HEAD, Node(name="n1", address=address)))


def test_real_machines_are_no_lab() -> None:
    """An inventory of hardware is refused, so that nobody's real addresses are taken over."""
    with pytest.raises(LabError, match='substrate="hardware"'):
        make_plan(cluster(HEAD, substrate="hardware"))


def test_a_tiny_network_is_refused() -> None:
    """A network without room for the switch and this machine is one clear error."""
    tiny = Network(name="lan", cidr="10.77.0.8/29", speed_gbps=1)
    with pytest.raises(LabError, match="too small"):
        make_plan(cluster(HEAD, networks=(tiny,)))


def test_an_unknown_node_lists_the_valid_ones() -> None:
    """Asking a lab for a node it has not names those it has."""
    with pytest.raises(LabError, match=r'no node "n9" in this lab \(valid: head\)'):
        make_plan(cluster(HEAD)).node("n9")


@pytest.mark.parametrize("mbit", [1, 50, 1000, 25_000])
def test_a_link_bursts_for_about_a_millisecond(mbit: float) -> None:
    """The token bucket has the asked rate, and a burst that changes the time of a 16 MB message by under 1 %."""
    words = tbf(mbit)
    rate_kbit, burst = int(words[2].removesuffix("kbit")), int(words[4])
    assert rate_kbit == mbit * 1000
    assert burst < 16e6 * 0.01 or burst <= mbit * 125_000 * 0.001


def test_labs_of_two_names_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab's own tests run beside a person's lab: no namespace, interface or group has the same name."""
    monkeypatch.setenv("KLASTER_LAB_NAME", "trya")
    ours, theirs = this_instance(), Instance()
    assert {ours.switch, ours.group, ours.control_interface} & {
        theirs.switch,
        theirs.group,
        theirs.control_interface,
    } == set()
    assert not f"{ours.switch}-n1".startswith(f"{theirs.switch}-")


def test_a_lab_name_that_fits_no_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lab's name must leave room in an interface's name."""
    monkeypatch.setenv("KLASTER_LAB_NAME", "my lab!")
    with pytest.raises(LabError, match='KLASTER_LAB_NAME="my lab!"'):
        this_instance()
