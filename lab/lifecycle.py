"""Bring the lab up, take it down; both converge from any half-done state."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from inventory.loading import load_cluster
from inventory.model import Cluster, External
from lab import cgroup, faults, holder, limits, network, uml, uml_image
from lab.apt import machine_mirrors
from lab.cache import cache_url, start_cache, stop_cache
from lab.errors import CommandFailed, LabError
from lab.image import SUITES, bare, build_image
from lab.node import NodeFiles, is_running, make_key, start_node, stop_node
from lab.plan import NodePlan, Plan, make_plan, this_instance
from lab.process import run
from lab.ssh import ssh_command

MARKER = ".klaster-lab"
"""In a state folder that the lab made: only such a folder is ever removed."""
LIMITS = "klaster-limits"
"""What the kernel's limits were before the first lab came up."""

Say = Callable[[str], None]


def up(inventory_file: str, say: Say, suite: str | None = None) -> Plan:
    """Start what is missing of the inventory's lab and wait until every node answers ssh, booted.

    `suite` is the nodes' Debian release; unset: the one that the lab has, else the usual one.
    """
    cluster = load_cluster(inventory_file)
    plan = make_plan(cluster)
    with holder.locked():
        held = holder.own_holder()
        if held and not _grows(held.load_cluster(), cluster):
            raise LabError(
                f"the lab is up with {held.inventory_file} as it was at {held.since}: run `bin/lab down` first"
            )
        # What can be refused is refused before anything is touched.
        mirrors = machine_mirrors(dict(os.environ))
        network.refuse_foreign_addresses(plan)
        state = _claim_state_folder(plan, fresh=held is None)
        suite = remember_suite(state, suite)
        if plan.kind == "uml" and suite != SUITES[0]:
            raise LabError(f"nodes with kernels of their own are Debian {SUITES[0]}, not {suite}: leave --suite out")
        holder.claim(inventory_file, cluster, held)
        limits.make_room(len(plan.nodes), holder.RUN / LIMITS)
        network.connect(plan)
        start_cache(plan, mirrors, state / "cache")
        _make_keys(cluster, plan)
        shared = _shared_folders(cluster, state)
        missing = [node for node in plan.nodes if not is_running(state, node.name)]
        for node in missing:
            network.plug_node(plan, node)
            if plan.kind == "uml":
                uml.start_node(plan, node, lambda: uml_image.build_disk(cache_url(plan), mirrors, say), mirrors)
            else:
                build_image(bare(suite), cache_url(plan), mirrors, say)
                start_node(plan, node, suite, mirrors, shared)
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda node: _wait_for(plan, node), plan.nodes))
    return plan


