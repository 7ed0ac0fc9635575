"""Load a node's GPUs for the node stage: over ssh where nobody computes, as a job where the node is in service."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inventory.containers import registry_node
from inventory.model import Cluster
from validation.remote import Remote, RemoteError, RemoteTimeout
from validation.slurm_state import SlurmNode

LOAD = Path(__file__).parent / "payloads" / "gpu_load.py"
LOAD_TIMEOUT_S = 300.0
"""Some 25 s a card, and 20 s for each direction of a pair that hangs."""
SIMULATED = "/etc/klaster-lab/gpu/load.json"
"""A rehearsal's node has a recording instead of a card (lab/simulated_gpu.py)."""


def load_gpus(
    cluster: Cluster, name: str, remotes: Mapping[str, Remote], slurm: Mapping[str, SlurmNode] | None
) -> dict[str, Any]:
    """What payloads/gpu_load.py measured, in the form of a probe's answer: {"ok": …} or {"error": …}."""
    remote = remotes[name]
    script = load_script(cluster)
    state = slurm.get(name) if slurm else None
    controller = remotes.get(cluster.controller.name)
    if state is not None and not state.drained and controller is not None:
        # A job may start on it at any moment: be a job, so that the two never meet.
        remote = controller
        script = f"srun -N1 -w {shlex.quote(name)} --exclusive --gres=gpu:{cluster.node(name).gpu_count} sh -c " + (
            shlex.quote(script)
        )
    try:
        done = remote.run(remote.sudo(script), timeout_s=LOAD_TIMEOUT_S, stdin=LOAD.read_bytes())
    except RemoteTimeout:
        return {"error": f"no answer in {LOAD_TIMEOUT_S:g} s"}
    except RemoteError as error:
        return {"error": str(error)}
    try:
        return {"ok": json.loads(done.stdout)}
    except ValueError:
        lines = done.stderr.strip().splitlines()
        return {"error": f"exit status {done.status}: {lines[-1] if lines else 'no message'}"}


BINDING_TIMEOUT_S = 60.0
# What each task sees of the cards, and the cores that it may use.
WHERE_AM_I = (
    "echo \"$(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | tr '\\n' ' ')|"
    "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)\""
)


def ask_binding(
    cluster: Cluster, name: str, remotes: Mapping[str, Remote], slurm: Mapping[str, SlurmNode] | None
) -> dict[str, Any]:
    """Card and cores of each task of a job with one card a task; an error where the node takes no job now."""
    state, controller = (slurm or {}).get(name), remotes.get(cluster.controller.name)
    if state is None or state.drained or controller is None:
        return {"error": "the node takes no job"}
    count = cluster.node(name).gpu_count
    task = f"sh -c {shlex.quote(WHERE_AM_I)}"
    script = f"srun -N1 -w {shlex.quote(name)} --exclusive --ntasks={count} --gpus-per-task=1 {task}"
    try:
        done = controller.run(controller.sudo(script), timeout_s=BINDING_TIMEOUT_S)
    except RemoteError as error:
        return {"error": str(error)}
    return {"ok": parse_binding(done.stdout)} if done.ok else {"error": done.stderr.strip()[-300:]}


def parse_binding(said: str) -> list[dict[str, str]]:
    """Tasks that see exactly one card; the others say nothing about where their card is."""
    rows = [line.partition("|") for line in said.splitlines() if "|" in line]
    return [{"card": cards.strip(), "cpus": cpus.strip()} for cards, _, cpus in rows if len(cards.split()) == 1]


CONTAINER_TIMEOUT_S = 180.0
"""The first time the image, some GB, comes over the network."""
IMAGE = "train-cuda:stable"
STEP = (
    "import json, torch; x = torch.ones(512, 512, device='cuda'); "
    "print(json.dumps({'cuda': torch.version.cuda, 'card': torch.cuda.get_device_name(), 'sum': float((x @ x).sum())}))"
)


def ask_container(cluster: Cluster, name: str, remotes: Mapping[str, Remote]) -> dict[str, Any]:
    """A CUDA step in a container of the cluster's own registry, as every job there would do it."""
    if cluster.registry is None or cluster.containers is None:
        return {"error": "no registry or no containers declared"}
    image = f"{registry_node(cluster)}:{cluster.registry.port}/{IMAGE}"
    words = ["podman", "run", "--rm", "--authfile", "/etc/klaster/registry/node.json", "--device", "nvidia.com/gpu=all",
             image, "/opt/torch/bin/python3", "-c", STEP]  # fmt: skip
    script = f"if [ -e {SIMULATED} ]; then echo simulated; exit; fi; {shlex.join(words)}"
    try:
        done = remotes[name].run(remotes[name].sudo(script), timeout_s=CONTAINER_TIMEOUT_S)
    except RemoteTimeout:
        return {"ok": {"said": f"no answer in {CONTAINER_TIMEOUT_S:g} s", "status": 124}}
    except RemoteError as error:
        return {"error": str(error)}
    if done.stdout.strip() == "simulated":
        return {"error": "simulated cards can't be handed to a container"}
    lines = (done.stderr if done.status else done.stdout).strip().splitlines()
    return {"ok": {"said": lines[-1] if lines else "", "status": done.status}}


def load_script(cluster: Cluster) -> str:
    """The shell command that takes the payload on its standard input; a simulation prints what was recorded."""
    python = shlex.quote(f"{cluster.training.venv}/bin/python")
    return (
        f"if [ -e {SIMULATED} ]; then cat >/dev/null; cat {SIMULATED}; exit; fi; "
        "f=$(mktemp -d /tmp/klaster-gpu.XXXXXX); trap 'rm -rf $f' EXIT; cat > $f/gpu_load.py; "
        f"p={python}; [ -x $p ] || p=python3; $p $f/gpu_load.py"
    )
