"""munge on every node with the cluster's key: how Slurm's daemons know one another."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.loading import secrets_path
from roles.facts.jobs import RunningJobs
from roles.operations.configure import configure
from roles.operations.leave import stop_everybody
from roles.operations.packages import packages
from roles.operations.secret_store import SecretStore
from roles.operations.settle import Unit
from roles.operations.tree import Directory, File, Tree


def plan(key: str) -> Tree:
    return Tree(
        files=(File("/etc/munge/munge.key", key, "400", "munge", "munge", triggers=("restart-munge.service",)),),
        directories=(Directory("/etc/munge", "700", "munge", "munge"),),
    )


def _store() -> SecretStore:
    return SecretStore(secrets_path(host.data.inventory_file))


def _plan_here() -> Tree:
    return plan(_store().munge_key())


def deploy() -> None:
    packages(name="Install munge", wanted=("munge",))
    configure(
        name="Run munge with the cluster's key",
        plan=_plan_here,
        units=(Unit("munge.service"),),
        disturbs="every job",
    )


# --- another key ---------------------------------------------------------------------------------------------------


@operation()
def refuse_while_jobs_run() -> Generator[PyinfraCommand, None, None]:
    """Ends the run on every node if a job runs anywhere: two keys in one cluster would cut its steps off."""
    jobs = host.get_fact(RunningJobs, everywhere=True)
    if not jobs:
        host.noop("no job runs")
        return
    sentence = f"the munge key stays as it is: {jobs.words}. Wait for the end, or scancel, then again"
    yield FunctionCommand(stop_everybody, (sentence,), {})


@operation()
def renew_key() -> Generator[PyinfraCommand, None, None]:
    """Once a run, on the control machine: a new key into the secrets file."""
    yield FunctionCommand(_store().renew_munge_key, (), {})
