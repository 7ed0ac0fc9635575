"""Leaf switches of a cluster: which nodes hang on which, and how thin the way from one to another is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from inventory.errors import Mismatch, Place, nearest
from inventory.spec import Spec
from inventory.words import HostName

if TYPE_CHECKING:
    from inventory.model import Cluster, Network


class Leaf(Spec):
    """A leaf switch: nodes hang on it, and it reaches the other leaves over its uplinks. One switch needs no Leaf."""

    name: HostName = Field(description="What verdicts call it, e.g. leaf1.")
    network: HostName | None = Field(default=None, description="The network it belongs to; unset: the first.")
    oversubscription: float | None = Field(
        default=None,
        strict=True,
        ge=1,
        le=64,
        description="Its nodes' ports together ÷ its uplinks together, 1 if none waits; unset: pairs of nodes on two "
        "leaves can't be judged.",
    )


Hung = dict[str, tuple[str | None, Place | None]]


def check_leaves(cluster: Cluster) -> None:
    """Mismatch where leaves, networks and nodes do not fit: once a network has leaves, each node says its own."""
    networks = {network.name: network for network in cluster.networks}
    names = {node.name for node in cluster.nodes}
    for leaf in cluster.leaves:
        if leaf.network is not None and leaf.network not in networks:
            text = f'leaf "{leaf.name}": no network "{leaf.network}" {nearest(leaf.network, networks)}'
            raise Mismatch(text, leaf.place)
        if leaf.name in names:
            text = f'leaf "{leaf.name}" is named like a node; a verdict could not tell them apart'
            raise Mismatch(f"{text}: rename one", leaf.place)
    for network in cluster.networks:
        _check_network(cluster, network)


def _check_network(cluster: Cluster, network: Network) -> None:
    first = network is cluster.networks[0]
    leaves = {leaf.name: leaf for leaf in cluster.leaves if (leaf.network or cluster.networks[0].name) == network.name}
    hung = _hung(cluster, network, first)
    for node, (leaf, place) in hung.items():
        what = f'node "{node}"' if first else f'node "{node}": its link to "{network.name}"'
        if leaf is not None and leaf not in leaves:
            known = nearest(leaf, leaves) if leaves else "(it has none; declare it: leaves=(Leaf(name=…),))"
            raise Mismatch(f'{what}: no leaf "{leaf}" in network "{network.name}" {known}', place)
        if leaf is None and leaves:
            text = f'{what} does not say its leaf, and network "{network.name}" has leaves'
            raise Mismatch(f'{text}: write leaf="…", one of {", ".join(leaves)}', place)
    for name, declared in leaves.items():
        if name not in {leaf for leaf, _ in hung.values()}:
            text = f'leaf "{name}": no node of network "{network.name}" hangs on it'
            raise Mismatch(f'{text}; write leaf="{name}" at its nodes, or take it out', declared.place)


def _hung(cluster: Cluster, network: Network, first: bool) -> Hung:
    """Node → its leaf in this network, as written, and the place to change; only nodes that are in the network."""
    found: Hung = {}
    for node in cluster.nodes:
        link = next((link for link in node.links if link.network == network.name), None)
        if first:
            if link is not None and link.leaf is not None:
                text = f'node "{node.name}": its leaf in the first network stands at the node, not at a link'
                raise Mismatch(f'{text}: write Node(name="{node.name}", leaf="{link.leaf}", …)', link.place)
            found[node.name] = (node.leaf, node.place)
        elif link is not None:
            found[node.name] = (link.leaf, link.place)
    return found
