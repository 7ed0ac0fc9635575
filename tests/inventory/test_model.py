"""The model itself: what it accepts, that it can't be changed, and what it hands to pyinfra."""

from __future__ import annotations

import ipaddress
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from inventory import words
from inventory.errors import InventoryError
from inventory.model import Cluster, External, Gpu, Link, Network, Node, Ssh, Team, User
from inventory.networks import Purpose, has_link, link_for, network_for
from inventory.spec import Spec

LAN = Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1)
FAST = Network(name="fast", cidr="10.0.1.0/24", speed_gbps=100, mtu=9000)
HEAD = Node(name="head", address="10.0.0.1", roles=("controller",))


def cluster(**changes: Any) -> Cluster:
    """A right cluster of a head and one compute node, with the parts that a test changes."""
    parts: dict[str, Any] = {
        "name": "den",
        "networks": (LAN, FAST),
        "nodes": (HEAD, Node(name="n1", address="10.0.0.2")),
    }
    return Cluster(**{**parts, **changes})


def test_a_cluster_of_one_pc_is_natural() -> None:
    """One machine that is controller and compute node is a cluster."""
    only = cluster(nodes=(Node(name="pc", address="10.0.0.1", roles=("controller", "compute")),))
    assert only.controller in only.compute_nodes


@pytest.mark.parametrize("part", Spec.__subclasses__(), ids=lambda part: part.__name__)
def test_every_field_has_a_sentence(part: type[Spec]) -> None:
    """Messages and docs/inventory.md quote the description of each field."""
    assert [name for name, field in part.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("part", Spec.__subclasses__(), ids=lambda part: part.__name__)
def test_every_part_is_frozen(part: type[Spec]) -> None:
    """No part can be changed after it was checked."""
    assert part.model_config.get("frozen")
    assert part.model_config.get("extra") == "forbid"


def test_a_field_can_not_be_assigned() -> None:
    """Assigning to a field raises instead of making an unchecked cluster."""
    with pytest.raises(ValidationError, match="frozen"):
        HEAD.name = "other"  # type: ignore[misc]


def test_equal_parts_are_equal_wherever_they_are_written() -> None:
    """The place in the file is for messages only: it is no part of equality or of the dump."""
    one = Team(name="family")
    other = Team(name="family")
    assert one.place is not None
    assert other.place is not None
    assert one.place.line != other.place.line
    assert one == other
    assert hash(one) == hash(other)
    assert set(one.model_dump()) == set(Team.model_fields)


def test_a_cluster_survives_json() -> None:
    """The dump in results.jsonl gives the same cluster again, without the inventory file."""
    before = cluster(users=(User(name="kim", uid=10_000, teams=("a",)),), teams=(Team(name="a"),))
    after = Cluster.model_validate(json.loads(json.dumps(before.model_dump(mode="json"))))
    assert after == before


def test_an_unknown_node_names_the_nearest() -> None:
    """Asking for a node that is not there names the one that was meant."""
    with pytest.raises(InventoryError, match=r'no node "hed" in cluster "den" \(did you mean "head"'):
        cluster().node("hed")


def test_a_link_is_the_networks_unless_it_says_otherwise() -> None:
    """Address, speed and MTU come from the node's link, else from node and network."""
    node = Node(name="n1", address="10.0.0.2", links=(Link(network="lan", speed_gbps=2.5),))
    assert cluster(nodes=(HEAD, node)).link(node) == Link(network="lan", address="10.0.0.2", speed_gbps=2.5, mtu=1500)


def test_a_second_network_needs_an_address_and_gives_its_speed() -> None:
    """A link to a second network has that network's speed and MTU."""
    node = Node(name="n1", address="10.0.0.2", links=(Link(network="fast", address="10.0.1.2"),))
    link = cluster(nodes=(HEAD, node)).link(node, FAST)
    assert link == Link(network="fast", address="10.0.1.2", speed_gbps=100, mtu=9000)
    with pytest.raises(InventoryError, match='its link to "fast" needs an address'):
        cluster(nodes=(HEAD, Node(name="n1", address="10.0.0.2", links=(Link(network="fast"),))))


def test_a_purpose_has_one_network_and_every_compute_node_is_in_it() -> None:
    """What no network declares is carried by the first; a node without an address in the declared one is refused."""
    fast = FAST.model_copy(update={"purposes": ("compute",)})
    node = Node(name="n1", address="10.0.0.2", links=(Link(network="fast", address="10.0.1.2"),))
    head = HEAD.model_copy(update={"roles": ("controller",)})
    one = cluster(networks=(LAN, fast), nodes=(head, node))
    assert [network_for(one, purpose).name for purpose in get_args(Purpose)] == [
        "lan",
        "fast",
        "lan",
    ]
    assert link_for(one, node, "compute").address == "10.0.1.2"
    assert link_for(one, head, "compute").address == head.address, "it has no link there"
    assert not has_link(one, head, "compute")
    with pytest.raises(InventoryError, match=r'node "n2" computes and has no link to the network "fast".*add links='):
        cluster(networks=(LAN, fast), nodes=(head, node, Node(name="n2", address="10.0.0.3")))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (("compute",), ("compute",), 'networks "lan" and "fast" both carry compute'),
        ((), ("management",), 'network "fast" carries management, and the first network is "lan"'),
    ],
)
def test_purposes_that_contradict_each_other_are_refused(
    first: tuple[Purpose, ...], second: tuple[Purpose, ...], words: str
) -> None:
    """One network a purpose, and management is where every node's address is."""
    networks = (LAN.model_copy(update={"purposes": first}), FAST.model_copy(update={"purposes": second}))
    node = Node(name="n1", address="10.0.0.2", links=(Link(network="fast", address="10.0.1.2"),))
    with pytest.raises(InventoryError, match=words):
        cluster(networks=networks, nodes=(HEAD.model_copy(update={"roles": ("controller",)}), node))


