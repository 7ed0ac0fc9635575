"""Let a job on every node in service take more memory than it asked for: the kernel has to end it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from inventory.hardware import HardwareLock
from inventory.model import DEPLOY_ACCOUNT, Cluster
from validation.checks.node_services import KILLED, LIMIT_MIB, TAKES_MIB
from validation.remote import Remote, RemoteError
from validation.slurm_state import SlurmNode

TIMEOUT_S = 60.0
HOG = (
    'echo "$SLURMD_NODENAME starts"; '
    f"python3 -c 'x = bytearray({TAKES_MIB} << 20)' 2>/dev/null; "
    'echo "$SLURMD_NODENAME ends with $?"'
)


def confines(lock: HardwareLock, names: Sequence[str]) -> bool:
    """Whether the cluster's Slurm limits memory: roles/slurm.py has it so where every node's kernel can."""
    locked = [lock.nodes[name] for name in names if name in lock.nodes]
    return bool(locked) and all("memory" in node.cgroup_controllers for node in locked)


def take_memory(
    cluster: Cluster, lock: HardwareLock, remotes: Mapping[str, Remote], slurm: Mapping[str, SlurmNode] | None
) -> dict[str, dict[str, Any]]:
    """Node → {"ok": {"status": how the greedy program ended}} or {"error": why it was not started}."""
    names = [node.name for node in cluster.nodes if "compute" in node.roles and node.name in remotes]
    if not confines(lock, [node.name for node in cluster.nodes if "compute" in node.roles]):
        return {}
    controller = remotes.get(cluster.controller.name)
    ready = [name for name in names if (one := (slurm or {}).get(name)) and one.settled and not one.drained]
    no_job = {name: {"error": "the node takes no job now"} for name in names}
    if controller is None or not ready:
        return no_job
    try:
        done = controller.run(controller.sudo(hog_command(ready)), timeout_s=TIMEOUT_S)
    except RemoteError as error:
        return {**no_job, **{name: {"error": str(error)} for name in ready}}
    return {**no_job, **parse_hog(ready, done.stdout, done.stderr)}


def hog_command(names: Sequence[str]) -> str:
    """One short job on all of them; on a busy node it is given up after five seconds."""
    words = [
        "runuser",
        "-u",
        DEPLOY_ACCOUNT,
        "--",
        "srun",
        "-J",
        "klaster-memory",
        "-w",
        ",".join(names),
        f"-N{len(names)}",
        "--ntasks-per-node=1",
        "-D",
        "/",
    ]
    words += [f"--mem={LIMIT_MIB}", "--immediate=5", "-t", "1", "-K0", "sh", "-c", HOG]
    return f"cd /; exec {shlex.join(words)}"


def parse_hog(names: Sequence[str], said: str, complaints: str) -> dict[str, dict[str, Any]]:
    """`n1 starts`, then `n1 ends with 137`; where the kernel took the shell too there is no end, and srun says so."""
    lines = [line.split() for line in said.splitlines()]
    started = {words[0] for words in lines if words[1:] == ["starts"]}
    ends = {words[0]: int(words[3]) for words in lines if words[1:3] == ["ends", "with"] and words[3:]}
    out_of_memory = "oom" in complaints.lower() or "out of memory" in complaints.lower()
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        if name in ends:
            found[name] = {"ok": {"status": ends[name]}}
        elif name in started and out_of_memory:
            found[name] = {"ok": {"status": KILLED}}
        else:
            last = complaints.strip().splitlines()[-1:] or ["srun said nothing"]
            found[name] = {"error": last[0]}
    return found
