"""Small labs beside the one of inventory/lab.py, for tests: another name, other addresses, another state folder."""

from __future__ import annotations

import fcntl
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lab.handle import Lab

INVENTORY = """\
from inventory.model import Cluster, External, Network, Node, Ssh

CLUSTER = Cluster(
    name="trial",
    substrate="rehearsal",
    state_dir={state!r},
    networks=(Network(name="lan", cidr="{start}0/24", speed_gbps={speed_gbps}),),
    nodes=(
        Node(name="head", address="{start}10", roles=("controller", "compute")),
{others}
    ),
    ssh=Ssh(key={state!r} + "/id_ed25519", known_hosts={state!r} + "/known_hosts"),
    storage=(External(path="/shared"),),
)
globals().update(CLUSTER.groups(__file__))
"""


@dataclass(frozen=True)
class Slot:
    """A lab name and a block of addresses that this test run alone uses; `start` is the first three numbers."""

    name: str
    start: str
    outside: str


SLOTS = tuple(
    Slot(f"try{letter}", f"10.77.{160 + 2 * i}.", f"10.77.{161 + 2 * i}.9") for i, letter in enumerate("abcdef")
)


@cache
def slot() -> Slot:
    """A slot that no other test run on this machine has; it's ours until this process ends."""
    for candidate in SLOTS:
        path = Path(tempfile.gettempdir()) / f"klaster-trial-{candidate.name}.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        return candidate
    raise AssertionError(f"all of {', '.join(s.name for s in SLOTS)} are in use by other test runs on this machine")


def write_trial(folder: Path, count: int, *, speed_gbps: float = 1) -> Lab:
    """An inventory of a head and `count` - 1 further nodes, with its state below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    start = slot().start
    others = "\n".join(f'        Node(name="n{i}", address="{start}{10 + i}"),' for i in range(1, count))
    path = folder / f"trial_{count}_{speed_gbps}.py"
    state = str(folder / "state")
    path.write_text(INVENTORY.format(state=state, start=start, others=others, speed_gbps=speed_gbps))
    return Lab(str(path), slot().name)
