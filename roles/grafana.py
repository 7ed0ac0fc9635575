"""Dashboards for the browser: Grafana from its own repository, pinned, with an administrator and nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyinfra.context import host

from inventory.errors import InventoryError
from inventory.loading import secrets_path
from inventory.model import Cluster, Grafana
from roles.facts import site
from roles.operations.configure import configure
from roles.operations.packages import packages
from roles.operations.secret_store import SecretStore
from roles.operations.settle import Unit
from roles.operations.template import FILES, render
from roles.operations.tree import Directory, File, Tree

USER = "klaster"
CA_FILE = "/usr/local/share/ca-certificates/klaster.crt"
SERVICE = "grafana-server.service"
DASHBOARDS = "/etc/grafana/klaster"


def repository_plan(grafana: Grafana, key: str) -> Tree:
    """The repository with its key, and the pin to one version: before the package."""
    values = {"grafana": grafana}
    return Tree(
        (
            File("/etc/apt/keyrings/klaster-grafana.asc", key, triggers=("update-grafana-lists",)),
            _file("sources", "/etc/apt/sources.list.d/klaster-grafana.sources", values, ("update-grafana-lists",)),
            _file("pin", "/etc/apt/preferences.d/klaster-grafana", values, ("update-grafana-lists",)),
        ),
        (Directory("/etc/apt/keyrings"),),
    )


def plan(
    cluster: Cluster, grafana: Grafana, admin_password: str, metrics_password: str, certificate: tuple[str, str]
) -> Tree:
    """Configuration, data source, dashboards; whatever is secret is in a file of its own for Grafana's group."""
    values = {"ca_file": CA_FILE, "grafana": grafana, "head": cluster.controller, "user": USER}
    restart = (f"restart-{SERVICE}",)
    provisioning = "/etc/grafana/provisioning"
    boards = sorted((FILES / "grafana" / "dashboards").glob("*.json"))
    return Tree(
        (
            _file("grafana.ini", "/etc/grafana/grafana.ini", values, restart),
            _file("datasource.yml", f"{provisioning}/datasources/klaster.yml", values, restart),
            _file("provider.yml", f"{provisioning}/dashboards/klaster.yml", values, restart),
            _secret("/etc/grafana/klaster.key", certificate[0]),
            _secret("/etc/grafana/klaster.password", admin_password),
            _secret("/etc/grafana/prometheus.password", metrics_password),
            File("/etc/grafana/klaster.crt", certificate[1], triggers=restart),
            # Grafana looks for changed dashboards by itself.
            *(File(f"{DASHBOARDS}/{board.name}", board.read_text(encoding="utf-8")) for board in boards),
        ),
        (Directory(DASHBOARDS),),
    )


def _file(template: str, path: str, values: Mapping[str, object], triggers: tuple[str, ...]) -> File:
    return File(path, render("grafana", template, values), triggers=triggers)


def _secret(path: str, content: str) -> File:
    return File(path, content, "640", "root", "grafana", (f"restart-{SERVICE}",))


def repository_key(grafana: Grafana) -> str:
    """The repository's public key, from the person's file; InventoryError if it is not one."""
    path = Path(grafana.key_file).expanduser()
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if "BEGIN PGP PUBLIC KEY BLOCK" not in text:
        raise InventoryError(
            f"Grafana: key_file {grafana.key_file} is no public key in ASCII armor; "
            "save the key that Grafana's installation page names there"
        )
    return text


def _plan_here(grafana: Grafana) -> Tree:
    cluster = site.cluster()
    store = SecretStore(secrets_path(host.data.inventory_file))
    certificate = store.server_certificate(cluster.controller.name, [cluster.controller.address, "127.0.0.1"])
    return plan(cluster, grafana, store.password("grafana"), store.password("monitoring"), certificate)


def deploy() -> None:
    watch = site.cluster().monitoring
    if watch is None or watch.grafana is None or "controller" not in site.node().roles:
        return
    grafana = watch.grafana
    key = repository_key(grafana)
    configure(
        name="Know Grafana's repository",
        plan=lambda: repository_plan(grafana, key),
        actions={"update-grafana-lists": "apt-get -q -o DPkg::Lock::Timeout=300 update"},
    )
    packages(name="Install Grafana", wanted=("grafana",))
    configure(name="Run Grafana", plan=lambda: _plan_here(grafana), units=(Unit(SERVICE),))
