"""What must hold between the parts of a cluster; the first that does not fit is one sentence with its place."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING

from inventory.containers import check_containers
from inventory.errors import Mismatch, Place, nearest
from inventory.gpu_stack import check_gpu_stack
from inventory.networks import check_purposes
from inventory.people_checks import check_shares
from inventory.storage import check_storage
from inventory.topology import check_leaves

if TYPE_CHECKING:
    from inventory.model import Cluster, Network, Node

Placed = tuple[str, Place | None]


def check_cluster(cluster: Cluster) -> None:
    """Cross-check the parts of a cluster; Mismatch with one sentence at the first that does not fit."""
    _unique("network name", [(network.name, network.place) for network in cluster.networks])
    _unique("node name", [(node.name, node.place) for node in cluster.nodes])
    _unique("leaf name", [(leaf.name, leaf.place) for leaf in cluster.leaves])
    _check_networks(cluster)
    for node in cluster.nodes:
        _check_node(cluster, node)
    _check_addresses(cluster)
    check_leaves(cluster)
    _check_controller(cluster)
    check_purposes(cluster)
    _check_people(cluster)
    _check_partitions(cluster)
    check_shares(cluster)
    check_gpu_stack(cluster)
    check_containers(cluster)
    _unique("storage path", [(storage.path, storage.place) for storage in cluster.storage])
    check_storage(cluster)


def _unique(what: str, values: Iterable[Placed]) -> None:
    seen: dict[str, Place | None] = {}
    for value, place in values:
        if value in seen:
            first = str(seen[value] or "").rstrip(": ")
            raise Mismatch(f'{what} "{value}" is there twice (first in {first}); it must be unique', place)
        seen[value] = place


def _check_networks(cluster: Cluster) -> None:
    for later, network in enumerate(cluster.networks):
        for other in cluster.networks[:later]:
            if ipaddress.IPv4Network(network.cidr).overlaps(ipaddress.IPv4Network(other.cidr)):
                text = f'networks "{other.name}" ({other.cidr}) and "{network.name}" ({network.cidr}) overlap'
                raise Mismatch(f"{text}; each needs a range of its own", network.place)


def _check_node(cluster: Cluster, node: Node) -> None:
    first = cluster.networks[0]
    who = f'node "{node.name}"'
    _check_address(who, node.address, first, node.place)
    _unique(f"{who}: role", [(role, node.place) for role in node.roles])
    if node.name == "controller" and "controller" not in node.roles:
        raise Mismatch('a node named "controller" must have the role "controller"; else rename it', node.place)
    networks = {network.name: network for network in cluster.networks}
    _unique(f"{who}: link to network", [(link.network, link.place) for link in node.links])
    for link in node.links:
        if link.network not in networks:
            raise Mismatch(f'{who}: no network "{link.network}" {nearest(link.network, networks)}', link.place)
        if link.network == first.name:
            if link.address not in (None, node.address):
                text = f'{who}: its link to "{first.name}" says {link.address}, the node says {node.address}'
                raise Mismatch(f"{text}; leave the link's address out", link.place)
        elif link.address is None:
            raise Mismatch(f'{who}: its link to "{link.network}" needs an address', link.place)
        else:
            _check_address(who, link.address, networks[link.network], link.place)


def _check_address(who: str, address: str, network: Network, place: Place | None) -> None:
    net, ip = ipaddress.IPv4Network(network.cidr), ipaddress.IPv4Address(address)
    if ip not in net:
        allowed = f"{net[1]} to {net[-2]}" if net.prefixlen < 31 else network.cidr
        text = f'{who}: address {address} is not in the network "{network.name}" ({network.cidr})'
        raise Mismatch(f"{text}; allowed is {allowed}", place)
    if net.prefixlen < 31 and ip in (net.network_address, net.broadcast_address):
        raise Mismatch(f"{who}: {address} is the network or broadcast address of {network.cidr}", place)


def _check_addresses(cluster: Cluster) -> None:
    """An address in use twice breaks both machines, also where the two are links to a second network."""
    addresses: list[Placed] = [(node.address, node.place) for node in cluster.nodes]
    for node in cluster.nodes:
        addresses += [(link.address, link.place) for link in node.links if link.address not in (None, node.address)]
    _unique("address", addresses)


def _check_controller(cluster: Cluster) -> None:
    controllers = [node for node in cluster.nodes if "controller" in node.roles]
    if not controllers:
        names = ", ".join(node.name for node in cluster.nodes)
        raise Mismatch(f'no node has the role "controller"; give one of {names} roles=("controller", "compute")')
    if len(controllers) > 1:
        names = " and ".join(node.name for node in controllers)
        raise Mismatch(f'exactly one node must have the role "controller"; found {names}', controllers[1].place)
    if not cluster.compute_nodes:
        raise Mismatch('no node has the role "compute"', controllers[0].place)


def _check_people(cluster: Cluster) -> None:
    _unique("team name", [(team.name, team.place) for team in cluster.teams])
    _unique("user name", [(user.name, user.place) for user in cluster.users])
    _unique("uid", [(str(user.uid), user.place) for user in cluster.users])
    teams = {team.name for team in cluster.teams}
    for user in cluster.users:
        if user.name in teams:
            text = f'user "{user.name}" is named like a team; both would be a group on the nodes'
            raise Mismatch(f"{text}: rename one", user.place)
        for team in user.teams:
            if team not in teams:
                raise Mismatch(f'user "{user.name}": no team "{team}" {nearest(team, teams)}', user.place)


def _check_partitions(cluster: Cluster) -> None:
    partitions = cluster.slurm.partitions
    _unique("partition name", [(partition.name, partition.place) for partition in partitions])
    compute = {node.name for node in cluster.compute_nodes}
    for partition in partitions:
        for name in partition.nodes:
            if name not in compute:
                text = f'partition "{partition.name}": no compute node "{name}" {nearest(name, compute)}'
                raise Mismatch(text, partition.place)
    defaults = [partition for partition in partitions if partition.default]
    if len(defaults) > 1:
        names = " and ".join(partition.name for partition in defaults)
        raise Mismatch(f"partitions {names} are both the default; leave default=True on one", defaults[1].place)
