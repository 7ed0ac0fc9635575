"""The fabric role: MTU and names of the ports, and which interface each program gets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

from inventory.gpu_stack import GpuStack
from inventory.model import Gpu, Link, Network, Node
from roles import fabric
from tests.roles.sample import cluster
from validation.checks.node_fabric import WRITTEN, written

NODE = Node(
    name="n2",
    address="10.0.0.3",
    gpus=(Gpu(model="NVIDIA GeForce RTX 4090", no_p2p_because="they hang"),),
    links=(Link(network="fast", address="10.0.9.3"), Link(network="store", address="10.0.8.3")),
)
SOME = cluster(
    networks=(
        Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1),
        Network(name="fast", cidr="10.0.9.0/24", speed_gbps=100, mtu=9000, purposes=("compute",)),
        Network(name="store", cidr="10.0.8.0/24", speed_gbps=10, purposes=("storage",)),
    ),
    nodes=(Node(name="head", address="10.0.0.1", roles=("controller",)), NODE),
    gpu_stack=GpuStack(versions="debian-550"),
)  # fmt: skip


def row(name: str, local: str, **more: object) -> dict[str, object]:
    mac = f"aa:00:00:00:00:{local.rpartition('.')[2]:0>2}"
    return {"ifname": name, "mtu": 1500, "address": mac, "addr_info": [{"local": local}], **more}


ROWS = [
    row("lo", "127.0.0.1"),
    {},
    row("enp1s0", "10.0.0.3"),
    # In a bond a port shows the bond's address; the one it was made with stands beside it.
    row("enp9s0", "10.0.9.3", address="bb:00:00:00:00:09", permaddr="aa:00:00:00:00:09"),
    row("bond0", "10.0.8.3"),
]
OUTPUT = [
    json.dumps(ROWS), "", "#physical",
    "/sys/class/net/enp1s0/device", "/sys/class/net/enp9s0/device", "#rdma", "mlx5_0",
]  # fmt: skip
FOUND = fabric.parse_interfaces(OUTPUT)


def contents(name: str, found: fabric.Interfaces = FOUND) -> dict[str, str]:
    return {file.path: file.content for file in fabric.plan(SOME, SOME.node(name), found).files}


def test_nccl_gets_the_interface_of_the_network_that_carries_compute() -> None:
    """Exactly that interface, by an equals sign, and the adapters that are there."""
    text = contents("n2")[fabric.NCCL_CONF]
    assert "NCCL_SOCKET_IFNAME==enp9s0\n" in text
    assert "NCCL_IB_HCA=mlx5_0\n" in text


def test_copies_that_are_off_have_their_reason_beside_them() -> None:
    """NCCL_P2P_DISABLE stands below the sentence that says why; without a reason it is not there."""
    lines = contents("n2")[fabric.NCCL_CONF].splitlines()
    at = lines.index("NCCL_P2P_DISABLE=1")
    assert "they hang" in lines[at - 1]
    plain = NODE.model_copy(update={"gpus": (Gpu(model="NVIDIA A10G"),)})
    tree = fabric.plan(SOME, plain, FOUND)
    assert "P2P" not in "".join(file.content for file in tree.files)


def test_every_link_and_every_programs_interface_is_written_down() -> None:
    """Slurm has the first network, collectives and file servers theirs; the check reads the same names."""
    text = contents("n2")[fabric.NETWORK_ENV]
    assert "# fast: enp9s0, 10.0.9.3, 100.0 Gb/s, MTU 9000" in text
    assert written(text) == {
        "SLURM_IFNAME": "enp1s0", "NFS_IFNAME": "bond0", "GLOO_SOCKET_IFNAME": "enp9s0", "NCCL_SOCKET_IFNAME": "enp9s0",
    }  # fmt: skip
    assert set(written(text)) == set(WRITTEN)


def prolog(found: fabric.Interfaces, **environment: str) -> str:
    done = subprocess.run(
        ["sh"],
        input=contents("n2", found)[fabric.TASK_PROLOG],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_task_is_told_its_interface_unless_a_person_said_one() -> None:
    """What Slurm sets in a task; where no interface has the address nothing is set, and the task still starts."""
    assert prolog(FOUND) == "export GLOO_SOCKET_IFNAME=enp9s0\nexport NCCL_SOCKET_IFNAME==enp9s0\n"
    assert prolog(FOUND, GLOO_SOCKET_IFNAME="mine") == "export NCCL_SOCKET_IFNAME==enp9s0\n"
    assert prolog(fabric.Interfaces()) == ""


def test_a_node_without_its_address_gets_no_guess() -> None:
    """Where no interface has the declared address no name is written: validation says it."""
    files = contents("n2", fabric.Interfaces())
    assert set(files) == {fabric.NETWORK_ENV, fabric.TASK_PROLOG}
    assert set(written(files[fabric.NETWORK_ENV]).values()) == {""}


def test_a_node_without_cards_needs_no_nccl() -> None:
    """nccl.conf is only where cards are, RDMA's limits only where an adapter is."""
    found = fabric.Interfaces({"10.0.0.1": fabric.Port("eth0", "", 1500, physical=False)})
    assert set(contents("head", found)) == {fabric.NETWORK_ENV, fabric.TASK_PROLOG}
    assert fabric.RDMA_LIMITS in contents("n2")


def test_a_port_keeps_its_name_and_mtu_over_a_boot() -> None:
    """A file of systemd's for each port of the machine, by the address that it was made with; none for a bond."""
    files = {path: text for path, text in contents("n2").items() if path.endswith(".link")}
    assert set(files) == {f"/etc/systemd/network/10-klaster-{name}.link" for name in ("enp1s0", "enp9s0")}
    assert "PermanentMACAddress=aa:00:00:00:00:09\n" in files["/etc/systemd/network/10-klaster-enp9s0.link"]
    assert "Name=enp9s0\nMTUBytes=9000\n" in files["/etc/systemd/network/10-klaster-enp9s0.link"]


def changed(commands: list[str], tools: Mapping[str, int]) -> str:
    """What the commands say with these programs in place of the real ones (name → exit status)."""
    fakes = "".join(f'{name}() {{ echo {name} "$@"; return {status}; }}\n' for name, status in tools.items())
    return subprocess.run(["sh", "-ec", fakes + "\n".join(commands)], capture_output=True, text=True, check=True).stdout


def test_a_wrong_mtu_is_set_unless_a_job_runs() -> None:
    """The one link that differs is changed; with a job on the node it is only said."""
    commands = fabric.mtu_commands(SOME, NODE, FOUND)
    assert "ip link set dev enp9s0 mtu 9000" in changed(commands, {"pgrep": 1, "ip": 0})
    said = changed(commands, {"pgrep": 0, "ip": 0})
    assert "enp9s0 has MTU 1500, declared 9000: a job runs" in said
    assert "ip link" not in said
