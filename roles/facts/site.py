"""The site as roles see it: the cluster of the inventory, this host's node, and the hardware lock when it is needed."""

from __future__ import annotations

import socket
from functools import cache, lru_cache
from pathlib import Path

from pyinfra.context import host

from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, load_cluster
from inventory.model import Cluster, Node
from roles.facts.fast import make_fast


def fast_connection() -> None:
    """Call at the top of a deploy: paramiko leaves TCP_NODELAY off, 48 ms a command instead of 4 (measured)."""
    make_fast()
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client else None
    if transport is not None:
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


LEAVING = "remove"
"""Host data: the node that leaves (`--data remove=NAME`); every role then sees the cluster without it."""


def cluster() -> Cluster:
    whole = load_cluster(host.data.inventory_file)
    leaving = host.data.get(LEAVING)
    return without(whole, leaving) if leaving else whole


@cache
def without(cluster: Cluster, name: str) -> Cluster:
    """The cluster as it is when a node has left; InventoryError where something else of it needs that node."""
    document = {field: getattr(cluster, field) for field in Cluster.model_fields}
    document["nodes"] = tuple(node for node in cluster.nodes if node.name != name)
    kept = []
    for partition in cluster.slurm.partitions:
        nodes = tuple(node for node in partition.nodes if node != name)
        if nodes or not partition.nodes:
            kept.append(partition.model_copy(update={"nodes": nodes}))
    document["slurm"] = cluster.slurm.model_copy(update={"partitions": tuple(kept)})
    return Cluster(**document)


def node() -> Node:
    return cluster().node(host.name)


def lock() -> HardwareLock:
    """The hardware lock as it is now: on a first run it is empty until discovery has executed."""
    path = hardware_lock_path(host.data.inventory_file)
    try:
        stat = path.stat()
    except OSError:
        return HardwareLock.load(path)
    return _lock(path, stat.st_ino, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _lock(path: Path, *_written: int) -> HardwareLock:
    """Read again only when the file is another one: each of many hosts asks several times."""
    return HardwareLock.load(path)
