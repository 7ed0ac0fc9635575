"""Slurm's memory on the controller: MariaDB and slurmdbd, which holds accounts, limits and the history of jobs."""

from __future__ import annotations

from inventory.model import Cluster
from roles.facts import site
from roles.operations.configure import configure
from roles.operations.packages import packages
from roles.operations.settle import Unit
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

PACKAGES = ("mariadb-server", "slurmdbd", "slurm-client")
DATABASE = "slurm_acct_db"


def plan(cluster: Cluster) -> Tree:
    values = {"cluster": cluster, "database": DATABASE}
    database = File(
        "/etc/mysql/mariadb.conf.d/60-klaster.cnf",
        render("accounting", "mariadb.cnf", values),
        triggers=("restart-mariadb.service",),
    )
    accounting = File(
        "/etc/slurm/slurmdbd.conf",
        render("accounting", "slurmdbd.conf", values),
        "600",
        "slurm",
        "slurm",
        triggers=("slurm-database", "restart-slurmdbd.service"),
    )
    return Tree((database, accounting), (Directory("/etc/slurm"), Directory("/var/log/slurm", "755", "slurm", "slurm")))


# The account logs in through the socket as the system's user slurm: there is no password to keep.
STATEMENTS = (
    f"CREATE DATABASE IF NOT EXISTS {DATABASE}; "
    "CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket; "
    f"GRANT ALL ON {DATABASE}.* TO slurm@localhost;"
)
# A controller that ran without accounting gave its cluster a number by chance; slurmdbd gives another, and slurmctld
# then refuses to run. Without its file it takes slurmdbd's.
CLUSTER_NUMBER = "/var/lib/slurm/slurmctld/clustername"
ACTIONS = {"slurm-database": f"systemctl start mariadb && mariadb -e '{STATEMENTS}' && rm -f {CLUSTER_NUMBER}"}


def deploy() -> None:
    cluster, node = site.cluster(), site.node()
    if not cluster.teams or "controller" not in node.roles:
        return
    packages(name="Install Slurm's accounting", wanted=PACKAGES)
    configure(
        name="Run MariaDB and slurmdbd",
        plan=lambda: plan(site.cluster()),
        units=(Unit("mariadb.service"), Unit("slurmdbd.service")),
        actions=ACTIONS,
    )
