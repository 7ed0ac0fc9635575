"""Stop a pyinfra run that would do nothing or the wrong thing in silence, before a host is contacted."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from inventory.errors import InventoryError, nearest
from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, load_cluster, secrets_path
from inventory.model import Cluster, Node
from inventory.secret_file import read_secrets


def check_run(options: Mapping[str, Any]) -> None:
    """Check pyinfra's parsed options; InventoryError in one line for what pyinfra itself would let pass.

    pyinfra prints a traceback for a mistake in the file, and ends with status 0 if there is no host at all, if
    `--limit` names nobody, or if an operation fails under `--no-wait`.
    """
    quieten_paramiko()
    inventory = str(options.get("inventory") or "")
    path_like = "/" in inventory and "@" not in inventory  # pyinfra would look for a host of that name
    if not (inventory.endswith(".py") or path_like or Path(inventory).exists()):
        return  # hosts on the command line, such as @local: not one of our inventories
    cluster = load_cluster(inventory)
    if options.get("no_wait"):
        raise InventoryError("--no-wait hides failures (pyinfra then ends with status 0); leave it out")
    groups = {
        Path(inventory).stem: cluster.nodes,  # pyinfra's own group: the file's name
        "all": cluster.nodes,
        "controller": (cluster.controller,),
        "compute": cluster.compute_nodes,
        "storage": tuple(node for node in cluster.nodes if "storage" in node.roles),
    }
    limited = _chosen(cluster, groups, "--limit", options.get("limit") or ())
    excluded = _chosen(cluster, groups, "--exclude", options.get("exclude") or ())
    if not (limited or {node.name for node in cluster.nodes}) - excluded:
        raise InventoryError("--limit and --exclude leave no node; name at least one")
    _check_accept(cluster, options.get("data") or ())
    _check_drain(cluster, options.get("data") or (), options.get("operations") or ())
    _check_leaving(cluster, options.get("data") or (), options.get("operations") or ())
    if "debug-inventory" not in (options.get("operations") or ()):
        check_key(cluster)
        HardwareLock.load(hardware_lock_path(inventory))  # a damaged file beside the inventory is told
        read_secrets(secrets_path(inventory))  # before the first node has changed, not by the role that needs it


def quieten_paramiko() -> None:
    """It logs a traceback beside the error that it raises, for each host that answers no ssh; the error is enough."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)


def _chosen(cluster: Cluster, groups: Mapping[str, Sequence[Node]], option: str, patterns: Iterable[str]) -> set[str]:
    chosen: set[str] = set()
    for pattern in patterns:
        nodes = groups.get(pattern) or [node for node in cluster.nodes if fnmatch(node.name, pattern)]
        if not nodes:
            names = [*groups, *(node.name for node in cluster.nodes)]
            raise InventoryError(f'{option}: no node or group "{pattern}" {nearest(pattern, names)}')
        chosen |= {node.name for node in nodes}
    return chosen


def _check_accept(cluster: Cluster, data: Iterable[str]) -> None:
    """`--data accept=NODE` accepts changed hardware: a misspelt node must not look accepted."""
    for key, _, value in (one.partition("=") for one in data):
        names = [node.name for node in cluster.nodes]
        for name in value.split(",") if key == "accept" else ():
            if name not in (*names, "all"):
                raise InventoryError(f'--data accept: no node "{name}" {nearest(name, [*names, "all"])}')


def _check_drain(cluster: Cluster, data: Iterable[str], operations: Iterable[str]) -> None:
    """deploys/drain.py needs the names of compute nodes; without them it would ask Slurm for a node "None"."""
    if not any(Path(operation).name == "drain.py" for operation in operations):
        return
    values = [value for key, _, value in (one.partition("=") for one in data) if key == "drain"]
    if not values:
        raise InventoryError("which nodes take no more jobs? say: deploys/drain.py --data drain=NODE,…")
    names = [node.name for node in cluster.compute_nodes]
    for name in (name for value in values for name in value.split(",")):
        if name not in names:
            raise InventoryError(f'--data drain: no compute node "{name}" {nearest(name, names)}')


def _check_leaving(cluster: Cluster, data: Iterable[str], operations: Iterable[str]) -> None:
    """`--data remove=NODE` names one node that is not the controller, and deploys/remove.py can't do without it."""
    names = [value for key, _, value in (one.partition("=") for one in data) if key == "remove"]
    removes = any(Path(operation).name == "remove.py" for operation in operations)
    others = [node.name for node in cluster.nodes if node is not cluster.controller]
    if removes and not names:
        raise InventoryError("which node leaves? say: deploys/remove.py --data remove=NODE")
    if names and not removes:
        raise InventoryError("--data remove=NODE is for deploys/remove.py")
    for name in names:
        if name == cluster.controller.name:
            raise InventoryError(
                f'--data remove: "{name}" is the controller; to give up the cluster: deploys/uninstall.py'
            )
        if name not in others:
            raise InventoryError(f'--data remove: no node "{name}" {nearest(name, others)}')


def check_key(cluster: Cluster) -> None:
    """pyinfra prints a traceback a host for a key file that is not there."""
    key = Path(cluster.ssh.key).expanduser() if cluster.ssh.key else None
    if key is not None and not key.is_file():
        hint = "the lab makes it: bin/lab up" if cluster.substrate == "rehearsal" else f"make it: ssh-keygen -f {key}"
        raise InventoryError(f"ssh.key {key} is not there; {hint}")
