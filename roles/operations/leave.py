"""A node leaves the cluster: drained, its jobs waited for, the machine given back, forgotten by the control machine."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Generator, Sequence

from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, secrets_path
from roles.facts.jobs import RunningJobs
from roles.facts.node_state import NodeState
from roles.facts.slurm import SlurmNodes
from roles.operations.before import BEFORE, give_back_script
from roles.operations.configure import sh
from roles.operations.notes import NOTES, defer
from roles.operations.secret_store import SecretStore

LEAVES = "leaves the cluster"
"""Slurm's reason. Without the product's prefix: no certificate lifts it, whatever a nightly run finds."""
UPGRADE = "klaster:upgrade:rolling run=none"
"""With the product's prefix: the certification at the end of a node's turn lifts it."""
WAIT_MINUTES = 60.0
POLL_S = 2.0


def stop_everybody(sentence: str) -> None:
    """End the run on every node, with status 1: pyinfra alone would go on without the one that failed."""
    NOTES.stopped = sentence
    # An exception from here would be printed as a traceback.
    with contextlib.suppress(PyinfraError):
        host.state.fail_hosts(set(host.state.active_hosts))  # type: ignore[no-untyped-call]


def _wait(node: str, minutes: float) -> None:
    """Poll until no job is on `node` (one, or several with commas), or end the run."""
    deadline, told = time.monotonic() + minutes * 60, ""
    while True:
        ok, output = host.run_shell_command(f"squeue -h -w {shlex.quote(node)} -o %i")
        if not ok:
            stop_everybody("Slurm does not say which jobs run; nothing was changed")
            return
        jobs = " ".join(output.stdout_lines)
        if not jobs:
            return
        if jobs != told:
            host.log(f"waiting for jobs on {node}: {jobs}")
            told = jobs
        if time.monotonic() > deadline:
            stop_everybody(
                f"after {minutes:g} minutes jobs still run on {node}: {jobs}. It takes no new ones; run this again "
                "later, with --data wait_minutes=N, or end them: scancel"
            )
            return
        time.sleep(POLL_S)


@operation()
def drain_and_wait(
    nodes: Sequence[str], reason: str = LEAVES, minutes: float = WAIT_MINUTES
) -> Generator[PyinfraCommand, None, None]:
    """On the controller: let `nodes` take no job, and wait until those that they have are over.

    A node that somebody drained already keeps the reason it has; one that leaves gets ours.
    """
    found = host.get_fact(SlurmNodes).nodes
    known = [node for node in nodes if node in found]
    if not known:
        host.noop(f"Slurm does not know {', '.join(nodes)}")
        return
    drain = [node for node in known if reason == LEAVES or "DRAIN" not in found[node].flags]
    if drain:
        yield sh(f"scontrol update NodeName={shlex.quote(','.join(drain))} State=DRAIN Reason={shlex.quote(reason)}")
    yield FunctionCommand(_wait, (",".join(known), minutes), {})


@operation()
def give_back(keep: Sequence[str] = ()) -> Generator[StringCommand, None, None]:
    """Undo on this node what klaster did there; refused while jobs run on it."""
    jobs = host.get_fact(RunningJobs)
    if jobs:
        sentence = f"{host.name} keeps what it has: {jobs.words} here; drain it and wait, then again"
        yield sh(f"echo {shlex.quote(sentence)} >&2; exit 1")
        return
    if BEFORE not in host.get_fact(NodeState, paths=(BEFORE,)).files:
        host.noop("nothing of klaster is recorded here")
        return
    yield sh(give_back_script(keep))


def _forget(node: str) -> None:
    path = hardware_lock_path(host.data.inventory_file)
    lock = HardwareLock.load(path)
    HardwareLock(nodes={name: found for name, found in lock.nodes.items() if name != node}).save(path)
    SecretStore(secrets_path(host.data.inventory_file)).forget(f"tls:{node}")


@operation()
def forget(node: str, certificates: str) -> Generator[PyinfraCommand, None, None]:
    """On the controller: its certificate goes, and with it its lines in the hardware lock and the secrets file."""
    machine = next((other for other in host.state.inventory if other.name == node), None)
    if machine is None or machine not in host.state.active_hosts:
        why = "it could not be reached, so the key that all nodes share may still be on it"
        defer(f"clean {node}", why, "pyinfra INVENTORY deploys/rotate.py -y")
    defer(f"{node} is still in the inventory", "the next run of site.py would take it in again", "take its line out")
    yield sh(f"rm -f {shlex.quote(f'{certificates}/{node}.json')}")
    yield FunctionCommand(_forget, (node,), {})
