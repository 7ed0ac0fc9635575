"""Which network carries what: management, compute and storage, each in one network of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from inventory.errors import Mismatch

if TYPE_CHECKING:
    from inventory.model import Cluster, Link, Network, Node

Purpose = Literal["management", "compute", "storage"]
"""management: ssh, Slurm, people, metrics. compute: NCCL and gloo. storage: NFS and other file servers."""


def network_for(cluster: Cluster, purpose: Purpose) -> Network:
    """The network that is declared for it; the first one for what nobody declares."""
    return next((one for one in cluster.networks if purpose in one.purposes), cluster.networks[0])


def link_for(cluster: Cluster, node: Node, purpose: Purpose) -> Link:
    """The node's link in the network of that purpose; in the first one if it has none there."""
    link = cluster.link(node, network_for(cluster, purpose))
    return link if link.address else cluster.link(node)


def has_link(cluster: Cluster, node: Node, purpose: Purpose) -> bool:
    """Whether the node has an address in the network of that purpose."""
    return cluster.link(node, network_for(cluster, purpose)).address is not None


def check_purposes(cluster: Cluster) -> None:
    """Mismatch where a purpose has two networks, or a compute node has no address in the one of its purpose."""
    first, seen = cluster.networks[0], dict[str, str]()
    for network in cluster.networks:
        for purpose in network.purposes:
            if purpose in seen:
                text = f'networks "{seen[purpose]}" and "{network.name}" both carry {purpose}; one network carries it'
                raise Mismatch(f"{text}: take it out of one of them", network.place)
            seen[purpose] = network.name
        if "management" in network.purposes and network is not first:
            text = f'network "{network.name}" carries management, and the first network is "{first.name}"'
            raise Mismatch(f"{text}: put the network that holds every node's address first", network.place)
    for node in cluster.compute_nodes:
        for purpose in get_args(Purpose):
            if not has_link(cluster, node, purpose):
                name = network_for(cluster, purpose).name
                text = f'node "{node.name}" computes and has no link to the network "{name}", which carries {purpose}'
                raise Mismatch(f'{text}; add links=(Link(network="{name}", address="…"),)', node.place)
