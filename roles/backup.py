"""Nightly copies of people, job history and certificates on the controller, and the way back."""

from __future__ import annotations

from pyinfra.context import host

from inventory.backup import Backup
from inventory.loading import secrets_path
from inventory.model import Cluster, Ldap
from roles.facts import site
from roles.operations.configure import configure
from roles.operations.settle import Unit
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

SECRETS = "/var/lib/klaster/secrets.json"


def plan(cluster: Cluster, backup: Backup, secrets: str) -> Tree:
    """The two programs, the timer, and the secrets file where the inventory asks for it."""
    values = {
        "backup": backup,
        "own": isinstance(cluster.people, Ldap),
        "teams": bool(cluster.teams),
        "secrets": SECRETS,
    }
    files = [
        _rendered("klaster-backup", "/usr/local/sbin/klaster-backup", values, "755"),
        _rendered("klaster-restore", "/usr/local/sbin/klaster-restore", values, "755"),
        _rendered("klaster-backup.service", "/etc/systemd/system/klaster-backup.service", values),
        _rendered("klaster-backup.timer", "/etc/systemd/system/klaster-backup.timer", values),
    ]
    if backup.secrets:
        files.append(File(SECRETS, secrets, "600"))
    absent = () if backup.secrets else (SECRETS,)
    return Tree(tuple(files), (Directory(backup.folder, "700"),), absent)


def _rendered(template: str, path: str, values: dict[str, object], mode: str = "644") -> File:
    restart = ("restart-klaster-backup.timer",) if mode == "644" else ()
    return File(path, render("backup", template, values), mode, triggers=restart)


def _plan_here() -> Tree:
    cluster = site.cluster()
    backup = cluster.backups
    assert backup is not None
    path = secrets_path(host.data.inventory_file)
    return plan(cluster, backup, path.read_text(encoding="utf-8") if backup.secrets else "")


def deploy() -> None:
    cluster, node = site.cluster(), site.node()
    if cluster.backups is None or "controller" not in node.roles:
        return
    configure(name="Back up people and job history", plan=_plan_here, units=(Unit("klaster-backup.timer"),))
