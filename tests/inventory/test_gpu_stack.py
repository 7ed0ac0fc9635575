"""The GPU stack of an inventory: which cards, drivers, kernel modules and CUDA go together."""

from __future__ import annotations

from typing import Any

import pytest

from inventory.cards import generation
from inventory.containers import first_subordinate_id
from inventory.errors import InventoryError
from inventory.gpu_stack import VERSION_SETS, GpuStack, wanted_flavours
from inventory.model import Cluster, Containers, External, Gpu, Network, Node, Registry, TrainingEnv

NVIDIA = {"repository_url": "https://packages.example/debian13", "repository_key": "/root/nvidia.asc"}


def cluster(*gpus: Gpu, stack: GpuStack | None = None, **more: Any) -> Cluster:
    """A head without and a node with these cards."""
    return Cluster(
        name="c",
        networks=(Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1),),
        nodes=(
            Node(name="head", address="10.0.0.1", roles=("controller",)),
            Node(name="n1", address="10.0.0.2", gpus=gpus),
        ),
        gpu_stack=stack,
        **more,
    )


CARDS = [
    ("NVIDIA GeForce RTX 5090", "blackwell"),
    ("NVIDIA GeForce RTX 5060 Ti", "blackwell"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "blackwell"),
    ("NVIDIA B200", "blackwell"),
    ("NVIDIA B300 SXM6 AC", "blackwell-ultra"),
    ("NVIDIA H100 80GB HBM3", "hopper"),
    ("NVIDIA H200", "hopper"),
    ("NVIDIA GH200 480GB", "hopper"),
    ("NVIDIA GeForce RTX 4090", "ada"),
    ("NVIDIA RTX 6000 Ada Generation", "ada"),
    ("NVIDIA L40S", "ada"),
    ("NVIDIA L4", "ada"),
    ("NVIDIA GeForce RTX 3060", "ampere"),
    ("NVIDIA RTX A6000", "ampere"),
    ("NVIDIA A10G", "ampere"),
    ("NVIDIA A100-SXM4-80GB", "ampere"),
    ("NVIDIA A100 80GB PCIe", "ampere"),
    ("NVIDIA GeForce RTX 2080 Ti", "turing"),
    ("NVIDIA GeForce GTX 1660 Ti", "turing"),
    ("Quadro RTX 6000", "turing"),
    ("Tesla T4", "turing"),
    ("Tesla V100-SXM2-16GB", "volta"),
    ("NVIDIA GeForce GTX 1080 Ti", "pascal"),
    ("Quadro P2000", "pascal"),
    ("Tesla P100-PCIE-16GB", "pascal"),
    ("NVIDIA GeForce GTX 980", "maxwell"),
    ("Tesla M60", "maxwell"),
    ("Tesla K80", "kepler"),
]


@pytest.mark.parametrize(("model", "expected"), CARDS)
def test_a_card_has_the_generation_of_its_name(model: str, expected: str) -> None:
    """Names as nvidia-smi prints them give the card's architecture."""
    found = generation(model)
    assert found is not None
    assert found.name == expected


def test_an_unknown_card_has_no_generation() -> None:
    """A name that the table does not know is not guessed."""
    assert generation("Graphics Device") is None
    assert generation("NVIDIA Z9000") is None


def stack(**values: Any) -> GpuStack:
    return GpuStack(**{"versions": "debian-550", **values})


