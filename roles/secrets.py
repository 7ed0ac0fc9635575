"""Make the cluster's secrets on the first run, and have every node trust the cluster's own certificate authority."""

from __future__ import annotations

from pyinfra.context import host

from inventory.loading import secrets_path
from roles.operations.configure import configure
from roles.operations.secret_store import SecretStore
from roles.operations.tree import File, Tree

CA_FILE = "/usr/local/share/ca-certificates/klaster.crt"


def plan(ca_certificate: str) -> Tree:
    return Tree((File(CA_FILE, ca_certificate, triggers=("update-ca-certificates",)),))


def _plan_here() -> Tree:
    store = SecretStore(secrets_path(host.data.inventory_file))
    store.munge_key()
    _, certificate = store.ca()
    return plan(certificate)


def deploy() -> None:
    configure(
        name="Trust the cluster's CA",
        plan=_plan_here,
        actions={"update-ca-certificates": "update-ca-certificates 2>&1 | tail -1"},
    )