def test_addresses_are_unique_in_every_network() -> None:
    """Two nodes with one address in the second network are refused as in the first."""
    nodes = [
        Node(name=f"n{n}", address=f"10.0.0.{n}", links=(Link(network="fast", address="10.0.1.9"),)) for n in (2, 3)
    ]
    with pytest.raises(InventoryError, match=r'address "10.0.1.9" is there twice'):
        cluster(nodes=(HEAD, *nodes))


def test_cards_of_several_models_are_counted_together() -> None:
    """The number of GPUs is the sum over models."""
    node = Node(name="n1", address="10.0.0.2", gpus=(Gpu(model="A100", count=2), Gpu(model="T4")))
    assert node.gpu_count == 3


def test_storage_paths_lose_their_last_slash() -> None:
    """The same folder written in two ways is the same path."""
    assert External(path="/data/").path == "/data"


@pytest.mark.parametrize("name", ["source", "index_url", "cuda", "venv"])
def test_the_training_environment_refuses_nonsense(name: str) -> None:
    """No field of TrainingEnv takes a value that would end in a shell or an address line by accident."""
    with pytest.raises(InventoryError, match=name):
        cluster(training={name: "a; rm -rf /"})


def test_an_index_with_a_password_is_refused() -> None:
    """Secrets do not belong into an inventory: it is copied into every result."""
    with pytest.raises(InventoryError, match="holds a password") as caught:
        cluster(training={"index_url": "https://me:geheim@index.example/simple"})
    assert "geheim" not in caught.value.message


# --- what pyinfra gets -------------------------------------------------------------------------------------------


def _hosts(group: tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]) -> list[str]:
    return [name for name, _ in group[0]]


def test_groups_are_all_and_one_a_role() -> None:
    """pyinfra sees every node in `all`, and each role's nodes in a group of the role's name."""
    groups = cluster().groups("den.py")
    assert {name: _hosts(group) for name, group in groups.items()} == {
        "all": ["head", "n1"],
        "controller": ["head"],
        "compute": ["n1"],
        "storage": [],
    }


def test_host_data_are_the_connection_and_nothing_secret(tmp_path: Path) -> None:
    """`debug-inventory` prints host data: they hold how to connect, and no key's content or password."""
    ssh = Ssh(user="alex", key="~/.ssh/key", known_hosts="/etc/hosts_known", strict_host_keys="yes", port=2222)
    (_, data), _ = cluster(ssh=ssh).groups("den.py")["all"][0]
    assert data == {
        "ssh_hostname": "10.0.0.1",
        "ssh_port": 2222,
        "ssh_user": "alex",
        "ssh_key": str(Path.home() / ".ssh/key"),
        "ssh_known_hosts_file": "/etc/hosts_known",
        "ssh_strict_host_key_checking": "yes",
        "_sudo": True,
    }


