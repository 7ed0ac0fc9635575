"""Verdicts on a node's networks as programs use them: what is written down against where traffic goes; RDMA."""

from __future__ import annotations

import shlex
from typing import Any

from inventory.networks import Purpose, link_for, network_for
from validation.checks.node import (
    Finding,
    Subject,
    addresses,
    answer,
    failed,
    inconclusive,
    not_applicable,
    passed,
    problem,
)

INVENTORY = "inventory"
AGAIN = "run the deploy again: role fabric writes /etc/klaster/network.env and /etc/nccl.conf"
WRITTEN: dict[str, Purpose] = {
    "SLURM_IFNAME": "management",
    "NFS_IFNAME": "storage",
    "GLOO_SOCKET_IFNAME": "compute",
    "NCCL_SOCKET_IFNAME": "compute",
}
"""Variable of /etc/klaster/network.env → what it is for; nccl.conf has the last one too."""
RDMA_SHARE = 0.8
"""perftest reaches 0.9 and more of a port on an idle fabric; PCIe of the wrong width gives half."""


def written(text: str) -> dict[str, str]:
    """NAME=value lines; NCCL's leading "=" means exactly this interface and is left out."""
    lines = [line.partition("=") for line in text.splitlines() if line and not line.startswith("#")]
    return {name.strip(): value.strip().lstrip("=") for name, _, value in lines}


def fabric(subject: Subject) -> Finding:
    """Every program's interface is the one of its network, and traffic to the peers there leaves from it."""
    required = "each program's interface is that of its network, and the routes take it"
    found: dict[str, Any] = answer(subject.probe, "fabric")
    held = addresses(subject.probe)
    chosen = written(found["network_env"])
    for name, purpose in WRITTEN.items():
        interface = held.get(link_for(subject.cluster, subject.node, purpose).address or "", "")
        said = [chosen.get(name, interface)]
        if name == "NCCL_SOCKET_IFNAME" and found["nccl_conf"]:
            said.append(written(found["nccl_conf"]).get(name, ""))
        for one in said:
            if one != interface:
                where = f"{network_for(subject.cluster, purpose).name} is on {interface or 'no interface'}"
                return failed(
                    f"{name} says {one or 'nothing'}, {where}", required, INVENTORY, "interface-choice", AGAIN
                )
    if wrong := _wrong_routes(subject, found["sources"]):
        remedy = "correct the routes (ip route get ADDRESS): this traffic takes another interface than is declared"
        return failed("; ".join(wrong[:3]), required, INVENTORY, "route", remedy, evidence="; ".join(wrong))
    advice = "" if chosen else f"nothing is written down on the node, so programs guess: {AGAIN}"
    names = ", ".join(f"{purpose} {held.get(link_for(subject.cluster, subject.node, purpose).address or '', '?')}"
                      for purpose in dict.fromkeys(WRITTEN.values()))  # fmt: skip
    return passed(names, required, INVENTORY, advice=advice)


def _wrong_routes(subject: Subject, sources: dict[str, dict[str, str]]) -> list[str]:
    """Peers of each further network that this node reaches from another address than its own there."""
    wrong = []
    for network in subject.cluster.networks[1:]:
        own = subject.cluster.link(subject.node, network).address
        for peer, source in sources.get(network.name, {}).items():
            if own and source != own:
                wrong.append(f"to {peer} in {network.name} from {source}, not {own}")
    return wrong


# --- RDMA --------------------------------------------------------------------------------------------------------


def rdma(subject: Subject) -> Finding:
    """Ports are active, and the copy to the next node with an adapter has the port's rate."""
    required = "ports active; ≥ 0.8 of the port's rate to the next node with an adapter"
    if problem(subject.probe, "rdma") or not (ports := answer(subject.probe, "rdma")):
        return not_applicable("no InfiniBand or RoCE adapter")
    down = [f"{name} {one['state']}" for name, one in ports.items() if "ACTIVE" not in one["state"]]
    if len(down) == len(ports):
        remedy = "ibstat; cable and switch port; on InfiniBand a subnet manager (opensm) must run somewhere"
        return failed("; ".join(down), required, "the adapter", "rdma-inactive", remedy)
    advice = f"{'; '.join(down)}: a port that nobody uses?" if down else ""
    if why := problem(subject.probe, "rdma_peer"):
        return passed("; ".join(ports), required, "the adapter", advice=advice or f"bandwidth not measured: {why}")
    mine: dict[str, Any] = answer(subject.probe, "rdma_peer")
    rate = float(ports[mine["port"]]["rate_gbps"])
    measured, least = f"{mine['port']} → {mine['peer']} {mine['gbps']:.4g} Gb/s", f"≥ {RDMA_SHARE * rate:.4g} Gb/s"
    origin = f"{RDMA_SHARE:g} of the port's rate"
    low = {(src, dst): bad for src, (dst, bad) in _rdma_ring(subject).items()}
    others = [bad for (src, dst), bad in low.items() if subject.name in (src, dst) and src != subject.name]
    if not low[subject.name, mine["peer"]]:
        return passed(measured, least, origin, advice=advice)
    remedy = (
        f"ib_write_bw -d {shlex.quote(mine['port'].partition('/')[0])} by hand, another partner; then PCIe and cable"
    )
    if len(low) < 3:
        return inconclusive(
            measured, f"two nodes alone don't tell whose fault it is: {remedy}", least, origin, "rdma-slow"
        )
    if all(others):
        return failed(measured, least, origin, "rdma-slow", remedy)
    link = f"RDMA {subject.name} → {mine['peer']}"
    return failed(measured, least, origin, "rdma-slow", remedy, culprit_kind="link", culprit=link)


def _rdma_ring(subject: Subject) -> dict[str, tuple[str, bool]]:
    """Node → the one it sent to, and whether that was slow: each node is measured with the one before and after it."""
    ring = {}
    for name, probe in subject.fleet.probes.items():
        if not problem(probe, "rdma_peer"):
            sent = answer(probe, "rdma_peer")
            rate = float(answer(probe, "rdma")[sent["port"]]["rate_gbps"])
            ring[name] = (sent["peer"], sent["gbps"] < RDMA_SHARE * rate)
    return ring
