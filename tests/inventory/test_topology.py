"""Leaf switches in the inventory: what fits, and the one line that is said where something does not."""

from __future__ import annotations

from typing import Any

import pytest

from inventory.errors import InventoryError
from inventory.model import Cluster, Leaf, Link, Network, Node

LAN = Network(name="lan", cidr="10.0.0.0/24", speed_gbps=25)
STORE = Network(name="store", cidr="10.0.1.0/24", speed_gbps=10)


def cluster(*leaves: Leaf, **of: str | None) -> Cluster:
    """A head and two nodes in one network; `of` says the leaf of each by name."""
    nodes = (
        Node(name="head", address="10.0.0.1", roles=("controller",), leaf=of.get("head", "leaf1")),
        Node(name="n1", address="10.0.0.2", leaf=of.get("n1", "leaf1")),
        Node(name="n2", address="10.0.0.3", leaf=of.get("n2", "leaf2")),
    )
    return Cluster(name="den", networks=(LAN, STORE), nodes=nodes, leaves=leaves)


ONE, TWO = Leaf(name="leaf1", oversubscription=2), Leaf(name="leaf2", oversubscription=1.5)


def test_a_leaf_spine_network_is_two_more_lines() -> None:
    """Leaves stand in the cluster, each node says its own; without any leaf it is one switch."""
    found = cluster(ONE, TWO)
    assert [node.leaf for node in found.nodes] == ["leaf1", "leaf1", "leaf2"]
    assert cluster(head=None, n1=None, n2=None).leaves == ()


def test_compute_and_storage_networks_have_leaves_of_their_own() -> None:
    """A link of a further network says its leaf there; nodes without such a link need none."""
    nodes = (
        Node(name="head", address="10.0.0.1", roles=("controller",), leaf="leaf1"),
        Node(
            name="n1",
            address="10.0.0.2",
            leaf="leaf1",
            links=(Link(network="store", address="10.0.1.2", leaf="store1"),),
        ),
    )
    leaves = (ONE, Leaf(name="store1", network="store"))
    assert Cluster(name="den", networks=(LAN, STORE), nodes=nodes, leaves=leaves).nodes[1].links[0].leaf == "store1"


@pytest.mark.parametrize(
    ("leaves", "of", "words"),
    [
        ((ONE, TWO), {"n2": "leaf3"}, ('node "n2": no leaf "leaf3" in network "lan"', "valid: leaf1, leaf2")),
        ((ONE, TWO), {"n2": None}, ('node "n2" does not say its leaf', 'write leaf="…", one of leaf1, leaf2')),
        ((), {}, ('node "head": no leaf "leaf1" in network "lan"', "leaves=(Leaf(name=…),)")),
        ((ONE, TWO), {"n2": "leaf1"}, ('leaf "leaf2": no node of network "lan" hangs on it',)),
        ((ONE, ONE), {"n2": "leaf1"}, ('leaf name "leaf1" is there twice',)),
        ((ONE, Leaf(name="leaf2", network="lam")), {}, ('no network "lam"', 'mean "lan"?')),
        ((ONE, TWO, Leaf(name="n1")), {}, ('leaf "n1" is named like a node', "rename one")),
    ],
)
def test_what_does_not_fit_is_one_line(leaves: Any, of: dict[str, str | None], words: tuple[str, ...]) -> None:
    """The first mistake is told in one sentence with what is allowed."""
    with pytest.raises(InventoryError) as error:
        cluster(*leaves, **of)
    assert all(word in error.value.message for word in words), error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize("oversubscription", [0.5, 0, 65, "2"])
def test_an_oversubscription_is_a_number_from_1(oversubscription: Any) -> None:
    """Uplinks that are faster than the ports below them are 1, not a half."""
    with pytest.raises(InventoryError, match="oversubscription"):
        Leaf(name="leaf1", oversubscription=oversubscription)


def test_a_links_leaf_is_not_for_the_first_network() -> None:
    """The leaf in the first network stands at the node, once."""
    node = Node(name="n1", address="10.0.0.2", links=(Link(network="lan", leaf="leaf1"),))
    head = Node(name="head", address="10.0.0.1", roles=("controller",), leaf="leaf1")
    with pytest.raises(InventoryError, match=r'at the node, not at a link: write Node\(name="n1", leaf="leaf1"'):
        Cluster(name="den", networks=(LAN,), nodes=(head, node), leaves=(ONE,))
