"""Metrics and alerts: node_exporter and an agent on every node, Prometheus and Alertmanager on the controller."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyinfra.context import host

from inventory.loading import secrets_path
from inventory.model import DEPLOY_ACCOUNT, DEPLOY_HOME, Cluster, Monitoring, Node
from inventory.storage import expected_mounts
from roles.facts import site
from roles.operations.configure import configure
from roles.operations.packages import packages
from roles.operations.secret_store import SecretStore
from roles.operations.settle import Unit
from roles.operations.template import FILES, render
from roles.operations.tree import Directory, File, Tree

USER = "klaster"
"""Who logs in to Prometheus, Alertmanager and the exporters; the password is in the secrets file."""
CA_FILE = "/usr/local/share/ca-certificates/klaster.crt"
PROGRAMS = "/usr/local/lib/klaster"
TEXTFILES = "/var/lib/prometheus/node-exporter"
STAMPS = f"{DEPLOY_HOME}/stamps"
"""A job of the cluster that succeeded touches a file of its name here (backup, nightly); an old one is an alert."""
INTERVAL_S = 15
EXPORTER_PORT = 9180
NODE_EXPORTER, AGENT = "prometheus-node-exporter.service", "klaster-agent.service"
PROMETHEUS, ALERTMANAGER, EXPORTER = (
    "prometheus.service",
    "prometheus-alertmanager.service",
    "klaster-exporter.service",
)
OPTIONAL_UNITS = (
    "docker-registry.service",
    "grafana-server.service",
    "klaster-journal-tls.service",
    "klaster-registry.service",
    "mariadb.service",
    "nfs-kernel-server.service",
    "nfs-server.service",
    "nvidia-persistenced.service",
    "slapd.service",
    "slurmdbd.service",
    "sssd.service",
    "systemd-journal-upload.service",
)
"""Watched where they are enabled: other roles decide where that is."""


@dataclass(frozen=True)
class Access:
    """What a server of metrics needs to be asked by nobody else: its certificate, and the hash of the password."""

    key: str
    certificate: str
    password_hash: str


def wanted_packages(node: Node) -> tuple[str, ...]:
    head = ("prometheus", "prometheus-alertmanager", "python3-prometheus-client") if _is_head(node) else ()
    return ("prometheus-node-exporter", *head)


def _is_head(node: Node) -> bool:
    return "controller" in node.roles


def wanted_units(cluster: Cluster, node: Node) -> list[str]:
    """Units without which this node is not what the inventory says."""
    units = ["chrony.service", "munge.service"]
    units += ["slurmd.service"] if "compute" in node.roles else []
    return [*units, "slurmctld.service"] if _is_head(node) else units


def agent_config(cluster: Cluster, node: Node) -> dict[str, object]:
    return {
        "certificate": "/etc/prometheus/klaster.crt",
        "firewall": cluster.firewall.enabled,
        "gpus": node.gpu_count,
        "interval_s": INTERVAL_S,
        "mounts": [path for path, _ in expected_mounts(cluster, node)],
        "optional_units": list(OPTIONAL_UNITS),
        "output": f"{TEXTFILES}/klaster.prom",
        "stamps": STAMPS,
        "units": wanted_units(cluster, node),
    }


def node_plan(cluster: Cluster, node: Node, access: Access) -> Tree:
    """node_exporter behind TLS and a password on the cluster's address; the agent that writes a file for it."""
    web = {"user": USER, "password_hash": access.password_hash}
    restarts = tuple(
        f"restart-{unit}" for unit in (NODE_EXPORTER, *((PROMETHEUS, ALERTMANAGER) if _is_head(node) else ()))
    )
    values = {"address": node.address, "textfiles": TEXTFILES}
    agent = (f"restart-{AGENT}",)
    config = json.dumps(agent_config(cluster, node), indent=1, sort_keys=True) + "\n"
    return Tree(
        files=(
            File("/etc/prometheus/klaster.crt", access.certificate, triggers=restarts),
            _secret("/etc/prometheus/klaster.key", access.key, restarts),
            _secret("/etc/prometheus/klaster-web.yml", render("monitoring", "web.yml", web), restarts),
            _default("prometheus-node-exporter", render("monitoring", "node-exporter.default", values), NODE_EXPORTER),
            _program("agent.py", AGENT),
            _program("agent_gpu.py", AGENT),
            File("/etc/klaster/agent.json", config, triggers=agent),
            File(f"/etc/systemd/system/{AGENT}", render("monitoring", "agent.service", {}), triggers=agent),
        ),
        directories=(
            Directory("/etc/klaster"),
            Directory(PROGRAMS),
            Directory(STAMPS, "755", DEPLOY_ACCOUNT, DEPLOY_ACCOUNT),
        ),
    )


def exporter_config(cluster: Cluster) -> dict[str, object]:
    links = {node.name: cluster.link(node).speed_gbps or 0.0 for node in cluster.nodes}
    return {
        "certificates": f"{DEPLOY_HOME}/certificates",
        "compute": [node.name for node in cluster.compute_nodes],
        "last_run": f"{DEPLOY_HOME}/last-run/metrics.prom",
        "link_bytes_per_second": {name: speed * 1e9 / 8 for name, speed in links.items()},
        "nodes": {node.name: node.address for node in cluster.nodes},
        "port": EXPORTER_PORT,
        "slurm_interval_s": INTERVAL_S,
        "ssh_port": cluster.ssh.port,
    }