@pytest.mark.parametrize(("user", "sudo"), [("root", False), ("alex", True)])
def test_sudo_is_used_by_everybody_but_root(user: str, sudo: bool) -> None:
    """An account that is not root works through sudo, also where only one node has it."""
    node = Node(name="n1", address="10.0.0.2", ssh_user=user)
    (_, data) = cluster(nodes=(HEAD, node)).groups("den.py")["all"][0][1]
    assert (data["ssh_user"], data["_sudo"]) == (user, sudo)


def test_hosts_know_their_inventory_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles find the model through the absolute path in the group's data."""
    monkeypatch.chdir(tmp_path)
    assert cluster().groups("den.py")["all"][1] == {"inventory_file": str(tmp_path / "den.py")}


def test_no_list_or_tuple_can_be_imported_by_accident() -> None:
    """pyinfra takes imported lists for groups of hosts: the model has none at the top, `import *` is safe."""
    import inventory.model

    public = {name: value for name, value in vars(inventory.model).items() if not name.startswith("_")}
    assert [name for name, value in public.items() if isinstance(value, (list, tuple))] == []


# --- names, addresses, networks: properties ----------------------------------------------------------------------

HOST_NAME: TypeAdapter[str] = TypeAdapter(words.HostName)
ADDRESS: TypeAdapter[str] = TypeAdapter(words.Address)
CIDR: TypeAdapter[str] = TypeAdapter(words.Cidr)


def _accepted(kind: TypeAdapter[str], text: str) -> bool:
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True


@given(st.text(max_size=70))
def test_a_host_name_is_one_label_of_dns(text: str) -> None:
    """Whatever is accepted is a DNS label in small letters, so that hosts files and Slurm take it as it is."""
    if _accepted(HOST_NAME, text):
        assert re.fullmatch(r"[a-z][a-z0-9-]*", text)
        assert len(text) <= 63
        assert not text.endswith("-")


@given(st.from_regex(r"[a-z][a-z0-9]{0,20}(-[a-z0-9]{1,10}){0,3}", fullmatch=True))
def test_usual_host_names_are_accepted(text: str) -> None:
    """Letters, digits and inner hyphens make a host name, but for the few reserved ones."""
    assert _accepted(HOST_NAME, text) == (text not in ("localhost", "default", "all", "compute")) or "ip6" in text


@given(st.text(alphabet="0123456789.:/ ", max_size=20))
def test_an_address_is_four_numbers(text: str) -> None:
    """Whatever is accepted is an IPv4 address and stays as it is written."""
    if _accepted(ADDRESS, text):
        assert str(ipaddress.IPv4Address(text)) == text


@given(st.integers(min_value=0x0A000000, max_value=0x0AFFFFFF))
def test_private_addresses_are_accepted(number: int) -> None:
    """Every address of 10.0.0.0/8 can be a node's."""
    assert _accepted(ADDRESS, str(ipaddress.IPv4Address(number)))


@given(st.integers(min_value=0x0A000000, max_value=0x0AFFFFFF), st.integers(min_value=8, max_value=30))
def test_a_network_has_no_host_bits(number: int, length: int) -> None:
    """A network is accepted exactly if its address is the first of its range."""
    network = ipaddress.IPv4Interface((number, length)).network
    text = f"{ipaddress.IPv4Address(number)}/{length}"
    assert _accepted(CIDR, text) == (text == str(network))


@given(st.text(max_size=40))
def test_a_path_stays_below_its_root_and_needs_no_quoting(text: str) -> None:
    """An accepted path is absolute, has no `..`, and no character that a shell or fstab would read."""
    if _accepted(TypeAdapter(words.AbsolutePath), text):
        assert text.startswith("/")
        assert ".." not in text.split("/")
        assert not set(text) & set(" \t\n'\"$`;&|<>(){}*?\\#")
