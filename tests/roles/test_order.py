"""pyinfra's order across hosts is the files' order: no role starts on a node before the role above ended on another."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from inventory.loading import hardware_lock_path, load_cluster
from tests.benchmarks.scale import lock_of
from tests.lab.handle import ROOT

BARE = ""
EVERYTHING = """
    storage=(Nfs(path="/home"), Nfs(path="/data", teams=True)),
    teams=(Team(name="red"),),
    users=(User(name="kim", uid=10_001, teams=("red",), administrator=True),),
    gpu_stack=GpuStack(versions="debian-550"),
    containers=Containers(),
    registry=Registry(),
    monitoring=Monitoring(nightly=Nightly()),
"""
CARDS = ', gpus=(Gpu(model="NVIDIA GeForce RTX 3090", count=2),)'
INVENTORY = """
from inventory.model import *

CLUSTER = Cluster(
    name="order",
    substrate="simulation",
    state_dir={state!r},
    networks=(Network(name="lan", cidr="10.99.0.0/24", speed_gbps=1),),
    nodes=(
        Node(name="files", address="10.99.0.9", roles=("storage",)),
        Node(name="head", address="10.99.0.10", roles=("controller",)),
        Node(name="n1", address="10.99.0.11"{cards}),
        Node(name="n2", address="10.99.0.12", scratch_disk="/dev/vdb"),
    ),
    {more}
)
globals().update(CLUSTER.groups(__file__))
"""
MOST_A_NODE = 20
"""Operations of a run of the bare site on a compute node: each costs the controller processor time, also unchanged."""

Operation = tuple[list[int], str, list[str]]


def order(folder: Path, more: str) -> list[Operation]:
    path = folder / "order.py"
    path.write_text(INVENTORY.format(state=str(folder), more=more, cards=CARDS if more else ""), encoding="utf-8")
    cluster = load_cluster(str(path))
    lock_of(cluster).save(hardware_lock_path(str(path)))
    argv = [sys.executable, "-m", "tests.roles.site_order", str(path), "deploys/site.py"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: list[Operation] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("more", [BARE, EVERYTHING], ids=["bare", "everything"])
def test_operations_run_in_the_files_order(tmp_path: Path, more: str) -> None:
    """What pyinfra makes of the hosts' own orders is the order that a person reads in the files."""
    found = order(tmp_path, more)
    assert found
    early = [(name, after[1]) for (place, name, _), after in pairwise(found) if place > after[0]]
    assert not early, f"runs too late: {early}"


def test_a_node_has_few_operations(tmp_path: Path) -> None:
    """A bare site is at most 20 operations on a compute node."""
    found = order(tmp_path, BARE)
    names = [name for _, name, hosts in found if "n1" in hosts]
    assert len(names) <= MOST_A_NODE, names
