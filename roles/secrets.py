"""Make the cluster's secrets on the first run, and have every node trust its authority and know its signing key."""

from __future__ import annotations

from pyinfra.context import host

from inventory.loading import secrets_path, signing_public_path
from roles.operations.configure import configure
from roles.operations.secret_store import SecretStore
from roles.operations.tree import Directory, File, Tree

CA_FILE = "/usr/local/share/ca-certificates/klaster.crt"
SIGNING_FILE = "/etc/klaster/signing.pub"
"""With it `validate-cluster --verify` checks a certificate on any node."""


def plan(ca_certificate: str, signing_public: str) -> Tree:
    return Tree(
        (
            File(CA_FILE, ca_certificate, triggers=("update-ca-certificates",)),
            File(SIGNING_FILE, signing_public),
        ),
        (Directory("/etc/klaster"),),
    )


def publish_key(inventory_file: str, public: str) -> None:
    """Leave the public key beside the inventory, to be committed: who has the checkout can check certificates."""
    path = signing_public_path(inventory_file)
    if not path.exists() or path.read_text(encoding="utf-8") != public:
        new = path.with_suffix(".new")
        new.write_text(public, encoding="utf-8")
        new.replace(path)


def _plan_here() -> Tree:
    store = SecretStore(secrets_path(host.data.inventory_file))
    store.munge_key()
    _, certificate = store.ca()
    _, public = store.signing_key()
    publish_key(host.data.inventory_file, public)
    return plan(certificate, public)


def deploy() -> None:
    configure(
        name="Trust the cluster's CA and know its signing key",
        plan=_plan_here,
        actions={"update-ca-certificates": "update-ca-certificates 2>&1 | tail -1"},
    )
