"""The registry's role: who may what, what stays secret, what runs where."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography import x509

from inventory.model import Cluster, Registry, Team
from roles import registry
from roles.operations.secret_store import SecretStore
from roles.operations.tree import File, Tree
from tests.roles.sample import cluster

TLS = ("KEY", "CERTIFICATE")


def some(**fields: object) -> Cluster:
    return cluster(registry=Registry(**fields), teams=(Team(name="red"), Team(name="blue")))


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    return SecretStore(tmp_path / "secrets.json")


def files(tree: Tree) -> dict[str, File]:
    return {file.path: file for file in tree.files}


def test_only_administrators_push(store: SecretStore) -> None:
    """Everybody's account is in the file for pulling, the administrators' alone in the one for pushing."""
    known = registry.accounts(some(), store)
    made = files(registry.server_plan(some(), known, TLS))
    names = {file: [line.partition(":")[0] for line in made[f"{registry.FOLDER}/{file}.htpasswd"].content.splitlines()]
             for file in ("pull", "push")}  # fmt: skip
    assert names == {"pull": ["administrator", "node", "team-red", "team-blue"], "push": ["administrator"]}
    nginx = made["/etc/nginx/conf.d/klaster-registry.conf"].content
    before, _, after = nginx.partition("limit_except GET HEAD OPTIONS")
    assert "pull.htpasswd" in before
    assert "push.htpasswd" in after


def test_no_password_is_readable_by_all(store: SecretStore) -> None:
    """Files with a password or the key belong to root or to the team that may use them, and to nobody else."""
    known = registry.accounts(some(), store)
    everything = files(registry.server_plan(some(), known, TLS)) | files(registry.client_plan(some(), known, ("red",)))
    secret = [one.password for one in known.values()] + [one.hashed for one in known.values()] + ["KEY"]
    words = secret + [base64.b64encode(f"{a.name}:{a.password}".encode()).decode() for a in known.values()]
    readable = [path for path, file in everything.items() if file.mode[-1] != "0"]
    assert [path for path in readable if any(word in everything[path].content for word in words)] == []
    team = everything[f"{registry.FOLDER}/team-red.json"]
    assert (team.mode, team.group) == ("640", "red")


def test_a_team_whose_group_is_unknown_gets_no_file(store: SecretStore) -> None:
    """A file can't belong to a group that the node does not know yet: the next run writes it."""
    known = registry.accounts(some(), store)
    assert f"{registry.FOLDER}/team-blue.json" not in files(registry.client_plan(some(), known, ("red",)))


def test_accounts_stay_from_run_to_run(store: SecretStore) -> None:
    """The same hashes again: a second run changes no file."""
    assert registry.accounts(some(), store) == registry.accounts(some(), store)


def test_an_account_opens_registry_and_cache(store: SecretStore) -> None:
    """The log-in file names host and port as images do, the cache's too where there is one."""
    with_cache = some(cache_of="https://registry.example")
    account = registry.accounts(with_cache, store)["node"]
    assert list(json.loads(registry.auth_file(with_cache, account))["auths"]) == ["head:5000", "head:5002"]
    assert list(json.loads(registry.auth_file(some(), account))["auths"]) == ["head:5000"]


def test_the_registry_itself_is_reached_through_nginx_only(store: SecretStore) -> None:
    """It listens on loopback; only nginx, with TLS, is on the network."""
    made = files(registry.server_plan(some(), registry.accounts(some(), store), TLS))
    assert "addr: 127.0.0.1:5001" in made["/etc/docker/registry/config.yml"].content
    assert "listen 5000 ssl" in made["/etc/nginx/conf.d/klaster-registry.conf"].content


def test_a_cache_fetches_from_the_declared_registry(store: SecretStore) -> None:
    """With cache_of there is a second registry with its address; without, there is none."""
    with_cache = some(cache_of="https://registry.example")
    made = files(registry.server_plan(with_cache, registry.accounts(with_cache, store), TLS))
    assert "remoteurl: https://registry.example" in made["/etc/docker/registry/klaster-cache.yml"].content
    without = files(registry.server_plan(some(), registry.accounts(some(), store), TLS))
    assert "/etc/docker/registry/klaster-cache.yml" not in without


def test_the_clean_up_keeps_what_it_shall() -> None:
    """Images without a tag go, unless the inventory keeps them."""
    assert registry._collection(Registry())["options"] == "--delete-untagged "
    assert registry._collection(Registry(keep_untagged=True))["options"] == ""


def test_the_authority_is_one_that_python_takes(store: SecretStore) -> None:
    """OpenSSL's strict mode, Python 3.13's default, accepts the cluster's CA for a service's certificate."""
    _, certificate = store.server_certificate("head", ["10.0.0.1"])
    authority, leaf = store.ca()[1], x509.load_pem_x509_certificate(certificate.encode())
    found = x509.load_pem_x509_certificate(authority.encode()).extensions
    key = found.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == key
