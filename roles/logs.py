"""Bring every node's journal to the controller over TLS, bounded in size, and search all of them there."""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra.context import host

from inventory.loading import secrets_path
from inventory.model import Cluster, Node
from roles.facts import site
from roles.operations.barrier import barrier
from roles.operations.configure import configure
from roles.operations.packages import packages
from roles.operations.secret_store import SecretStore
from roles.operations.settle import Unit
from roles.operations.template import FILES, render
from roles.operations.tree import Directory, File, Tree

CA_FILE = "/usr/local/share/ca-certificates/klaster.crt"
PORT = 19532
"""systemd-journal-remote's own."""
SOCKET, REMOTE, UPLOAD, TLS = (
    "systemd-journal-remote.socket",
    "systemd-journal-remote.service",
    "systemd-journal-upload.service",
    "klaster-journal-tls.service",
)


def wanted_packages(node: Node) -> tuple[str, ...]:
    return ("systemd-journal-remote", *(("stunnel4",) if "controller" in node.roles else ()))


def plan(cluster: Cluster, node: Node, logs_gib: int, certificate: tuple[str, str]) -> Tree:
    """The controller receives, every other node sends; both sides show a certificate of the cluster's CA."""
    head = "controller" in node.roles
    triggers = ("restart-journal-remote", f"restart-{TLS}") if head else (f"restart-{UPLOAD}",)
    values = {"ca_file": CA_FILE, "head": cluster.controller, "logs_gib": logs_gib, "port": PORT}
    key, public = certificate
    shared = (
        File("/etc/klaster/journal.crt", public, triggers=triggers),
        File("/etc/klaster/journal.key", key, "600", triggers=triggers),
        _file("journald.conf", "/etc/systemd/journald.conf.d/50-klaster.conf", values, ("restart-journald",)),
        File("/usr/local/bin/klaster-run", _raw("klaster-run"), "755"),
    )
    return Tree(
        (*shared, *(_head(values, triggers) if head else _sender(values, triggers))), (Directory("/etc/klaster"),)
    )


def _head(values: Mapping[str, object], triggers: tuple[str, ...]) -> tuple[File, ...]:
    tls = (f"restart-{TLS}",)
    return (
        _file("journal-remote.conf", "/etc/systemd/journal-remote.conf.d/50-klaster.conf", values, triggers),
        _file("socket.conf", f"/etc/systemd/system/{SOCKET}.d/50-klaster.conf", values, triggers),
        _file("remote-service.conf", f"/etc/systemd/system/{REMOTE}.d/50-klaster.conf", values, triggers),
        _file("journal-tls.conf", "/etc/klaster/journal-tls.conf", values, tls),
        _file("journal-tls.service", f"/etc/systemd/system/{TLS}", values, tls),
        File("/usr/local/bin/klaster-logs", _raw("klaster-logs.py"), "755"),
    )


def _sender(values: Mapping[str, object], triggers: tuple[str, ...]) -> tuple[File, ...]:
    return (
        _file("journal-upload.conf", "/etc/systemd/journal-upload.conf.d/50-klaster.conf", values, triggers),
        _file("credential.conf", f"/etc/systemd/system/{UPLOAD}.d/50-klaster.conf", values, triggers),
    )


def _file(template: str, path: str, values: Mapping[str, object], triggers: tuple[str, ...]) -> File:
    return File(path, render("logs", template, values), triggers=triggers)


def _raw(name: str) -> str:
    return (FILES / "logs" / name).read_text(encoding="utf-8")


ACTIONS = {
    "restart-journald": "systemctl restart systemd-journald",
    # The socket first: it can't be changed while its service holds it.
    "restart-journal-remote": "systemctl daemon-reload && "
    f"systemctl stop {REMOTE} {SOCKET} && systemctl start {SOCKET}",
}


def _plan_here() -> Tree:
    cluster, node = site.cluster(), site.node()
    store = SecretStore(secrets_path(host.data.inventory_file))
    watch = cluster.monitoring
    certificate = store.server_certificate(node.name, [node.address])
    return plan(cluster, node, (watch.logs_gib if watch else None) or 1, certificate)


def deploy() -> None:
    watch = site.cluster().monitoring
    if watch is None or watch.logs_gib is None:
        return
    head = "controller" in site.node().roles
    packages(name="Install the journal's sender and receiver", wanted=wanted_packages(site.node()))
    if head:
        configure(
            name="Take all journals on the controller",
            plan=_plan_here,
            units=(Unit(SOCKET), Unit(TLS)),
            actions=ACTIONS,
        )
    # A sender that finds nobody ends, and is then no unit that stays up.
    barrier(name="The controller takes journals")
    if not head:
        configure(name="Send the journal to the controller", plan=_plan_here, units=(Unit(UPLOAD),), actions=ACTIONS)
