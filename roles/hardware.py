"""Discover each node's hardware once and keep it in the lock; a change is refused until a person accepts it."""

from __future__ import annotations

import shlex
from collections.abc import Generator

from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.hardware import FoundNode, HardwareLock
from inventory.loading import hardware_lock_path
from roles.facts import site
from roles.facts.hardware import Hardware


def changes(old: FoundNode, new: FoundNode) -> list[str]:
    """What differs, down to the field: `memory_mib: 65536 → 32768`, `gpus 1: NVIDIA X → gone`, `nics eth0 mtu: …`."""
    before, after = _flat(old), _flat(new)
    return [
        f"{name}: {before.get(name, 'not there')} → {after.get(name, 'gone')}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]


def _flat(node: FoundNode) -> dict[str, str]:
    """Each fact under its own name; parts of a list by their name (NICs, disks) or index (GPUs)."""
    facts: dict[str, str] = {}
    for field, value in node.model_dump().items():
        if field not in ("gpus", "nics", "disks"):
            facts[field] = str(value)
            continue
        for part in value:
            label = part.get("name", part.get("index"))
            facts |= {f"{field} {label} {key}": str(text) for key, text in part.items() if key not in ("name", "index")}
    return facts


def describe(node: FoundNode) -> str:
    """One line a person can check at a glance."""
    gpus = ", ".join(gpu.model for gpu in node.gpus) or "no GPU"
    nics = ", ".join(
        f"{nic.name} {f'{nic.speed_mbps} Mb/s' if nic.speed_mbps else 'speed unknown'}" for nic in node.nics
    )
    return (
        f"{node.distribution} {node.release}, {node.cpus} CPUs ({node.cpu_model}), "
        f"{node.memory_mib / 1024:.1f} GiB, {gpus}, {nics or 'no NIC'}, {len(node.disks)} disks"
    )


def _remember(name: str, found: FoundNode) -> None:
    path = hardware_lock_path(host.data.inventory_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Read, change and write without a round trip in between: greenlets of other hosts can't interleave.
    lock = HardwareLock.load(path)
    HardwareLock(nodes={**lock.nodes, name: found}).save(path)
    host.log(f"locked: {describe(found)}")


@operation()
def lock_hardware(again: bool = False, accept: str = "") -> Generator[PyinfraCommand, None, None]:
    """Put this node into the hardware lock if it is not there; `again`: compare a node that is.

    `accept` names the node, or is "all": then a change is taken over instead of refused.
    """
    known = site.lock().nodes.get(host.name)
    if known is not None and not again:
        host.noop("hardware is locked")
        return
    found = host.get_fact(Hardware)
    if found is None:
        yield StringCommand("echo 'the hardware of this node could not be read' >&2; exit 1")
    elif known is None or (accept in ("all", host.name) and changes(known, found)):
        yield FunctionCommand(_remember, (host.name, found), {})
    elif changes(known, found):
        sentence = (
            f"the hardware of {host.name} changed: {'; '.join(changes(known, found))}. If that is meant, run: "
            f"pyinfra INVENTORY deploys/discover.py -y --data accept={host.name}"
        )
        yield StringCommand(f"echo {shlex.quote(sentence)} >&2; exit 1")


def _remember_cards(name: str, found: FoundNode) -> None:
    path = hardware_lock_path(host.data.inventory_file)
    lock = HardwareLock.load(path)
    known = lock.nodes[name].model_copy(update={"gpus": found.gpus})
    HardwareLock(nodes={**lock.nodes, name: known}).save(path)
    host.log(f"locked: {', '.join(gpu.model for gpu in found.gpus)}")


@operation()
def lock_cards() -> Generator[PyinfraCommand, None, None]:
    """Lock the GPUs of a node that had no driver when its hardware was locked; later changes are refused as all are."""
    known = site.lock().nodes.get(host.name)
    if known is None or known.gpus:
        host.noop("GPUs are locked")
        return
    found = host.get_fact(Hardware)
    if found is None or not found.gpus:
        host.noop("no GPU answers yet")
        return
    yield FunctionCommand(_remember_cards, (host.name, found), {})


def deploy_cards() -> None:
    """After the driver: without it a card has no name and no UUID."""
    if site.cluster().gpu_stack is not None and site.node().gpus:
        lock_cards(name="Lock the node's GPUs")


def deploy(again: bool = False) -> None:
    lock_hardware(
        name="Lock the node's hardware",
        again=again,
        accept=str(host.data.get("accept", "")),
    )