REFUSED: list[tuple[str, tuple[Gpu, ...], GpuStack | None, dict[str, Any], str]] = [
    ("a driver older than the card", (Gpu(model="NVIDIA GeForce RTX 5090"),), stack(), {}, "driver 570 or newer"),
    ("a driver that dropped the card", (Gpu(model="Tesla K80"),), stack(), {}, "driver 470 or older"),
    ("an unknown card", (Gpu(model="NVIDIA Z9000"),), stack(), {}, "NVIDIA Z9000"),
    ("a CUDA newer than the driver", (Gpu(model="NVIDIA A10G"),), stack(),
     {"training": TrainingEnv(cuda="13.0", lock_file="x")}, "driver 580 or newer"),
    ("a torch of unknown CUDA", (Gpu(model="NVIDIA A10G"),), stack(),
     {"training": TrainingEnv(lock_file="x")}, "say which CUDA"),
    ("a torch too old for the card", (Gpu(model="NVIDIA GeForce RTX 5090"),), None,
     {"training": TrainingEnv(cuda="12.4")}, "at least 12.8"),
    ("a torch that dropped the card", (Gpu(model="Quadro P2000"),), None,
     {"training": TrainingEnv(cuda="13.0")}, "at most 12.9"),
    ("the open module on an old card", (Gpu(model="Quadro P2000"),), stack(flavour="open"), {}, "proprietary"),
    ("the proprietary module on a new card", (Gpu(model="NVIDIA B200"),),
     GpuStack(versions="ubuntu-580", flavour="proprietary"), {}, 'flavour="open"'),
    ("cards that need different modules", (Gpu(model="NVIDIA B200"), Gpu(model="Tesla P40")),
     GpuStack(versions="ubuntu-580"), {}, "different machines"),
    ("NVIDIA's repository without address", (Gpu(model="NVIDIA B200"),), GpuStack(versions="nvidia-580"), {},
     "repository_url"),
    ("an address that is not used", (Gpu(model="NVIDIA A10G"),), stack(**NVIDIA), {}, "leave it out"),
    ("DCGM that Debian does not have", (Gpu(model="NVIDIA A10G"),), stack(dcgm=True), {}, "no DCGM"),
    ("a fabric manager that Debian does not have", (Gpu(model="NVIDIA A10G"),), stack(nvswitch=True), {},
     "fabric manager"),
    ("a power cap nobody would set", (Gpu(model="NVIDIA A10G", power_cap_watts=100),), None, {}, "gpu_stack"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "gpus", "gpu_stack", "more", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_can_not_work_is_refused(
    what: str, gpus: tuple[Gpu, ...], gpu_stack: GpuStack | None, more: dict[str, Any], words: str
) -> None:
    """An impossible set of card, driver, module and CUDA is one sentence before a node is touched."""
    with pytest.raises(InventoryError, match=words.replace("(", r"\(")):
        cluster(*gpus, stack=gpu_stack, **more)


def test_different_cards_in_one_cluster_are_normal() -> None:
    """Two generations that one driver and one CUDA serve are accepted, on one node too."""
    both = (Gpu(model="NVIDIA GeForce RTX 5090"), Gpu(model="NVIDIA GeForce RTX 2080 Ti", count=2))
    some = cluster(*both, stack=GpuStack(versions="nvidia-580", **NVIDIA), training=TrainingEnv(cuda="13.0"))
    assert some.node("n1").gpu_count == 3


def test_the_kernel_module_follows_the_generation() -> None:
    """auto prefers the open module and keeps the other for a second choice; a named one is the only choice."""
    node = cluster(Gpu(model="NVIDIA A10G"), stack=stack()).node("n1")
    assert wanted_flavours(stack(), node) == ("open", "proprietary")
    assert wanted_flavours(stack(flavour="open"), node) == ("open",)
    old = cluster(Gpu(model="Quadro P2000"), stack=stack()).node("n1")
    assert wanted_flavours(stack(), old) == ("proprietary",)


def test_a_card_of_another_name_may_say_its_generation() -> None:
    """A card that the table does not know is accepted with its generation."""
    some = cluster(Gpu(model="NVIDIA Z9000", generation="ampere"), stack=stack())
    assert wanted_flavours(stack(), some.node("n1"))[0] == "open"


def test_no_set_claims_to_have_been_run_on_a_card() -> None:
    """Each set says in words what of it was tried, so that `not run` can't be forgotten."""
    assert all(one.tried for one in VERSION_SETS)
    untried = {one.name for one in VERSION_SETS if one.tried.startswith("not ")}
    assert untried == {"nvidia-580", "ubuntu-580"}


def test_containers_do_not_lie_in_shared_storage() -> None:
    """Rootless storage below a shared folder is refused with both paths."""
    with pytest.raises(InventoryError, match="/shared/c"):
        cluster(storage=(External(path="/shared"),), containers=Containers(storage="/shared/c"))


def test_a_registry_is_on_a_node_of_the_cluster() -> None:
    """A registry on a node that is not there names the nearest."""
    with pytest.raises(InventoryError, match='did you mean "n1"'):
        cluster(registry=Registry(node="n11"))


def test_subordinate_ids_do_not_overlap() -> None:
    """Two people's ranges of container ids follow one another without a gap."""
    assert first_subordinate_id(10_001, 10_000) - first_subordinate_id(10_000, 10_000) == 65_536
