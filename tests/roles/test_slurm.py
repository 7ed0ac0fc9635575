"""The Slurm role's plan: one configuration from the lock, and quarantine for what is not certified."""

from __future__ import annotations

import json

from inventory.hardware import SIMULATED
from inventory.model import Network
from inventory.node_part import node_part_sha256
from roles import fabric, slurm
from roles.facts.slurm import NodeInSlurm, SlurmState, parse_slurm
from tests.roles.sample import cluster, found, gpu, lock

SHOWN = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=4 CPUAlloc=0 State=IDLE+DRAIN ThreadsPerCore=1 "
    "Reason=klaster:quarantine:uncertified run=none [root@2026-11-30T13:00:00]"
)


def _conf(**nodes: object) -> dict[str, str]:
    tree = slurm.controller_plan(cluster(), lock(**nodes))  # type: ignore[arg-type]
    return {file.path: file.content for file in tree.files}


def test_nodes_come_from_the_lock() -> None:
    """A locked node has its cores, 95 % of its memory and its GPUs; a node never reached is left out."""
    conf = _conf(n1=found(), n2=found(gpus=(gpu(0), gpu(1))))["/etc/slurm/slurm.conf"]
    line = next(line for line in conf.splitlines() if line.startswith("NodeName=n1"))
    assert "Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=30400" in line
    assert "NodeName=n2" in conf
    assert "Gres=gpu:2" in conf
    alone = _conf(n1=found())["/etc/slurm/slurm.conf"]
    assert "NodeName=n2" not in alone
    assert "Nodes=n1 Default=YES" in alone


def test_gres_names_each_card() -> None:
    """gres.conf is written where there are GPUs and removed where there are none."""
    with_gpus = _conf(n1=found(), n2=found(gpus=(gpu(0), gpu(1))))
    assert "NodeName=n2 AutoDetect=nvidia Name=gpu File=/dev/nvidia[0-1]" in with_gpus["/etc/slurm/gres.conf"]
    assert "/etc/slurm/gres.conf" not in _conf(n1=found())


def test_simulated_cards_are_files_of_the_lab() -> None:
    """Slurm leaves cards without a file out, and calls the node invalid that has fewer than it should."""
    recorded = gpu(0).model_copy(update={"uuid": f"{SIMULATED}1"})
    conf = _conf(n2=found(gpus=(recorded, recorded)))["/etc/slurm/gres.conf"]
    assert "NodeName=n2 Name=gpu File=/etc/klaster-lab/gpu/dev/nvidia[0-1]\n" in conf


def test_cores_beside_a_card_are_found_where_slurm_can() -> None:
    """Slurm before 24.11 (Ubuntu 24.04) has no way to ask the kernel for them."""
    conf = _conf(n2=found(distribution="ubuntu", release="24.04", gpus=(gpu(0),)))["/etc/slurm/gres.conf"]
    assert "NodeName=n2 Name=gpu File=/dev/nvidia0" in conf


def test_tasks_are_told_their_interface() -> None:
    """slurm.conf names the program that role fabric lays on every node."""
    assert f"TaskProlog={fabric.TASK_PROLOG}\n" in _conf(n1=found())["/etc/slurm/slurm.conf"]


def test_cgroups_only_where_every_node_has_them() -> None:
    """One node without the memory controller means tracking without confinement for the cluster."""
    both = _conf(n1=found(), n2=found())
    assert "proctrack/cgroup" in both["/etc/slurm/slurm.conf"]
    mixed = _conf(n1=found(), n2=found(cgroup_controllers=()))
    assert "proctrack/linuxproc" in mixed["/etc/slurm/slurm.conf"]
    assert "CgroupPlugin=disabled" in mixed["/etc/slurm/cgroup.conf"]


def test_parse_shown_nodes() -> None:
    """State, flags and reason are read; the user and time behind a reason are not part of it."""
    state = parse_slurm([SHOWN, "NodeName=n2 State=IDLE* ThreadsPerCore=1"])
    assert state.nodes["n1"] == NodeInSlurm(("IDLE", "DRAIN"), slurm.QUARANTINE)
    assert not state.nodes["n2"].registered


def test_uncertified_node_is_drained_once() -> None:
    """An idle node without a certificate is drained; one that is drained already, by anybody, is left alone."""
    some = lock(n1=found(), n2=found())
    idle = SlurmState(nodes={"n1": NodeInSlurm(("IDLE",), ""), "n2": NodeInSlurm(("IDLE", "DRAIN"), "fan is loud")})
    commands = slurm.quarantine_commands(cluster(), some, idle)
    assert len(commands) == 1
    assert "NodeName=n1" in commands[0]
    assert slurm.QUARANTINE in commands[0]


def test_certificate_counts_only_for_the_hardware_it_names() -> None:
    """Changed hardware means quarantine again; a damaged certificate counts nothing."""
    node = NodeInSlurm(("IDLE",), "")
    old = json.dumps({"node": "n1", "verdict": "PASS", "hardware_sha256": found().sha256})
    certified = parse_slurm([old]).certified
    assert slurm.quarantine_commands(cluster(), lock(n1=found()), SlurmState({"n1": node}, certified)) == []
    changed = lock(n1=found(memory_mib=16000))
    assert slurm.quarantine_commands(cluster(), changed, SlurmState({"n1": node}, certified))
    assert parse_slurm(['{"node": "n1", "verd']).certified == {}


def test_certificate_counts_only_for_what_was_declared() -> None:
    """A node whose part of the inventory changed is drained; one certified before there was this hash is not."""
    before, node = cluster(), SlurmState({"n1": NodeInSlurm(("IDLE",), "")})
    declared = node_part_sha256(before, before.node("n1"))
    document = {"node": "n1", "verdict": "PASS", "hardware_sha256": found().sha256, "inventory_sha256": declared}
    node.certified = parse_slurm([json.dumps(document)]).certified
    assert slurm.quarantine_commands(before, lock(n1=found()), node) == []
    faster = cluster(networks=(Network(name="lan", cidr="10.0.0.0/24", speed_gbps=10),))
    assert slurm.quarantine_commands(faster, lock(n1=found()), node)
    del document["inventory_sha256"]
    node.certified = parse_slurm([json.dumps(document)]).certified
    assert slurm.quarantine_commands(faster, lock(n1=found()), node) == []
