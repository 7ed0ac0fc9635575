"""Loading an inventory: the examples load, files beside it are named, a damaged hardware lock says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from inventory.errors import InventoryError
from inventory.hardware import FoundNode, HardwareLock
from inventory.loading import hardware_lock_path, load_cluster, secrets_path
from tests.inventory.broken import RIGHT

EXAMPLES = Path(__file__).resolve().parents[2] / "inventory"

NODE = FoundNode(
    architecture="x86_64",
    virtualisation="none",
    distribution="debian",
    release="13",
    cpu_model="a processor",
    sockets=2,
    cores_per_socket=4,
    threads_per_core=2,
    memory_mib=64_000,
    gpus=(),
    nics=(),
    disks=(),
    cgroup_controllers=("cpu", "memory"),
)


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    file = tmp_path / "den.py"
    file.write_text(RIGHT, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("name", "nodes"),
    [("home", ("attic", "desk", "cellar")), ("lab", ("head", "n1", "n2", "n3")), ("lab_two", ("head", "n1"))],
)
def test_the_examples_load(name: str, nodes: tuple[str, ...]) -> None:
    """Each example in the repository is a right inventory."""
    cluster = load_cluster(str(EXAMPLES / f"{name}.py"))
    assert tuple(node.name for node in cluster.nodes) == nodes


def test_the_home_example_has_one_node_with_two_gpus() -> None:
    """The home example shows a PC with two cards and a faster port."""
    cluster = load_cluster(str(EXAMPLES / "home.py"))
    desk = cluster.node("desk")
    assert (desk.gpu_count, cluster.link(desk).speed_gbps) == (2, 2.5)


def test_only_the_lab_is_a_rehearsal() -> None:
    """A certificate of the home example speaks of hardware, those of the lab of a rehearsal."""
    found = {name: load_cluster(str(EXAMPLES / f"{name}.py")).substrate for name in ("home", "lab", "lab_two")}
    assert found == {"home": "hardware", "lab": "rehearsal", "lab_two": "rehearsal"}


def test_in_the_two_pc_home_the_head_computes() -> None:
    """With two PCs the head is a compute node too."""
    cluster = load_cluster(str(EXAMPLES / "lab_two.py"))
    assert cluster.controller in cluster.compute_nodes


def test_a_list_is_as_good_as_a_tuple(tmp_path: Path) -> None:
    """Square brackets instead of round ones are no mistake; the model holds tuples."""
    file = tmp_path / "den.py"
    text = RIGHT.replace("    nodes=(\n", "    nodes=[\n").replace("    ),\n    ssh", "    ],\n    ssh")
    file.write_text(text, encoding="utf-8")
    assert "nodes=[" in text
    assert isinstance(load_cluster(str(file)).nodes, tuple)


def test_private_lists_are_the_persons_own(tmp_path: Path) -> None:
    """Names with an underscore in front are no groups of pyinfra and may hold anything."""
    file = tmp_path / "den.py"
    file.write_text(RIGHT.replace("\nCLUSTER", "\n_SPARES = ['a', 'b']\nCLUSTER"), encoding="utf-8")
    assert load_cluster(str(file)).name == "den"


def test_lock_and_secrets_lie_beside_the_inventory(inventory: Path) -> None:
    """Without a state folder the lock and the secrets have the inventory's name, in its folder."""
    assert hardware_lock_path(str(inventory)) == inventory.with_name("den.hardware.json")
    assert secrets_path(str(inventory)) == inventory.with_name("den.secrets.json")


def test_the_state_folder_takes_lock_and_secrets(tmp_path: Path) -> None:
    """With a state folder nothing is written beside the inventory."""
    file = tmp_path / "den.py"
    file.write_text(RIGHT.replace('name="den",', 'name="den", state_dir="/var/lib/den",'), encoding="utf-8")
    assert hardware_lock_path(str(file)) == Path("/var/lib/den/den.hardware.json")


def test_a_lock_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """Before the first discovery the lock has no node."""
    assert HardwareLock.load(tmp_path / "none.json").nodes == {}


def test_a_lock_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    """Saving and loading gives the same lock, and the same identity of the hardware."""
    path = tmp_path / "den.hardware.json"
    HardwareLock(nodes={"desk": NODE}).save(path)
    again = HardwareLock.load(path).nodes["desk"]
    assert again == NODE
    assert again.sha256 == NODE.sha256
    assert list(tmp_path.iterdir()) == [path]


def test_other_hardware_has_another_identity() -> None:
    """A certificate is void when a DIMM goes: the hash moves with every fact."""
    assert NODE.model_copy(update={"memory_mib": 32_000}).sha256 != NODE.sha256


def test_processors_are_counted_with_threads() -> None:
    """Sockets times cores times threads is what Slurm calls CPUs."""
    assert NODE.cpus == 16


@pytest.mark.parametrize("text", ["{", '{"nodes": {"desk": {}}}', '{"nodez": {}}'])
def test_a_damaged_lock_says_what_to_do(text: str, tmp_path: Path) -> None:
    """A lock that can't be read is one line with its path and the remedy."""
    path = tmp_path / "den.hardware.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InventoryError, match=r"den\.hardware\.json: .*restore it from git, or delete it") as caught:
        HardwareLock.load(path)
    assert "\n" not in caught.value.message
