"""The cluster's own container registry: TLS from the cluster's CA, accounts, clean-up, an optional cache of another."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyinfra.api.facts import FactBase
from pyinfra.context import host

from inventory.containers import registry_node
from inventory.loading import secrets_path
from inventory.model import Cluster, Node, Registry
from roles.facts import site
from roles.operations.configure import configure
from roles.operations.packages import packages
from roles.operations.secret_store import SecretStore
from roles.operations.settle import Unit
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

PACKAGES = ("docker-registry", "nginx-light")
FOLDER = "/etc/klaster/registry"
"""On every node: accounts to pull with; on the registry's own: certificate, the accounts' hashes, the one to push."""
BEHIND, CACHE_BEHIND = 5001, 5003
"""Loopback ports of the registries behind nginx."""
PUSHER, NODE = "administrator", "node"


class Groups(FactBase[tuple[str, ...]]):
    """Names of the groups that this node knows, a directory's too: a file can belong only to such."""

    def command(self, names: Sequence[str]) -> str:
        return f"getent group {' '.join(names)} | cut -d: -f1; true" if names else "true"

    def process(self, output: list[str]) -> tuple[str, ...]:
        return tuple(output)

    @staticmethod
    def default() -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Account:
    """A name of the registry, its password and the hash of it that nginx compares with."""

    name: str
    password: str
    hashed: str


def accounts(cluster: Cluster, store: SecretStore) -> dict[str, Account]:
    """One account for administrators, one for nodes, one for each team."""
    names = [PUSHER, NODE, *(team_account(team.name) for team in cluster.teams)]
    made = [Account(n, store.password(f"registry:{n}"), store.password_hash(f"registry:{n}")) for n in names]
    return {account.name: account for account in made}


def team_account(team: str) -> str:
    return f"team-{team}"


def address(cluster: Cluster) -> str:
    """What stands before an image's name: `head:5000`."""
    assert cluster.registry is not None
    return f"{registry_node(cluster)}:{cluster.registry.port}"


def auth_file(cluster: Cluster, account: Account) -> str:
    """The file that podman, skopeo and buildah log in with."""
    assert cluster.registry is not None
    words = base64.b64encode(f"{account.name}:{account.password}".encode()).decode()
    hosts = [address(cluster)]
    if cluster.registry.cache_of:
        hosts.append(f"{registry_node(cluster)}:{cluster.registry.cache_port}")
    return json.dumps({"auths": {one: {"auth": words} for one in hosts}}, indent=1) + "\n"


def client_plan(cluster: Cluster, known: dict[str, Account], groups: Sequence[str]) -> Tree:
    """On every node: accounts to pull with, for root and for the teams whose groups are there."""
    files = [
        File(f"{FOLDER}/node.json", auth_file(cluster, known[NODE]), "600"),
        File("/etc/profile.d/klaster-registry.sh", render("registry", "profile.sh", {})),
    ]
    for team in cluster.teams:
        name = team_account(team.name)
        if team.name in groups:
            files.append(File(f"{FOLDER}/{name}.json", auth_file(cluster, known[name]), "640", "root", team.name))
    return Tree(tuple(files), (Directory("/etc/klaster"), Directory(FOLDER, "755")))


