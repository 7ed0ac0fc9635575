"""munge on every node with the cluster's key: how Slurm's daemons know one another."""

from __future__ import annotations

from pyinfra.context import host

from inventory.loading import secrets_path
from roles.operations.configure import configure
from roles.operations.packages import packages
from roles.operations.secret_store import SecretStore
from roles.operations.settle import Unit
from roles.operations.tree import Directory, File, Tree


def plan(key: str) -> Tree:
    return Tree(
        files=(File("/etc/munge/munge.key", key, "400", "munge", "munge", triggers=("restart-munge.service",)),),
        directories=(Directory("/etc/munge", "700", "munge", "munge"),),
    )


def _plan_here() -> Tree:
    return plan(SecretStore(secrets_path(host.data.inventory_file)).munge_key())


def deploy() -> None:
    packages(name="Install munge", wanted=("munge",))
    configure(
        name="Run munge with the cluster's key", plan=_plan_here, units=(Unit("munge.service"),), disturbs="every job"
    )
