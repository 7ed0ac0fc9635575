"""A small cluster and its hardware for role tests."""

from __future__ import annotations

from inventory.hardware import FoundGpu, FoundNic, FoundNode, HardwareLock
from inventory.model import Cluster, Gpu, Network, Node


def found(**changes: object) -> FoundNode:
    """A bare Debian 13 machine with eight threads; `changes` replace fields."""
    node = FoundNode(
        architecture="x86_64",
        virtualisation="none",
        distribution="debian",
        release="13",
        cpu_model="a processor",
        sockets=1,
        cores_per_socket=4,
        threads_per_core=2,
        memory_mib=32000,
        gpus=(),
        nics=(FoundNic(name="enp1s0", speed_mbps=1000, mtu=1500, address="10.0.0.2"),),
        disks=(),
        cgroup_controllers=("cpu", "cpuset", "memory", "pids"),
    )
    return node.model_copy(update=changes)


def gpu(index: int = 0) -> FoundGpu:
    return FoundGpu(index=index, model="NVIDIA X", uuid=f"GPU-{index}", memory_mib=24576, bus_id=f"0000:0{index}:00.0")


def cluster(**changes: object) -> Cluster:
    values: dict[str, object] = {
        "name": "c",
        "networks": (Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1),),
        "nodes": (
            Node(name="head", address="10.0.0.1", roles=("controller",)),
            Node(name="n1", address="10.0.0.2"),
            Node(name="n2", address="10.0.0.3", gpus=(Gpu(model="NVIDIA X", count=2),)),
        ),
    }
    return Cluster(**{**values, **changes})


def lock(**nodes: FoundNode) -> HardwareLock:
    return HardwareLock(nodes=nodes)
