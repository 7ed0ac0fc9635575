"""Interfaces that programs use, further networks, RDMA: verdicts on a recording with one thing changed at a time."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inventory.model import Cluster, Link, Network
from validation.checks import node_fabric, node_network
from validation.checks.node import Finding, Gathered, Subject
from validation.model import Outcome
from validation.node_file import load
from validation.node_gather import further_networks
from validation.rdma_gather import end_command, measure_rdma, parse_bandwidth, rounds

HEALTHY = Path(__file__).parents[1] / "recordings" / "node" / "healthy.json"
ENV = "# a comment\nSLURM_IFNAME=eth0\nNFS_IFNAME=eth0\nGLOO_SOCKET_IFNAME={0}\nNCCL_SOCKET_IFNAME=={0}\n"


def two_networks(cluster: Cluster) -> Cluster:
    """The recorded cluster with a second network that carries compute; node i has 10.88.0.i there."""
    fast = Network(name="fast", cidr="10.88.0.0/24", speed_gbps=10, mtu=9000, purposes=("compute",))
    nodes = tuple(
        node.model_copy(update={"links": (Link(network="fast", address=f"10.88.0.{at}"),)})
        for at, node in enumerate(cluster.nodes, 10)
    )
    return cluster.model_copy(update={"networks": (*cluster.networks, fast), "nodes": nodes})


@pytest.fixture
def fleet() -> Gathered:
    """Every node with eth1 in the second network, everything as it should be."""
    recorded = load(HEALTHY)
    cluster, probes = two_networks(recorded.cluster), copy.deepcopy(dict(recorded.probes))
    for name, probe in probes.items():
        held: Any = probe["addresses"]["ok"]
        own = cluster.node(name).links[0].address
        rows = [*json.loads(held["stdout"]), {"ifname": "eth1", "addr_info": [{"local": own}]}]
        held["stdout"] = json.dumps(rows)
        probe["interfaces"]["ok"]["eth1"] = {**probe["interfaces"]["ok"]["eth0"], "mtu": "9000"}
        peers = further_networks(cluster, cluster.node(name))["fast"]
        sources = {"fast": dict.fromkeys(peers, own)}
        probe["fabric"] = {"ok": {"network_env": ENV.format("eth1"), "nccl_conf": "", "sources": sources}}
    return dataclasses.replace(recorded, cluster=cluster, probes=probes)


def judged(fleet: Gathered, check: Callable[[Subject], Finding], **answers: Any) -> Finding:
    """The finding about n3, some answers of which are these."""
    changed = {question: {"ok": value} for question, value in answers.items()}
    probes = {**fleet.probes, "n3": {**fleet.probes["n3"], **changed}}
    return check(dataclasses.replace(fleet, probes=probes).subject("n3"))


def said(fleet: Gathered, **changes: Any) -> dict[str, Any]:
    return {**fleet.probes["n3"]["fabric"]["ok"], **changes}


def test_what_is_written_and_what_is_routed_agree(fleet: Gathered) -> None:
    """Each purpose with its interface; the network that carries compute is asked about at every peer."""
    found = judged(fleet, node_fabric.fabric)
    assert (found.outcome, found.advice) == (Outcome.PASS, "")
    assert found.measured == "management eth0, storage eth0, compute eth1"


@pytest.mark.parametrize(
    ("change", "cause", "words"),
    [
        (
            {"network_env": ENV.format("docker0")},
            "interface-choice",
            "GLOO_SOCKET_IFNAME says docker0, fast is on eth1",
        ),
        ({"nccl_conf": "NCCL_SOCKET_IFNAME==eth0\n"}, "interface-choice", "NCCL_SOCKET_IFNAME says eth0"),
        ({"nccl_conf": "NCCL_DEBUG=INFO\n"}, "interface-choice", "NCCL_SOCKET_IFNAME says nothing"),
        ({"sources": {"fast": {"n1": "10.77.0.13"}}}, "route", "to n1 in fast from 10.77.0.13, not 10.88.0.13"),
    ],
)
def test_a_choice_that_is_not_the_route_fails(fleet: Gathered, change: dict[str, Any], cause: str, words: str) -> None:
    """A program's file that names another interface, or a route that leaves from another address."""
    found = judged(fleet, node_fabric.fabric, fabric=said(fleet, **change))
    assert (found.outcome, found.cause) == (Outcome.FAIL, cause)
    assert words in found.measured


def test_nothing_written_down_is_advice(fleet: Gathered) -> None:
    """A node that the role has not come to yet works, by luck."""
    found = judged(fleet, node_fabric.fabric, fabric=said(fleet, network_env=""))
    assert found.outcome is Outcome.PASS
    assert "programs guess" in found.advice


def test_every_links_mtu_and_speed_are_judged(fleet: Gathered) -> None:
    """A second network's port is held to its own network, not to the first one's."""
    assert judged(fleet, node_network.mtu).measured == "eth0 has MTU 1500; eth1 has MTU 9000"
    ports = copy.deepcopy(fleet.probes["n3"]["interfaces"]["ok"])
    ports["eth1"] |= {"mtu": "1500", "physical": True, "speed": "1000"}
    found = judged(fleet, node_network.mtu, interfaces=ports)
    assert (found.cause, found.measured, found.required) == ("mtu", "eth1 has MTU 1500", "MTU 9000")
    found = judged(fleet, node_network.link_speed, interfaces=ports)
    assert (found.cause, found.measured, found.required) == ("link-speed", "eth1 at 1 Gb/s", "≥ 10 Gb/s")


