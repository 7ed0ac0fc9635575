"""Give every node torch: Debian's package on CPU nodes of Debian 13, a virtual environment from a lock elsewhere."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.hardware import FoundNode
from inventory.model import Cluster, Node, TrainingEnv
from roles.facts import site
from roles.facts.node_state import NodeState
from roles.operations.configure import put_off, sh
from roles.operations.packages import install_commands

DEBIAN = ("python3-torch", "python3-numpy")
VENV = ("python3-venv", "python3-numpy")
STAMP = "klaster.lock.sha256"
"""File in the virtual environment with the hash of the lock it was made from; written last."""


@dataclass(frozen=True)
class Plan:
    """What a node gets; `refusal` is a sentence where it can get nothing."""

    packages: tuple[str, ...] = ()
    venv: str = ""
    lock_text: str = ""
    index_url: str = ""
    refusal: str = ""


def plan(training: TrainingEnv, node: Node, found: FoundNode | None, lock_text: str) -> Plan:
    """Debian's torch or a virtual environment; never a CUDA build on a node without a GPU."""
    if found is None:
        return Plan(refusal=f"{node.name} is not in the hardware lock yet: run deploys/discover.py first")
    on_debian_13 = found.distribution == "debian" and found.release == "13"
    has_gpu = node.gpu_count > 0 and not found.simulated
    source = training.source
    if source == "auto":
        source = "debian" if on_debian_13 and not has_gpu else "venv"
    if source == "debian":
        if has_gpu:
            return Plan(refusal=f"{node.name} has GPUs and Debian's torch is a CPU build: training.source must be venv")
        if not on_debian_13:
            return Plan(refusal=f"{node.name} runs {found.distribution} {found.release}, without a package "
                                "python3-torch that was tested: training.source must be venv")  # fmt: skip
        return Plan(packages=DEBIAN)
    if not lock_text:
        return Plan(
            refusal=f"{node.name} needs torch in a virtual environment: say training.lock_file in the inventory"
        )
    if not has_gpu and re.search(r"^(nvidia-|triton\b)", lock_text, re.MULTILINE):
        return Plan(
            refusal=f"{node.name} has no GPU and the lock file brings a CUDA build of torch (several GB): "
            "make a lock with the CPU build"
        )
    return Plan(packages=VENV, venv=training.venv, lock_text=lock_text, index_url=training.index_url or "")


def venv_commands(wanted: Plan) -> list[str]:
    """Build beside the old environment and rename, so that a killed run leaves the old one or the new one."""
    new, digest = f"{wanted.venv}.new", hashlib.sha256(wanted.lock_text.encode()).hexdigest()
    index = f" --index-url {shlex.quote(wanted.index_url)}" if wanted.index_url else ""
    q_new, q_venv = shlex.quote(new), shlex.quote(wanted.venv)
    return [
        f"rm -rf {q_new} && mkdir -p {shlex.quote(str(Path(wanted.venv).parent))} && python3 -m venv {q_new}",
        f"cat > {q_new}/requirements.txt",
        f"{q_new}/bin/pip install -q --require-hashes{index} -r {q_new}/requirements.txt",
        f"{q_new}/bin/python -c 'import torch'",
        f"echo {digest} > {q_new}/{STAMP} && rm -rf {q_venv} && mv -T {q_new} {q_venv}",
    ]


@operation()
def torch() -> Generator[PyinfraCommand, None, None]:
    """Install what the plan says for this node."""
    wanted = plan(site.cluster().training, site.node(), site.lock().nodes.get(host.name), lock_text(site.cluster()))
    if wanted.refusal:
        yield sh(f"echo {shlex.quote(wanted.refusal)} >&2; exit 1")
        return
    stamp = f"{wanted.venv}/{STAMP}"
    found = host.get_fact(NodeState, packages=wanted.packages, paths=(stamp,) if wanted.venv else ())
    commands = install_commands(wanted.packages, found)
    digest = hashlib.sha256(hashlib.sha256(wanted.lock_text.encode()).hexdigest().encode() + b"\n").hexdigest()
    missing = stamp not in found.files
    stale = bool(wanted.venv) and (missing or found.files[stamp].sha256 != digest)
    # A program that runs from the old environment imports more of it later.
    if stale and (missing or not put_off([f"another {wanted.venv}"], "jobs here")):
        commands += venv_commands(wanted)
    if not commands:
        host.noop("torch is there")
    for command in commands:
        shell = sh(command)
        if command.startswith("cat > "):
            shell.connector_arguments["_stdin"] = wanted.lock_text
        yield shell


def lock_text(cluster: Cluster) -> str:
    """The lock file of torch as it is now; empty if none is named."""
    file = cluster.training.lock_file
    return Path(file).expanduser().read_text(encoding="utf-8") if file else ""


def deploy() -> None:
    torch(name="Install torch")
