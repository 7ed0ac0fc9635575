"""Ask every node everything the node stage needs, side by side over one connection a node, and keep it as one file."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from inventory.containers import registry_node
from inventory.hardware import HardwareLock
from inventory.model import DEPLOY_ACCOUNT, Cluster, Node
from inventory.storage import is_server
from validation.checks import node_storage
from validation.checks.node import Clock, Gathered, Probe, ProbeError
from validation.checks.node_disk import DISK_PATHS
from validation.checks.node_identity import asked_units, over_limit_jobs
from validation.checks.node_services import ASKED
from validation.checks.node_storage import asked_paths
from validation.checks.node_system import versions_of
from validation.gpu_gather import ask_binding, ask_container, load_gpus
from validation.memory_limit import take_memory
from validation.node_exchange import exchange_files
from validation.rdma_gather import measure_rdma
from validation.remote import Remote, RemoteError, connect_all
from validation.slurm_state import SlurmNode

PROBE = Path(__file__).parent / "payloads" / "probe.py"
DISK_PROBE = Path(__file__).parent / "payloads" / "probe_disk.py"
GPU_PROBE = Path(__file__).parent / "payloads" / "probe_gpu.py"
NETWORK_PROBE = Path(__file__).parent / "payloads" / "probe_network.py"
STORAGE_PROBE = Path(__file__).parent / "payloads" / "probe_storage.py"
QUESTION_S = 4.0
PROBE_TIMEOUT_S = 12.0
"""Each of its questions has 4 s of its own; forking them costs 1–2 s on a slow machine."""
GPU_PROBE_TIMEOUT_S = 30.0
"""nvidia-smi has 15 s."""
PATIENCE = {"container": 1, "uml": 5}
"""A user-mode kernel forks in 20 ms, and all questions share its one processor: they have so many times the time."""
CLOCK_READINGS = 3
CONNECT_S = 5.0
VERSIONS = ("system", "versions", "slurm_version", "gpu_driver")
"""Questions that a node's version set is made of."""
SERVICE_ACCOUNTS = ("slurm", "munge", DEPLOY_ACCOUNT)


def gather(
    cluster: Cluster,
    lock: HardwareLock,
    remotes: Mapping[str, Remote],
    unreachable: Mapping[str, str],
    slurm: Mapping[str, SlurmNode] | None,
) -> Gathered:
    """Everything that the checks judge; a node that does not answer has a reason instead of a probe."""
    probes: dict[str, Probe] = {}
    no_probe: dict[str, str] = {}
    clocks: dict[str, Clock] = {}

    def one(name: str) -> None:
        try:
            clocks[name] = read_clock(remotes[name])
            node, locked = cluster.node(name), lock.nodes.get(name)
            has_gpus = bool(node.gpus or (locked and locked.gpus))
            probes[name] = ask(cluster, node, remotes[name], has_gpus)
            if has_gpus:
                probes[name] = {
                    **probes[name],
                    "gpu_load": load_gpus(cluster, name, remotes, slurm),
                    "gpu_binding": ask_binding(cluster, name, remotes, slurm),
                    "gpu_container": ask_container(cluster, name, remotes),
                }
        except RemoteError as error:
            no_probe[name] = str(error)

    with ThreadPoolExecutor(max_workers=max(1, min(32, len(remotes)))) as pool:
        list(pool.map(one, remotes))
        order = [node.name for node in cluster.nodes if node.name in probes]
        for name, said in measure_rdma(cluster, {name: probes[name] for name in order}, remotes, pool).items():
            probes[name] = {**probes[name], "rdma_peer": said}
        for name, said in take_memory(cluster, lock, remotes, slurm).items():
            if name in probes:
                probes[name] = {**probes[name], "memory_limit": said}
        munge = exchange_credentials(cluster, {name: probes[name] for name in order}, remotes, pool)
        shared = exchange_files(cluster, {name: probes[name] for name in order}, remotes, pool)
    return Gathered(
        cluster=cluster,
        lock=lock,
        probes={name: without_credential(probes[name]) for name in order},
        unreachable=dict(unreachable),
        no_probe=no_probe,
        clocks=clocks,
        munge=munge,
        shared=shared,
        slurm=slurm,
    )


