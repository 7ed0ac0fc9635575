"""What a lab is made of, from an inventory alone: names, addresses and link speeds. Pure."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass

from inventory.model import Cluster
from lab.errors import LabError

PORT = 3142
"""Where the package cache listens (the port that apt caches use)."""
SMALLEST_PREFIX = 28


@dataclass(frozen=True)
class Instance:
    """What this machine calls the lab. One lab a machine; the lab's own tests use another name beside it."""

    name: str = "lab"

    @property
    def group(self) -> str:
        return f"klaster-{self.name}"

    @property
    def switch(self) -> str:
        """Network namespace of the bridges; the nodes' begin with it too."""
        return f"k{self.name}"

    @property
    def outside(self) -> str:
        return f"{self.switch}-outside"

    @property
    def control_interface(self) -> str:
        return f"{self.switch}0"


NAME_VARIABLE = "KLASTER_LAB_NAME"


def this_instance() -> Instance:
    """The lab that the environment names; LabError for a name that can't be part of an interface's."""
    name = os.environ.get(NAME_VARIABLE) or "lab"
    if not re.fullmatch(r"[a-z]{2,8}", name):
        raise LabError(f'{NAME_VARIABLE}="{name}" is not a lab\'s name: two to eight small letters')
    return Instance(name)


@dataclass(frozen=True)
class Port:
    """One node's plug in one network: `outer` is the switch's end, `inner` the node's own."""

    outer: str
    inner: str
    bridge: str
    mac: str
    address: str
    prefix: int
    speed_mbit: float
    mtu: int


@dataclass(frozen=True)
class NodePlan:
    name: str
    netns: str
    ports: tuple[Port, ...]

    @property
    def address(self) -> str:
        return self.ports[0].address


@dataclass(frozen=True)
class BridgePlan:
    name: str
    cidr: str
    gateway: str
    prefix: int
    mtu: int


@dataclass(frozen=True)
class Plan:
    """The whole lab. `control` is this machine's address in the first network, `outside` one that is in none."""

    instance: Instance
    cluster: str
    state_dir: str
    bridges: tuple[BridgePlan, ...]
    nodes: tuple[NodePlan, ...]
    control: str
    outside: str
    outside_gateway: str
    outside_prefix: int
    outside_cidr: str
    kind: str = "container"

    def node(self, name: str) -> NodePlan:
        for node in self.nodes:
            if node.name == name:
                return node
        raise LabError(f'no node "{name}" in this lab (valid: {", ".join(node.name for node in self.nodes)})')

    @property
    def cidrs(self) -> tuple[str, ...]:
        return (*(bridge.cidr for bridge in self.bridges), self.outside_cidr)


def make_plan(cluster: Cluster, instance: Instance | None = None) -> Plan:
    """The lab of a cluster; LabError if the inventory is not one of throwaway nodes."""
    if cluster.substrate != "rehearsal" or cluster.state_dir is None:
        raise LabError(
            f'cluster "{cluster.name}" has substrate="{cluster.substrate}" and state_dir={cluster.state_dir!r}: '
            'the lab takes inventories with substrate="rehearsal" and a state_dir (see inventory/lab.py)'
        )
    instance = instance or this_instance()
    networks = [ipaddress.IPv4Network(network.cidr) for network in cluster.networks]
    bridges = []
    for index, (network, net) in enumerate(zip(cluster.networks, networks, strict=True)):
        if net.prefixlen > SMALLEST_PREFIX:
            raise LabError(f'network "{network.name}" ({net}) is too small for a lab: use /{SMALLEST_PREFIX} or larger')
        bridges.append(BridgePlan(f"br{index}", str(net), str(net[1]), net.prefixlen, _largest_mtu(cluster, index)))
    control = str(networks[0][-2])
    nodes = tuple(_node(cluster, index, instance) for index in range(len(cluster.nodes)))
    reserved = {bridge.gateway: "its switch" for bridge in bridges} | {control: "this machine"}
    for node in nodes:
        for port in node.ports:
            if port.address in reserved:
                raise LabError(f'node "{node.name}": the lab keeps {port.address} for {reserved[port.address]}')
    beyond = _free_block(networks)
    return Plan(
        instance, cluster.name, cluster.state_dir, tuple(bridges), nodes, control,
        str(beyond[9]), str(beyond[1]), beyond.prefixlen, str(beyond), cluster.lab,
    )  # fmt: skip


def _largest_mtu(cluster: Cluster, index: int) -> int:
    network = cluster.networks[index]
    own = [link.mtu for node in cluster.nodes for link in node.links if link.network == network.name and link.mtu]
    return max([network.mtu, *own])


def _node(cluster: Cluster, index: int, instance: Instance) -> NodePlan:
    node = cluster.nodes[index]
    ports = []
    for number, network in enumerate(cluster.networks):
        if number and all(link.network != network.name for link in node.links):
            continue
        link = cluster.link(node, network)
        if link.address is None or link.speed_gbps is None or link.mtu is None:  # the model has filled them in
            raise LabError(f'node "{node.name}": its link to "{network.name}" has no address or speed')
        ports.append(
            Port(
                outer=f"p{index}.{number}",
                inner=f"eth{number}",
                bridge=f"br{number}",
                mac=f"02:6b:6c:{number:02x}:{index >> 8:02x}:{index & 255:02x}",
                address=link.address,
                prefix=ipaddress.IPv4Network(network.cidr).prefixlen,
                speed_mbit=link.speed_gbps * 1000,
                mtu=link.mtu,
            )
        )
    return NodePlan(node.name, f"{instance.switch}-{node.name}", tuple(ports))


def _free_block(taken: list[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """The first /24 after the first network that overlaps none: where a stranger to the cluster lives."""
    start = (int(taken[0].broadcast_address) + 256) & ~255
    while True:
        block = ipaddress.IPv4Network((start, 24))
        if not any(block.overlaps(net) for net in taken):
            return block
        start += 256


def tbf(speed_mbit: float) -> tuple[str, ...]:
    """The token bucket for one direction of a link: about 1 ms of burst, so that short messages read true speed."""
    bytes_s = speed_mbit * 125_000
    burst, queue = max(10_000, int(bytes_s * 0.001)), max(256_000, int(bytes_s * 0.01))
    return ("tbf", "rate", f"{int(speed_mbit * 1000)}kbit", "burst", str(burst), "limit", str(queue + burst))
