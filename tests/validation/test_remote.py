"""Connections to nodes, without a node."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import socket, threading
from inventory.model import Cluster, Node, Ssh
from validation.remote import RemoteError, connect

server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
cluster = Cluster.model_construct(ssh=Ssh(user="root", port=server.getsockname()[1], strict_host_keys="no"))
node = Node.model_construct(name="n1", address="127.0.0.1", ssh_user=None)
try:
    connect(cluster, node, timeout_s=5)
except RemoteError as error:
    print(error)
"""


def test_a_port_without_ssh_is_one_sentence() -> None:
    """paramiko would write a traceback of its own beside the error, for every such node."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30)
    assert "n1" in done.stdout or "127.0.0.1" in done.stdout
    assert done.stderr == ""