# --- RDMA --------------------------------------------------------------------------------------------------------

PORT = {"mlx5_0/1": {"state": "4: ACTIVE", "rate_gbps": 100.0, "layer": "InfiniBand"}}
# The form of perftest's documentation (--report_gbits).
PERFTEST = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      561000           0.00               97.52              0.186003
---------------------------------------------------------------------------------------
"""


def ring(fleet: Gathered, **slow: float) -> Gathered:
    """n1 → n2 → n3 → n1 at 97 Gb/s, or what is said."""
    probes = {**fleet.probes}
    for src, dst in (("n1", "n2"), ("n2", "n3"), ("n3", "n1")):
        peer = {"peer": dst, "port": "mlx5_0/1", "gbps": slow.get(src, 97.0)}
        probes[src] = {**probes[src], "rdma": {"ok": PORT}, "rdma_peer": {"ok": peer}}
    return dataclasses.replace(fleet, probes=probes)


def test_adapters_at_their_rate_pass(fleet: Gathered) -> None:
    """Measured, required and where that comes from; a node without an adapter is not asked."""
    found = node_fabric.rdma(ring(fleet).subject("n1"))
    assert (found.outcome, found.measured) == (Outcome.PASS, "mlx5_0/1 → n2 97 Gb/s")
    assert found.required == "≥ 80 Gb/s"
    assert judged(fleet, node_fabric.rdma, rdma={}).outcome is Outcome.NOT_APPLICABLE


def test_a_slow_link_is_not_its_nodes(fleet: Gathered) -> None:
    """One slow neighbour is the link's; both are the node's own, and the good neighbours are not blamed for it."""
    link = node_fabric.rdma(ring(fleet, n1=40.0).subject("n1"))
    assert (link.outcome, link.culprit_kind, link.culprit) == (Outcome.FAIL, "link", "RDMA n1 → n2")
    node = ring(fleet, n1=40.0, n3=41.0)
    assert node_fabric.rdma(node.subject("n1")).culprit_kind == "node"
    assert node_fabric.rdma(node.subject("n3")).culprit_kind == "link"


def test_two_adapters_alone_decide_nothing(fleet: Gathered) -> None:
    """Slow both ways between two nodes is either's fault."""
    pair = ring(fleet, n1=40.0, n2=40.0)
    two = {
        name: {q: a for q, a in probe.items() if name != "n3" or q != "rdma_peer"}
        for name, probe in pair.probes.items()
    }
    found = node_fabric.rdma(dataclasses.replace(pair, probes=two).subject("n1"))
    assert found.outcome is Outcome.INCONCLUSIVE


def test_a_port_that_is_down_fails(fleet: Gathered) -> None:
    """With no active port at all; one of two is advice."""
    down = {"mlx5_0/1": {"state": "1: DOWN", "rate_gbps": 10.0, "layer": "InfiniBand"}}
    assert judged(fleet, node_fabric.rdma, rdma=down).cause == "rdma-inactive"
    found = judged(fleet, node_fabric.rdma, rdma={**PORT, "mlx5_1/1": down["mlx5_0/1"]})
    assert (found.outcome, "mlx5_1/1 1: DOWN" in found.advice) == (Outcome.PASS, True)


def test_perftests_row_is_read() -> None:
    """The average of the last row below its heading; any other text has none."""
    assert parse_bandwidth(PERFTEST) == 97.52
    assert parse_bandwidth(PERFTEST.replace("[Gb/sec]", "[MB/sec]")) is None
    assert parse_bandwidth("Couldn't connect to n2:18515") is None


@pytest.mark.parametrize("count", range(2, 12))
def test_the_ring_measures_every_node_twice_and_none_at_once(count: int) -> None:
    """Every node sends to the next one; no node takes part twice in a round."""
    names = [f"n{i}" for i in range(count)]
    plan = rounds(names)
    assert sorted(pair for pairs in plan for pair in pairs) == sorted(zip(names, [*names[1:], names[0]], strict=True))
    assert all(len({name for pair in pairs for name in pair}) == 2 * len(pairs) for pairs in plan)


def test_both_ends_are_bounded_and_one_adapter_measures_nothing(fleet: Gathered) -> None:
    """Each end has a time-out of its own; the sender waits for the listener; alone there is nobody to send to."""
    assert end_command("mlx5_0/1").startswith("timeout 25 ib_write_bw -d mlx5_0 -i 1 ")
    assert "timeout 10 ib_write_bw" in end_command("mlx5_0/1", "10.88.0.2")
    one = {"n1": {"rdma": {"ok": PORT}}, "n2": {"rdma": {"ok": {}}}}
    assert measure_rdma(fleet.cluster, one, {}, None) == {}  # type: ignore[arg-type]