@dataclass(frozen=True)
class Receivers:
    """What Alertmanager needs and the inventory does not hold: a mail account's password, addresses with a token."""

    smtp_password: str = ""
    webhook_urls: tuple[str, ...] = ()


def head_plan(cluster: Cluster, watch: Monitoring, password: str, receivers: Receivers) -> Tree:
    """Prometheus with its targets and rules, Alertmanager with its receivers, the exporter."""
    values = {
        "ca_file": CA_FILE,
        "cluster": cluster,
        "exporter_port": EXPORTER_PORT,
        "head": cluster.controller,
        "interval_s": INTERVAL_S,
        "user": USER,
        "watch": watch,
        "webhook_urls": receivers.webhook_urls,
    }
    exporter = (f"restart-{EXPORTER}",)
    config = json.dumps(exporter_config(cluster), indent=1, sort_keys=True) + "\n"
    files = [
        _secret("/etc/prometheus/klaster.password", password, ("reload-prometheus",)),
        _reloaded("prometheus.yml", "/etc/prometheus/prometheus.yml", values),
        File(
            "/etc/prometheus/klaster-rules.yml",
            (FILES / "monitoring" / "rules.yml").read_text(encoding="utf-8"),
            triggers=("reload-prometheus",),
        ),
        _default("prometheus", render("monitoring", "prometheus.default", values), PROMETHEUS),
        # A webhook's address may hold a token.
        _secret(
            "/etc/prometheus/alertmanager.yml", render("monitoring", "alertmanager.yml", values), ("reload-alerts",)
        ),
        _default("prometheus-alertmanager", render("monitoring", "alertmanager.default", values), ALERTMANAGER),
        _program("exporter.py", EXPORTER),
        _program("exporter_slurm.py", EXPORTER),
        File("/etc/klaster/exporter.json", config, triggers=exporter),
        File(f"/etc/systemd/system/{EXPORTER}", render("monitoring", "exporter.service", {}), triggers=exporter),
    ]
    if receivers.smtp_password:
        files.append(_secret("/etc/prometheus/smtp.password", receivers.smtp_password, ("reload-alerts",)))
    return Tree(tuple(files), (Directory(f"{DEPLOY_HOME}/last-run"),))


def _secret(path: str, content: str, triggers: tuple[str, ...]) -> File:
    return File(path, content, "640", "root", "prometheus", triggers)


def _reloaded(template: str, path: str, values: Mapping[str, object]) -> File:
    return File(path, render("monitoring", template, values), triggers=("reload-prometheus",))


def _default(name: str, content: str, unit: str) -> File:
    return File(f"/etc/default/{name}", content, triggers=(f"restart-{unit}",))


def _program(name: str, unit: str) -> File:
    text = (FILES / "monitoring" / name).read_text(encoding="utf-8")
    return File(f"{PROGRAMS}/{name}", text, triggers=(f"restart-{unit}",))


ACTIONS = {
    # Prometheus keeps its old rules when new ones are wrong: ask promtool first, and be heard.
    "reload-prometheus": "promtool check config /etc/prometheus/prometheus.yml >&2 && "
    "{ ! systemctl is-active -q prometheus || systemctl reload prometheus; }",
    "reload-alerts": "amtool check-config /etc/prometheus/alertmanager.yml >&2 && "
    "{ ! systemctl is-active -q prometheus-alertmanager || systemctl reload prometheus-alertmanager; }",
}


def _store() -> SecretStore:
    return SecretStore(secrets_path(host.data.inventory_file))


def access(store: SecretStore, cluster: Cluster, node: Node) -> Access:
    # The loopback too: a person comes through an ssh tunnel.
    addresses = sorted({node.address, "127.0.0.1", *(link.address for link in node.links if link.address)})
    key, certificate = store.server_certificate(node.name, addresses)
    return Access(key, certificate, store.password_hash("monitoring"))


def _head_plan_here() -> Tree:
    cluster, store = site.cluster(), _store()
    watch = cluster.monitoring or Monitoring()
    return head_plan(cluster, watch, store.password("monitoring"), _receivers(store, watch))


def _receivers(store: SecretStore, watch: Monitoring) -> Receivers:
    smtp = store.given("smtp") if any(mail.user for mail in watch.mail) else ""
    urls = tuple(webhook.url or store.given(f"webhook:{webhook.name}") for webhook in watch.webhooks)
    return Receivers(smtp, urls)


def deploy() -> None:
    cluster, node = site.cluster(), site.node()
    if cluster.monitoring is None:
        return
    if _is_head(node):
        _receivers(_store(), cluster.monitoring)  # missing: one line now, not a half-made head
    packages(name="Install exporters, Prometheus and Alertmanager", wanted=wanted_packages(node))
    configure(
        name="Run node_exporter and the agent",
        plan=lambda: node_plan(site.cluster(), site.node(), access(_store(), site.cluster(), site.node())),
        units=(Unit(NODE_EXPORTER), Unit(AGENT)),
    )
    if _is_head(node):
        configure(
            name="Run Prometheus, Alertmanager and the exporter",
            plan=_head_plan_here,
            units=(Unit(PROMETHEUS), Unit(ALERTMANAGER), Unit(EXPORTER)),
            actions=ACTIONS,
        )
