"""Runs of the site beside the same end state as an Ansible playbook, in turns, as ratios; the nodes must be deployed.

    python -m venv V && V/bin/pip install ansible-core mitogen     # never into requirements.lock
    python -m tests.benchmarks.speed inventory/lab.py --ansible V [--limit GROUP or NODE] [--aliases] [--runs 3]

`--aliases`: all names are one machine (100 names of one sshd); what differs between the names is left alone.
A no-op is measured, or with `--one-change` a run that repairs one file that was changed by hand on every node.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, load_cluster, secrets_path
from inventory.model import Cluster, Node
from roles.operations.secret_store import SecretStore
from tests.benchmarks.ansible_site import write_playbook

ROOT = Path(__file__).resolve().parents[2]
CHANGED_FILE = "/etc/security/limits.d/50-klaster.conf"


@dataclass(frozen=True)
class Cost:
    """One run of one tool; `round_trips` is counted for pyinfra only, `changed` tasks for Ansible only."""

    wall_s: float
    cpu_s: float
    peak_mib: int
    round_trips: int = 0
    changed: int = 0
    """Not 0 in what should be a no-op: then it was none, and its time is no time of one."""


def ssh(cluster: Cluster, node: Node, command: str) -> str:
    argv = ["ssh", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    argv += ["-i", str(cluster.ssh.key), "-p", str(cluster.ssh.port), f"{cluster.ssh.user}@{node.address}", command]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


def timed(argv: Sequence[str], environment: dict[str, str]) -> Cost:
    """Run to the end; processor time and memory are those of the program and all its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    wrapped = ["/usr/bin/env", "python3", "-c", _PEAK, *argv]
    done = subprocess.run(
        wrapped, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    wall_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{argv[0]} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak_mib = int(done.stdout.rstrip().rpartition("peak_mib=")[2] or 0)
    return Cost(wall_s, cpu_s, peak_mib, changed=changed_tasks(done.stdout))


def changed_tasks(output: str) -> int:
    """Of all hosts, by Ansible's recap; 0 where there is none."""
    return sum(int(number) for number in re.findall(r"\bok=\d+ +changed=(\d+)", output))


# ru_maxrss of children never goes down in one process: a process of its own a run tells each run's.
_PEAK = (
    "import resource, subprocess, sys; s = subprocess.run(sys.argv[1:]).returncode; "
    "print('peak_mib=%d' % (resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)); sys.exit(s)"
)


def klaster_run(inventory: str, limit: str | None, aliases: bool) -> Cost:
    with tempfile.NamedTemporaryFile(suffix=".json") as counted:
        argv = [sys.executable, "-m", "tests.benchmarks.counted_site", inventory, "deploys/site.py", "-y"]
        argv += ["--limit", limit] if limit else []
        environment = {"KLASTER_COUNT": counted.name, **({"KLASTER_ALIASES": "yes"} if aliases else {})}
        cost = timed(argv, environment)
        round_trips = json.loads(Path(counted.name).read_text(encoding="utf-8"))["round_trips"]
        return Cost(cost.wall_s, cost.cpu_s, cost.peak_mib, round_trips)


def ansible_run(venv: Path, playbook: Path, hosts: Path, forks: int, mitogen: bool) -> Cost:
    environment = {
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_FORKS": str(forks),
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "LC_ALL": "C.UTF-8",
    }
    if mitogen:
        found = next(venv.glob("lib/python3*/site-packages/ansible_mitogen/plugins/strategy"))
        environment |= {"ANSIBLE_STRATEGY_PLUGINS": str(found), "ANSIBLE_STRATEGY": "mitogen_linear"}
    return timed([str(venv / "bin/ansible-playbook"), "-i", str(hosts), str(playbook)], environment)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("inventory")
    parser.add_argument("--ansible", type=Path, help="a virtual environment with ansible-core and mitogen")
    parser.add_argument("--without-mitogen", action="store_true")
    parser.add_argument("--limit")
    parser.add_argument("--aliases", action="store_true")
    parser.add_argument("--one-change", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args(words)
    cluster = load_cluster(arguments.inventory)
    nodes = [n for n in cluster.nodes if arguments.limit in (None, n.name, *n.roles)]
    with tempfile.TemporaryDirectory() as name:
        tools = _tools(arguments, cluster, nodes, Path(name))
        costs: dict[str, list[Cost]] = {tool: [] for tool in tools}
        for _ in range(arguments.runs):
            for tool, run in tools.items():
                if arguments.one_change:
                    for node in nodes:
                        ssh(cluster, node, f"echo changed >> {CHANGED_FILE}")
                costs[tool].append(run())
                print(f"  {tool}: {costs[tool][-1]}", flush=True)
    _tell(costs, len(nodes))


def _tools(
    arguments: argparse.Namespace, cluster: Cluster, nodes: list[Node], folder: Path
) -> dict[str, Callable[[], Cost]]:
    tools = {"klaster": lambda: klaster_run(arguments.inventory, arguments.limit, arguments.aliases)}
    if arguments.ansible:
        lock = HardwareLock.load(hardware_lock_path(arguments.inventory))
        store = SecretStore(secrets_path(arguments.inventory))
        asked = nodes[:1] if arguments.aliases else nodes
        texts = {node.name: ssh(cluster, node, "cat /etc/hosts") for node in asked}
        hosts_now = {node.name: texts.get(node.name, texts[asked[0].name]) for node in nodes}
        leave = ("/etc/hostname",) if arguments.aliases else ()
        playbook, hosts = write_playbook(folder, cluster, lock, store, hosts_now, leave)
        tools["ansible, pipelining"] = lambda: ansible_run(arguments.ansible, playbook, hosts, len(nodes), False)
        if not arguments.without_mitogen:
            tools["ansible, mitogen"] = lambda: ansible_run(arguments.ansible, playbook, hosts, len(nodes), True)
    return tools


def _tell(costs: dict[str, list[Cost]], count: int) -> None:
    print(f"{count} nodes, medians of {len(costs['klaster'])} runs in turns")
    base = median(cost.wall_s for cost in costs["klaster"])
    for tool, found in costs.items():
        wall_s, cpu_s = median(c.wall_s for c in found), median(c.cpu_s for c in found)
        print(
            f"  {tool:<20} {wall_s:7.2f} s  ×{wall_s / base:5.1f}  processor {cpu_s:6.1f} s  "
            f"{max(c.peak_mib for c in found)} MiB  {found[0].round_trips or '–'} round trips"
        )


if __name__ == "__main__":
    main()
