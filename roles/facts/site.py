"""The site as roles see it: the cluster of the inventory, this host's node, and the hardware lock when it is needed."""

from __future__ import annotations

import socket

from pyinfra.context import host

from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, load_cluster
from inventory.model import Cluster, Node


def fast_connection() -> None:
    """Call at the top of a deploy: paramiko leaves TCP_NODELAY off, 48 ms a command instead of 4 (measured)."""
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client else None
    if transport is not None:
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def cluster() -> Cluster:
    return load_cluster(host.data.inventory_file)


def node() -> Node:
    return cluster().node(host.name)


def lock() -> HardwareLock:
    """The hardware lock as it is now: on a first run it is empty until discovery has executed."""
    return HardwareLock.load(hardware_lock_path(host.data.inventory_file))