def _shared_folders(cluster: Cluster, state: Path) -> tuple[str, ...]:
    """Storage that others provide: in a lab, one folder of this machine that all containers see."""
    shared = tuple(storage.path for storage in cluster.storage if isinstance(storage, External))
    for path in shared:
        (state / "shared" / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    return shared


def _grows(old: Cluster, new: Cluster) -> bool:
    """True if the lab of `new` is the one of `old`, or that plus further nodes at the end."""
    before, after = make_plan(old), make_plan(new)
    return (before.bridges, before.state_dir, before.kind, old.storage) == (
        after.bridges,
        after.state_dir,
        after.kind,
        new.storage,
    ) and after.nodes[: len(before.nodes)] == before.nodes


def _claim_state_folder(plan: Plan, *, fresh: bool) -> Path:
    state = Path(plan.state_dir)
    if state.is_dir() and any(state.iterdir()) and not (state / MARKER).exists():
        raise LabError(f"{state} is not empty and not the lab's: choose another state_dir in the inventory")
    if fresh:
        _clear(plan, state)  # what a restart of the machine left
    state.mkdir(parents=True, exist_ok=True)
    (state / MARKER).touch()
    holder.give_to_caller(state, state / MARKER)
    return state


def remember_suite(state: Path, asked: str | None) -> str:
    """The release of this lab's nodes, kept in its state folder: a node's files lie over one image for good."""
    file = state / "suite"
    if not file.exists():
        file.write_text(asked or SUITES[0], encoding="utf-8")
    suite = file.read_text(encoding="utf-8")
    if asked and asked != suite:
        raise LabError(f"the nodes of this lab are Debian {suite}: run `bin/lab down` before `up --suite {asked}`")
    return suite


def _make_keys(cluster: Cluster, plan: Plan) -> None:
    state = Path(plan.state_dir)
    make_key(state / "id_ed25519", "klaster-lab")
    known = []
    for node in plan.nodes:
        host_key = NodeFiles(state, node.name).host_key
        make_key(host_key, node.name)
        public = " ".join(Path(f"{host_key}.pub").read_text().split()[:2])
        known.append(f"{node.name},{node.address} {public}\n")
    known_hosts = state / "known_hosts"
    known_hosts.write_text("".join(known))
    holder.give_to_caller(state / "id_ed25519", state / "id_ed25519.pub", known_hosts)


BOOT_WITHIN_S = {"container": 90, "uml": 300}


def _wait_for(plan: Plan, node: NodePlan) -> None:
    """Wait until a node lets us in over ssh and says that it has booted."""
    state = Path(plan.state_dir)
    deadline = time.monotonic() + BOOT_WITHIN_S[plan.kind]
    ask = ssh_command(plan, node, ["systemctl", "is-system-running", "--wait", "||", "true"], connect_timeout_s=2)
    while True:
        try:
            if run(ask, timeout_s=30).strip() in ("running", "degraded"):
                return
        except CommandFailed as error:
            last = str(error)
        else:
            last = "still booting"
        if not is_running(state, node.name) or time.monotonic() > deadline:
            console = NodeFiles(state, node.name).console
            words = console.read_text(errors="replace")[-600:] if console.exists() else ""
            raise LabError(f"{node.name} does not come up: {last}; its console ({console}): {words}")
        time.sleep(0.1)


def reboot(plan: Plan, node: NodePlan) -> None:
    """Restart a node's system from inside and wait until another boot of it has come up."""
    ask = ssh_command(plan, node, ["cat", "/proc/sys/kernel/random/boot_id"])
    before = run(ask).strip()
    with suppress(CommandFailed):  # the connection may end before the command does
        run(ssh_command(plan, node, ["systemctl", "reboot"]))
    deadline = time.monotonic() + BOOT_WITHIN_S[plan.kind]
    while True:
        with suppress(CommandFailed):
            if run(ask, timeout_s=20).strip() != before:
                break
        if time.monotonic() > deadline:
            raise LabError(f"{node.name} is not back {BOOT_WITHIN_S[plan.kind]} s after its reboot")
        time.sleep(0.2)
    _wait_for(plan, node)


def down(say: Say) -> bool:
    """Take the lab away without a trace but the caches; False if there was none."""
    with holder.locked():
        held = holder.own_holder()
        left = network.our_namespaces(this_instance())
        if held is None and not left:
            return False
        if held is None:
            raise LabError(
                f"namespaces {', '.join(left)} are there but nobody holds the lab: "
                "run `bin/lab up`, then `bin/lab down`"
            )
        plan = make_plan(held.load_cluster())
        with suppress(LabError):  # what could not be undone goes with the nodes
            faults.heal(plan)
        _clear(plan, Path(plan.state_dir))
        holder.release()
    return True


def _clear(plan: Plan, state: Path) -> None:
    """End the lab's processes, then its network, then its files."""
    for node in plan.nodes:
        stop_node(plan, node)
    stop_cache(state / "cache")
    network.disconnect(plan)
    cgroup.remove(plan.instance.group)
    if not holder.other_labs():
        limits.put_back(holder.RUN / LIMITS)
    _refuse_mounts_below(state)
    if (state / MARKER).exists():
        try:
            shutil.rmtree(state)
        except OSError as error:  # somebody writes there meanwhile
            (state / MARKER).touch()
            raise LabError(f"{error.filename or state} can't be removed ({error.strerror}): run it again") from None


def _refuse_mounts_below(state: Path) -> None:
    """Stop at mounts: nodes mount in a namespace of their own, so these are a person's and must not be emptied."""
    inside = f"{state}/"
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if below := [where for where in mounted if where.startswith(inside)]:
        raise LabError(f"{', '.join(below)} is mounted inside the lab's state folder: unmount it, then run again")
