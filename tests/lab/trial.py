"""A small lab beside the one of inventory/lab.py, for the lab's own tests: other name, addresses and state."""

from __future__ import annotations

from pathlib import Path

from tests.lab.handle import Lab

NAME = "try"

INVENTORY = """\
from inventory.model import Cluster, External, Network, Node, Ssh

CLUSTER = Cluster(
    name="trial",
    substrate="rehearsal",
    state_dir={state!r},
    networks=(Network(name="lan", cidr="10.77.64.0/24", speed_gbps={speed_gbps}),),
    nodes=(
        Node(name="head", address="10.77.64.10", roles=("controller", "compute")),
{others}
    ),
    ssh=Ssh(key={state!r} + "/id_ed25519", known_hosts={state!r} + "/known_hosts"),
    storage=(External(path="/shared"),),
)
globals().update(CLUSTER.groups(__file__))
"""


def write_trial(folder: Path, count: int, *, speed_gbps: float = 1) -> Lab:
    """An inventory of a head and `count` - 1 further nodes, with its state below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    others = "\n".join(f'        Node(name="n{i}", address="10.77.64.{10 + i}"),' for i in range(1, count))
    path = folder / f"trial_{count}_{speed_gbps}.py"
    path.write_text(INVENTORY.format(state=str(folder / "state"), others=others, speed_gbps=speed_gbps))
    return Lab(str(path), NAME)