def server_plan(cluster: Cluster, known: dict[str, Account], tls: tuple[str, str]) -> Tree:
    """On the registry's node: nginx in front, the registry behind it, its clean-up, and the account to push with."""
    registry = cluster.registry
    assert registry is not None
    everybody = "".join(f"{one.name}:{one.hashed}\n" for one in known.values())
    pushers = f"{PUSHER}:{known[PUSHER].hashed}\n"
    again = ("reload-nginx",)
    files = [
        File(f"{FOLDER}/tls.key", tls[0], "600", triggers=again),
        File(f"{FOLDER}/tls.crt", tls[1], triggers=again),
        File(f"{FOLDER}/pull.htpasswd", everybody, "640", "root", "www-data"),
        File(f"{FOLDER}/push.htpasswd", pushers, "640", "root", "www-data"),
        File(f"{FOLDER}/push.json", auth_file(cluster, known[PUSHER]), "600"),
        File("/etc/nginx/conf.d/klaster-registry.conf", _nginx(cluster, registry), triggers=again),
        _config("config.yml", registry.folder, BEHIND, "", "restart-docker-registry.service"),
        _unit("docker-registry.service.d/50-klaster.conf", "restart.conf", {}, "restart-docker-registry.service"),
        _unit("klaster-registry-gc.service", "gc.service", _collection(registry), "reload-systemd"),
        _unit("klaster-registry-gc.timer", "gc.timer", {}, "restart-klaster-registry-gc.timer"),
    ]
    directories = [Directory(registry.folder, "750", "docker-registry", "docker-registry")]
    absent = ["/etc/nginx/sites-enabled/default"]  # it would answer on port 80 for everybody
    cache = (f"{registry.folder}-cache", CACHE_BEHIND, registry.cache_of or "", f"restart-{CACHE}")
    if registry.cache_of:
        files += [_config("klaster-cache.yml", *cache), _unit(CACHE, "cache.service", {}, f"restart-{CACHE}")]
        directories.append(Directory(cache[0], "750", "docker-registry", "docker-registry"))
    return Tree(tuple(files), tuple(directories), tuple(absent))


CACHE = "klaster-registry-cache.service"


def _nginx(cluster: Cluster, registry: Registry) -> str:
    servers = [{"port": registry.port, "behind": BEHIND}]
    if registry.cache_of:
        servers.append({"port": registry.cache_port, "behind": CACHE_BEHIND})
    values = {"servers": servers, "name": registry_node(cluster), "folder": FOLDER}
    return render("registry", "nginx.conf", values)


def _config(name: str, folder: str, port: int, upstream: str, trigger: str) -> File:
    values = {"folder": folder, "port": port, "upstream": upstream}
    return File(f"/etc/docker/registry/{name}", render("registry", "config.yml", values), triggers=(trigger,))


def _unit(path: str, template: str, values: dict[str, object], trigger: str) -> File:
    return File(f"/etc/systemd/system/{path}", render("registry", template, values), triggers=(trigger,))


def _collection(registry: Registry) -> dict[str, object]:
    return {"folder": registry.folder, "options": "" if registry.keep_untagged else "--delete-untagged "}


# --- operations --------------------------------------------------------------------------------------------------


def _store() -> SecretStore:
    return SecretStore(secrets_path(host.data.inventory_file))


def _client_plan_here() -> Tree:
    cluster = site.cluster()
    groups = host.get_fact(Groups, names=tuple(team.name for team in cluster.teams)) if cluster.teams else ()
    return client_plan(cluster, accounts(cluster, _store()), groups)


def _plan_here() -> Tree:
    cluster, store = site.cluster(), _store()
    name = registry_node(cluster)
    node: Node = cluster.node(name)
    addresses = [link.address for network in cluster.networks if (link := cluster.link(node, network)).address]
    tls = store.server_certificate(name, [one for one in addresses if one])
    known, client = accounts(cluster, store), _client_plan_here()
    server = server_plan(cluster, known, tls)
    return Tree(client.files + server.files, client.directories + server.directories, server.absent)


def _units(registry: Registry) -> tuple[Unit, ...]:
    cache = (Unit(CACHE),) if registry.cache_of else ()
    return (Unit("docker-registry.service"), *cache, Unit("nginx.service"), Unit("klaster-registry-gc.timer"))


def deploy() -> None:
    cluster, node = site.cluster(), site.node()
    if cluster.registry is None:
        return
    if node.name != registry_node(cluster):
        configure(name="Give the node an account of the registry", plan=_client_plan_here)
        return
    packages(name="Install the registry", wanted=PACKAGES)
    configure(
        name="Run the registry behind TLS and accounts",
        plan=_plan_here,
        units=_units(cluster.registry),
        actions={
            "reload-systemd": "systemctl daemon-reload",
            "reload-nginx": "nginx -t -q && { ! systemctl is-active -q nginx || systemctl reload nginx; }",
        },
    )
