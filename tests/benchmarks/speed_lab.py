"""The whole measurement of speed in one command: a lab of its own, runs beside Ansible, 100 names of one sshd.

    python -m venv V && V/bin/pip install ansible-core mitogen     # never into requirements.lock
    python -m tests.benchmarks.speed_lab --ansible V [--nodes 4] [--aliases 100] [--runs 3]

First run (klaster alone), no-op at one node and at all, one change at all, then no-op at so many names of one node.
Beside the names stands no playbook: with a hundred it would take longer than all the rest.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, secrets_path
from inventory.model import Cluster
from tests.benchmarks import speed
from tests.lab.handle import Lab
from tests.lab.trial import write_trial

FIRST_ALIAS = 100
"""Last number of the first name's address; below it are the nodes."""
ALIASES = """\
from inventory.model import Cluster, External, Network, Node, Ssh

CLUSTER = Cluster(
    name="aliases",
    substrate="rehearsal",
    state_dir={state!r},
    networks=(Network(name="lan", cidr={cidr!r}, speed_gbps=1),),
    nodes=(
        Node(name="head", address={head!r}, roles=("controller",)),
        *(Node(name=f"a{{i:03d}}", address=f"{start}{{{first} + i}}") for i in range({count})),
    ),
    ssh=Ssh(key={key!r}, known_hosts={known_hosts!r}),
    storage=(External(path="/shared"),),
)
globals().update(CLUSTER.groups(__file__))
"""


def write_aliases(folder: Path, inventory: str, cluster: Cluster, count: int) -> Path:
    """An inventory in which `count` names are the cluster's last node, with its hardware, host key and the secrets."""
    state = folder / "state"
    state.mkdir(parents=True)
    node, (network, *_) = cluster.nodes[-1], cluster.networks
    start = node.address.rpartition(".")[0] + "."
    known = Path(cluster.ssh.known_hosts or "").read_text(encoding="utf-8").splitlines()
    keys = [line.split(maxsplit=1)[1] for line in known if node.address in line.split()[0].split(",")]
    lines = [f"{start}{FIRST_ALIAS + i} {key}\n" for i in range(count) for key in keys]
    (folder / "known_hosts").write_text("".join(lines), encoding="utf-8")
    path = folder / "aliases.py"
    text = ALIASES.format(
        state=str(state), cidr=network.cidr, head=cluster.controller.address, start=start,
        first=FIRST_ALIAS, count=count, key=cluster.ssh.key, known_hosts=str(folder / "known_hosts"),
    )  # fmt: skip
    path.write_text(text, encoding="utf-8")
    found = HardwareLock.load(hardware_lock_path(inventory)).nodes[node.name]
    names = [f"a{i:03d}" for i in range(count)]
    HardwareLock(nodes=dict.fromkeys(names, found)).save(hardware_lock_path(str(path)))
    shutil.copy(secrets_path(inventory), secrets_path(str(path)))
    return path


def measure_aliases(lab: Lab, folder: Path, count: int, runs: int) -> None:
    node = lab.cluster.nodes[-1]
    path = write_aliases(folder, lab.inventory, lab.cluster, count)
    start = node.address.rpartition(".")[0]
    device = f"$(ip -o route get {lab.cluster.controller.address} | sed 's/.* dev \\([^ ]*\\).*/\\1/')"
    last = FIRST_ALIAS + count - 1
    lab.ssh(node.name, f"for i in $(seq {FIRST_ALIAS} {last}); do ip address add {start}.$i/24 dev {device}; done")
    speed.klaster_run(str(path), "a000", aliases=True)  # hosts and firewall name the others: written once
    speed.main([str(path), "--limit", "compute", "--aliases", "--runs", str(runs)])


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--ansible", type=Path, help="a virtual environment with ansible-core and mitogen")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--aliases", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    beside = ["--runs", str(asked.runs), *(["--ansible", str(asked.ansible)] if asked.ansible else [])]
    started = time.monotonic()

    def step(words: str) -> None:
        print(f"[{time.monotonic() - started:4.0f} s] {words}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        lab = write_trial(Path(name) / "trial", asked.nodes)
        lab.lab("up", lab.inventory, timeout_s=900)
        try:
            step(f"first run, {asked.nodes} nodes")
            print(f"  klaster: {speed.klaster_run(lab.inventory, None, aliases=False)}", flush=True)
            step(f"no-op, {asked.nodes} nodes")
            speed.main([lab.inventory, *beside])
            step("no-op, one node")
            speed.main([lab.inventory, "--limit", "head", *beside])
            step(f"one change, {asked.nodes} nodes")
            speed.main([lab.inventory, "--one-change", *beside])
            if asked.aliases:  # last: the node is another cluster's after this
                step(f"no-op, {asked.aliases} names of one sshd")
                measure_aliases(lab, Path(name) / "aliases", asked.aliases, asked.runs)
        finally:
            lab.lab("down")
    step("done")


if __name__ == "__main__":
    main()
