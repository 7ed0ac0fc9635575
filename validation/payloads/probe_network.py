"""The probe's questions about networks as programs use them, and RDMA: sent before probe.py, as one program with it."""

import os
import re
from collections.abc import Callable

TYPE_CHECKING = False  # the real one is not in the smallest Python
if TYPE_CHECKING:
    from probe import sources, text

RDMA = "/sys/class/infiniband"
WRITTEN = {"network_env": "/etc/klaster/network.env", "nccl_conf": "/etc/nccl.conf"}


def rdma() -> dict:
    """Each port of each adapter: its state as the kernel words it, its rate, InfiniBand or Ethernet."""
    found = {}
    for name in sorted(os.listdir(RDMA)) if os.path.isdir(RDMA) else ():
        for port in sorted(os.listdir(f"{RDMA}/{name}/ports")):
            base = f"{RDMA}/{name}/ports/{port}/"
            rate = re.match(r"([\d.]+) Gb/sec", text(base + "rate"))
            found[f"{name}/{port}"] = {
                "state": text(base + "state").strip(),
                "rate_gbps": float(rate.group(1)) if rate else 0.0,
                "layer": text(base + "link_layer").strip(),
            }
    return found


def fabric(networks: dict) -> dict:
    """What is written down about interfaces, and the address that this node sends from in each further network."""
    files = {name: text(path) if os.path.exists(path) else "" for name, path in WRITTEN.items()}
    return {**files, "sources": {name: sources(peers) for name, peers in networks.items()}}


def network_questions(networks: dict) -> dict[str, Callable[[], object]]:
    return {"fabric": lambda: fabric(networks), "rdma": rdma}
