"""The fabric role: which interface each program gets."""

from __future__ import annotations

from inventory.gpu_stack import GpuStack
from inventory.model import Gpu, Link, Network, Node
from roles import fabric
from tests.roles.sample import cluster

NODE = Node(
    name="n2",
    address="10.0.0.3",
    gpus=(Gpu(model="NVIDIA GeForce RTX 4090", no_p2p_because="they hang"),),
    links=(Link(network="fast", address="10.0.9.3"),),
)
SOME = cluster(
    networks=(
        Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1),
        Network(name="fast", cidr="10.0.9.0/24", speed_gbps=100),
    ),
    nodes=(Node(name="head", address="10.0.0.1", roles=("controller",)), NODE),
    gpu_stack=GpuStack(versions="debian-550"),
)  # fmt: skip
OUTPUT = """\
[{"ifname":"lo","addr_info":[{"local":"127.0.0.1"}]},{},
{"ifname":"enp1s0","addr_info":[{"local":"10.0.0.3"}]},{"ifname":"enp9s0","addr_info":[{"local":"10.0.9.3"}]}]

#rdma
mlx5_0
""".splitlines()


def contents(name: str, found: fabric.Interfaces) -> dict[str, str]:
    return {file.path: file.content for file in fabric.plan(SOME, SOME.node(name), found).files}


def test_nccl_gets_the_interface_of_the_declared_address() -> None:
    """Exactly that interface, by an equals sign, and the adapters that are there."""
    found = fabric.parse_interfaces(OUTPUT)
    text = contents("n2", found)[fabric.NCCL_CONF]
    assert "NCCL_SOCKET_IFNAME==enp1s0\n" in text
    assert "NCCL_IB_HCA=mlx5_0\n" in text


def test_copies_that_are_off_have_their_reason_beside_them() -> None:
    """NCCL_P2P_DISABLE stands below the sentence that says why; without a reason it is not there."""
    lines = contents("n2", fabric.parse_interfaces(OUTPUT))[fabric.NCCL_CONF].splitlines()
    at = lines.index("NCCL_P2P_DISABLE=1")
    assert "they hang" in lines[at - 1]
    plain = NODE.model_copy(update={"gpus": (Gpu(model="NVIDIA A10G"),)})
    tree = fabric.plan(SOME, plain, fabric.parse_interfaces(OUTPUT))
    assert "P2P" not in "".join(file.content for file in tree.files)


def test_every_link_is_written_down() -> None:
    """Interface, address and declared speed of each network, for people and programs."""
    text = contents("n2", fabric.parse_interfaces(OUTPUT))[fabric.NETWORK_ENV]
    assert "# fast: enp9s0, 10.0.9.3, 100.0 Gb/s" in text
    assert "GLOO_SOCKET_IFNAME=enp1s0" in text


def test_a_node_without_its_address_gets_no_guess() -> None:
    """Where no interface has the declared address nothing is written: validation names it."""
    assert contents("n2", fabric.Interfaces()) == {}


def test_a_node_without_cards_needs_no_nccl() -> None:
    """nccl.conf is only where cards are, RDMA's limits only where an adapter is."""
    found = fabric.Interfaces({"10.0.0.1": "eth0"})
    assert set(contents("head", found)) == {fabric.NETWORK_ENV}
    assert fabric.RDMA_LIMITS in contents("n2", fabric.parse_interfaces(OUTPUT))
