"""Names, clock and interfaces of a node."""

import pytest

from validation.checks import node_fabric, node_network
from validation.checks.node import Subject
from validation.node.plugin import Judge


@pytest.mark.check("host-name")
def test_host_name(subject: Subject, judge: Judge) -> None:
    judge(node_network.host_name(subject))


@pytest.mark.check("name-resolution")
def test_name_resolution(subject: Subject, judge: Judge) -> None:
    judge(node_network.name_resolution(subject))


@pytest.mark.check("resolver")
def test_resolver(subject: Subject, judge: Judge) -> None:
    judge(node_network.resolver(subject))


@pytest.mark.check("clock-offset")
def test_clock_offset(subject: Subject, judge: Judge) -> None:
    judge(node_network.clock_offset(subject))


@pytest.mark.check("time-daemon")
def test_time_daemon(subject: Subject, judge: Judge) -> None:
    judge(node_network.time_daemon(subject))


@pytest.mark.check("interface")
def test_interface(subject: Subject, judge: Judge) -> None:
    judge(node_network.interface(subject))


@pytest.mark.check("mtu")
def test_mtu(subject: Subject, judge: Judge) -> None:
    judge(node_network.mtu(subject))


@pytest.mark.check("link-speed")
def test_link_speed(subject: Subject, judge: Judge) -> None:
    judge(node_network.link_speed(subject))


@pytest.mark.check("link-flaps")
def test_link_flaps(subject: Subject, judge: Judge) -> None:
    judge(node_network.link_flaps(subject))


@pytest.mark.check("decoy-interfaces")
def test_decoy_interfaces(subject: Subject, judge: Judge) -> None:
    judge(node_network.decoy_interfaces(subject))


@pytest.mark.check("fabric")
def test_fabric(subject: Subject, judge: Judge) -> None:
    judge(node_fabric.fabric(subject))


@pytest.mark.check("rdma")
def test_rdma(subject: Subject, judge: Judge) -> None:
    judge(node_fabric.rdma(subject))