def ask_versions(
    cluster: Cluster, lock: HardwareLock, nodes: Sequence[str]
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The version sets of nodes as they are now, and for the others why they could not be read."""
    remotes, missing = connect_all(cluster, [cluster.node(name) for name in nodes], timeout_s=CONNECT_S)
    found: dict[str, dict[str, str]] = {}

    def one(name: str) -> None:
        node, locked = cluster.node(name), lock.nodes.get(name)
        try:
            probe = ask(cluster, node, remotes[name], bool(node.gpus or (locked and locked.gpus)), only=VERSIONS)
            found[name] = versions_of(Gathered(cluster, lock, {name: probe}).subject(name))
        except (RemoteError, ProbeError) as error:
            missing[name] = str(error)

    with ThreadPoolExecutor(max_workers=max(1, min(32, len(remotes)))) as pool:
        list(pool.map(one, remotes))
    for remote in remotes.values():
        remote.close()
    return found, missing


def questions(cluster: Cluster, node: Node, has_gpus: bool = False) -> dict[str, Any]:
    """What the probe is asked on `node`."""
    return {
        "deadline_s": QUESTION_S * PATIENCE[cluster.lab],
        "names": [other.name for other in cluster.nodes],
        "peers": {other.name: other.address for other in cluster.nodes if other.name != node.name},
        "networks": further_networks(cluster, node),
        "paths": list(dict.fromkeys([*DISK_PATHS, "/dev/shm", *asked_paths(cluster, node)])),  # noqa: S108 - looked at, not written
        "services": [*ASKED, *asked_units(cluster, node), *node_storage.asked_units(cluster, node)],
        "exports": is_server(cluster, node),
        "quotas": [share.path for share in cluster.nfs] if is_server(cluster, node) else [],
        "people": [user.name for user in cluster.users],
        "slurm_accounts": "controller" in node.roles and bool(cluster.teams),
        "over_limit": over_limit_jobs(cluster, node),
        "accounts": [*SERVICE_ACCOUNTS, *(user.name for user in cluster.users)],
        "disks_but": [storage.path for storage in cluster.storage],
        "venv": cluster.training.venv if cluster.training.source != "debian" else "",
        "gpus": has_gpus,
        "registry": [registry_node(cluster), cluster.registry.port] if cluster.registry else [],
    }


def further_networks(cluster: Cluster, node: Node) -> dict[str, dict[str, str]]:
    """Network → peer → its address there, for each network but the first that this node is in."""
    found: dict[str, dict[str, str]] = {}
    for network in cluster.networks[1:]:
        if cluster.link(node, network).address:
            links = {other.name: cluster.link(other, network) for other in cluster.nodes if other is not node}
            found[network.name] = {name: link.address for name, link in links.items() if link.address}
    return found


def probe_program(has_gpus: bool, serves: bool = False) -> bytes:
    """The probe as one file for a Python that reads it from its standard input."""
    more = (*((GPU_PROBE,) if has_gpus else ()), *((STORAGE_PROBE,) if serves else ()))
    return b"\n".join(part.read_bytes() for part in (DISK_PROBE, NETWORK_PROBE, *more, PROBE))


def ask(cluster: Cluster, node: Node, remote: Remote, has_gpus: bool = False, only: Sequence[str] = ()) -> Probe:
    """Run the probe on one node, all of it or `only` some questions; RemoteError if it gives no document."""
    asked = questions(cluster, node, has_gpus) | {"only": list(only)}
    command = remote.sudo(f"python3 - {shlex.quote(json.dumps(asked))}")
    timeout_s = PATIENCE[cluster.lab] * (GPU_PROBE_TIMEOUT_S if has_gpus else PROBE_TIMEOUT_S)
    done = remote.run(command, timeout_s=timeout_s, stdin=probe_program(has_gpus, is_server(cluster, node)))
    try:
        found = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines()
        raise RemoteError(
            f"the probe ended with status {done.status}: {lines[-1] if lines else 'no message'}"
        ) from None
    assert isinstance(found, dict)
    return found


def without_credential(probe: Probe) -> Probe:
    """What the probe said, without munge's credential: it has served, and this goes to a log."""
    found = probe.get("munge", {})
    if "ok" not in found:
        return probe
    return {**probe, "munge": {"ok": {**found["ok"], "stdout": ""}}}


def read_clock(remote: Remote) -> Clock:
    """The node's clock against ours at the midpoint of the quickest of some exchanges."""
    readings = []
    for _ in range(CLOCK_READINGS):
        began, wall = time.monotonic(), time.time()
        done = remote.run("date +%s.%N", timeout_s=5)
        took = time.monotonic() - began
        try:
            readings.append(Clock(float(done.stdout) - (wall + took / 2), took))
        except ValueError:
            raise RemoteError(f"{remote.name}: `date` gave {done.stdout[:40]!r}") from None
    return min(readings, key=lambda reading: reading.round_trip_s)


def exchange_credentials(
    cluster: Cluster, probes: Mapping[str, Probe], remotes: Mapping[str, Remote], pool: ThreadPoolExecutor
) -> dict[str, dict[str, str]]:
    """Each node's credential decoded by the controller (by the first node, if it is not there) and the reverse."""
    credentials = {
        name: str(probe["munge"]["ok"]["stdout"])
        for name, probe in probes.items()
        if probe.get("munge", {}).get("ok", {}).get("status") == 0
    }
    if len(credentials) < 2:
        return {}
    head = cluster.controller.name
    hub = head if head in credentials else next(iter(credentials))
    pairs = [pair for name in credentials if name != hub for pair in ((name, hub), (hub, name))]

    def decode(pair: tuple[str, str]) -> str:
        source, target = pair
        try:
            done = remotes[target].run("unmunge", timeout_s=5, stdin=credentials[source].encode())
        except RemoteError as error:
            return str(error)
        return "" if done.ok else (done.stderr or done.stdout).strip().splitlines()[-1]

    found: dict[str, dict[str, str]] = {}
    for (source, target), said in zip(pairs, pool.map(decode, pairs), strict=True):
        found.setdefault(source, {})[target] = said
    return found
