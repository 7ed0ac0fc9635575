"""A generated fleet of leaves and spines: what loading, checking, planning and rendering it costs, and the site on it.

    python -m tests.benchmarks.scale --nodes 1000

Nothing is contacted: the hosts of the last step are pyinfra's fake ones.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inventory.hardware import FoundNode, HardwareLock
from inventory.loading import hardware_lock_path, load_cluster
from inventory.model import Cluster
from roles import base, firewall, monitoring, munge, slurm
from roles.operations.tree import Tree
from tests.roles.sample import found

PER_LEAF = 40
INVENTORY = """\
from inventory.model import Cluster, Monitoring, Network, Node

# {count} nodes, {per_leaf} a leaf; each leaf has a /24 of its own below 10.0.0.0/8.
CLUSTER = Cluster(
    name="fleet",
    substrate="simulation",
    state_dir={state!r},
    networks=(Network(name="fabric", cidr="10.0.0.0/8", speed_gbps=100),),
    nodes=(
        Node(name="head", address="10.255.0.1", roles=("controller",)),
        *(
            Node(name=f"n{{i + 1:04d}}", address=f"10.{{i // {per_leaf} // 200}}.{{i // {per_leaf} % 200}}.{{i % {per_leaf} + 10}}")
            for i in range({count} - 1)
        ),
    ),
    monitoring=Monitoring(),
)
globals().update(CLUSTER.groups(__file__))
"""  # noqa: E501 - a line of the generated file


@dataclass
class Costs:
    """Step → (seconds, peak memory of this process so far in MiB)."""

    steps: dict[str, tuple[float, int]] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.steps[name] = (time.perf_counter() - started, peak_mib)
        print(f"  {name:<44} {self.steps[name][0]:8.2f} s {peak_mib:6d} MiB", flush=True)


def write_fleet(folder: Path, count: int) -> Path:
    """The inventory of `count` nodes with a hardware lock beside it."""
    path = folder / "fleet_inventory.py"
    path.write_text(INVENTORY.format(count=count, per_leaf=PER_LEAF, state=str(folder)), encoding="utf-8")
    return path


def lock_of(cluster: Cluster) -> HardwareLock:
    nodes: dict[str, FoundNode] = {node.name: found(memory_mib=512_000) for node in cluster.nodes}
    return HardwareLock(nodes=nodes)


def render_all(cluster: Cluster, lock: HardwareLock) -> int:
    """Bytes of every configuration file of the roles whose files grow with the cluster, for every node."""
    size = 0
    access = monitoring.Access("key", "certificate", "hash")
    for node in cluster.nodes:
        plans: list[Callable[[], Tree]] = [
            lambda n=node: base.plan(cluster, n, lock, "127.0.0.1 localhost\n", (), "key"),  # type: ignore[misc]
            lambda n=node: firewall.plan(cluster, n),  # type: ignore[misc]
            lambda n=node: monitoring.node_plan(cluster, n, access),  # type: ignore[misc]
            lambda: munge.plan("key"),
        ]
        if node is cluster.controller:
            plans.append(lambda: slurm.controller_plan(cluster, lock))
        else:
            plans.append(lambda n=node: slurm.compute_plan(cluster, n))  # type: ignore[misc]
        size += sum(len(file.content) for plan in plans for file in plan().files)
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--without-site", action="store_true", help="leave the run of the whole site out")
    arguments = parser.parse_args()
    costs = Costs()
    with tempfile.TemporaryDirectory() as name:
        path = write_fleet(Path(name), arguments.nodes)
        print(f"{arguments.nodes} nodes, {PER_LEAF} a leaf")
        with costs.step("load and check the inventory"):
            cluster = load_cluster(str(path))
        lock = lock_of(cluster)
        with costs.step("write the hardware lock"):
            lock.save(hardware_lock_path(str(path)))
        with costs.step("read the hardware lock"):
            HardwareLock.load(hardware_lock_path(str(path)))
        with costs.step("render every node's files"):
            size = render_all(cluster, lock)
        print(f"  {size / 1e6:.0f} MB of text")
        if not arguments.without_site:
            with costs.step("site.py on fake hosts (a process of its own)"):
                argv = [sys.executable, "-m", "tests.benchmarks.fake_site", str(path), "deploys/site.py", "-y"]
                done = subprocess.run(argv, check=False, capture_output=True, text=True)
            print("\n".join(line for line in done.stderr.splitlines() if line.startswith("fake_site:")))
    print(json.dumps({step: round(seconds, 2) for step, (seconds, _) in costs.steps.items()}))


if __name__ == "__main__":
    main()
