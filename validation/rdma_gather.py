"""Bandwidth between nodes with InfiniBand or RoCE, by perftest's ib_write_bw: each node sends to the next one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from inventory.model import Cluster
from inventory.networks import link_for
from validation.checks.node import Probe
from validation.remote import Remote, RemoteError

SECONDS, DEADLINE_S, PORT = 3, 25, 18_515
"""How long is sent; how long an end may live; perftest's own port."""


def measure_rdma(
    cluster: Cluster, probes: Mapping[str, Probe], remotes: Mapping[str, Remote], pool: ThreadPoolExecutor
) -> dict[str, dict[str, Any]]:
    """Sender → {"ok": {"peer", "port", "gbps"}} or {"error": …}; nothing for a fleet with fewer than two such nodes."""
    ports = {name: port for name in probes if (port := active_port(probes[name]))}
    found: dict[str, dict[str, Any]] = {}
    for senders in rounds(list(ports)):
        tasks = {
            src: pool.submit(one_pair, remotes[src], remotes[dst], _address(cluster, dst), ports[src], ports[dst])
            for src, dst in senders
        }
        for src, dst in senders:
            said = tasks[src].result()
            measured = {"peer": dst, "port": ports[src], "gbps": said}
            found[src] = {"ok": measured} if isinstance(said, float) else {"error": said}
    return found


def _address(cluster: Cluster, name: str) -> str:
    return str(link_for(cluster, cluster.node(name), "compute").address)


def active_port(probe: Probe) -> str:
    """`adapter/port` of the fastest active port, or an empty text."""
    ports: dict[str, Any] = probe.get("rdma", {}).get("ok") or {}
    active = [name for name, one in ports.items() if "ACTIVE" in one["state"]]
    return max(active, key=lambda name: float(ports[name]["rate_gbps"]), default="")


def rounds(names: Sequence[str]) -> list[list[tuple[str, str]]]:
    """A ring, each node sending to the next, in rounds in which no node takes part twice."""
    if len(names) < 2:
        return []
    ring = [(name, names[(at + 1) % len(names)]) for at, name in enumerate(names)]
    last = [ring.pop()] if len(ring) % 2 else []
    return [pairs for pairs in (ring[0::2], ring[1::2], last) if pairs]


def end_command(port: str, peer: str = "") -> str:
    """One end of ib_write_bw: the listening one, or, with a peer, the one that sends; both end by themselves."""
    adapter, _, number = port.partition("/")
    words = ["ib_write_bw", "-d", adapter, "-i", number, "-p", str(PORT), "-F", "-D", str(SECONDS), "--report_gbits"]
    if not peer:
        return f"timeout {DEADLINE_S} {shlex.join(words)}"
    # The other end may not listen yet.
    once = f"timeout {SECONDS + 7} {shlex.join([*words, peer])}"
    return f"for n in 1 2 3 4; do {once} && exit 0; sleep 1; done; exit 1"


def one_pair(source: Remote, target: Remote, address: str, port: str, other: str) -> float | str:
    """Gb/s from source to target, or why it could not be measured."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        listening = pool.submit(_run, target, end_command(other))
        said = _run(source, end_command(port, address))
        listening.result()
    rate = parse_bandwidth(said)
    if rate is not None:
        return rate
    lines = said.strip().splitlines()
    return lines[-1][:200] if lines else "ib_write_bw said nothing"


def _run(remote: Remote, command: str) -> str:
    try:
        done = remote.run(remote.sudo(command), timeout_s=2 * DEADLINE_S)
    except RemoteError as error:
        return str(error)
    return done.stdout + done.stderr


def parse_bandwidth(said: str) -> float | None:
    """Average Gb/s of the last row below perftest's heading; None where there is no such row."""
    rate, below = None, False
    for line in said.splitlines():
        if line.strip().startswith("#bytes"):
            below = "BW average[Gb/sec]" in line
        elif below and (row := re.match(r"\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)", line)):
            rate = float(row[1])
    return rate
