"""Let the controller certify idle nodes every night by itself: a snapshot of the validator, a timer, a key."""

from __future__ import annotations

import json
from pathlib import Path

from pyinfra.context import host

from inventory.hardware import HardwareLock
from inventory.loading import secrets_path
from inventory.model import DEPLOY_ACCOUNT, DEPLOY_HOME, Cluster, Nightly, Node
from inventory.secret_file import SIGNING_KEY
from roles.facts import site
from roles.operations.configure import configure
from roles.operations.packages import packages
from roles.operations.secret_store import SecretStore
from roles.operations.settle import Unit
from roles.operations.template import FILES, render
from roles.operations.tree import Directory, File, Tree

PACKAGES = (
    "python3-cryptography",
    "python3-jinja2",
    "python3-paramiko",
    "python3-prometheus-client",
    "python3-pydantic",
    "python3-pytest",
    "python3-testinfra",
)
SNAPSHOT = "/usr/local/lib/klaster/validator"
FOLDER = "/etc/klaster/nightly"
KEY = f"{FOLDER}/id_ed25519"
STAMP = f"{DEPLOY_HOME}/stamps/nightly"
TIMER = "klaster-nightly.timer"
PARTS = ("inventory/*.py", "validation/**/*.py", "validation/**/*.ini", "files/report/*")
"""What of the checkout validate-cluster consists of, when it runs."""


def on_head(cluster: Cluster) -> Cluster:
    """The same cluster as the controller reaches it: the deploy account, its own key, state beside the file."""
    document = cluster.model_dump(mode="json")
    document["ssh"] |= {
        "user": DEPLOY_ACCOUNT,
        "key": KEY,
        "known_hosts": f"{DEPLOY_HOME}/.ssh/known_hosts",
        "strict_host_keys": "accept-new",
    }
    document["state_dir"] = None
    for node in document["nodes"]:
        node["ssh_user"] = None
    return Cluster(**document)


def inventory_path(cluster: Cluster) -> str:
    # Not a node's name, which an inventory must not be called.
    return f"{FOLDER}/cluster_{cluster.name.replace('-', '_')}.py"


def snapshot(root: Path) -> tuple[File, ...]:
    """The validator's own files, as they are in the checkout that deploys."""
    paths = sorted({path for part in PARTS for path in root.glob(part) if path.is_file()})
    return tuple(
        File(f"{SNAPSHOT}/{path.relative_to(root)}", path.read_text(encoding="utf-8"))
        for path in paths
        if "__pycache__" not in path.parts
    )


def head_plan(
    cluster: Cluster, nightly: Nightly, lock: HardwareLock, private_key: str, signing: tuple[str, str]
) -> Tree:
    """Snapshot, inventory, lock, keys, program and timer; `signing`: private and public PEM."""
    root = FILES.parent
    inventory = inventory_path(cluster)
    document = json.dumps(on_head(cluster).model_dump(mode="json"), indent=1, sort_keys=True)
    values = {
        "account": DEPLOY_ACCOUNT,
        "at": nightly.at,
        "home": DEPLOY_HOME,
        "inventory": inventory,
        "level": nightly.level,
        "snapshot": SNAPSHOT,
        "stamp": STAMP,
    }
    beside = inventory.removesuffix(".py")
    program = (FILES / "nightly" / "nightly.py").read_text(encoding="utf-8")
    files = snapshot(root)
    unit = "/etc/systemd/system/klaster-nightly"
    own = (
        File(inventory, render("nightly", "inventory.py", {"document": document})),
        File(f"{beside}.hardware.json", lock.text),
        # Of all secrets only the one that certificates are signed with.
        File(
            f"{beside}.secrets.json",
            json.dumps({SIGNING_KEY: signing[0]}) + "\n",
            "600",
            DEPLOY_ACCOUNT,
            DEPLOY_ACCOUNT,
        ),
        File(f"{beside}.signing.pub", signing[1]),
        File(KEY, private_key, "600", DEPLOY_ACCOUNT, DEPLOY_ACCOUNT),
        File(f"{SNAPSHOT}/nightly.py", program),
        File(f"{unit}.service", render("nightly", "nightly.service", values), triggers=("reload-units",)),
        File(f"{unit}.timer", render("nightly", "nightly.timer", values), triggers=(f"restart-{TIMER}",)),
    )
    folders = sorted({str(Path(file.path).parent) for file in files} | {SNAPSHOT, FOLDER, "/etc/klaster"})
    directories = tuple(Directory(folder) for folder in folders)
    reports = Directory(f"{DEPLOY_HOME}/reports", "755", DEPLOY_ACCOUNT, DEPLOY_ACCOUNT)
    return Tree((*files, *own), (*directories, reports))


def node_plan(cluster: Cluster, public_key: str) -> Tree:
    """The controller may log in to the deploy account: only from its own addresses, and for commands only."""
    head = cluster.controller
    addresses = ",".join(dict.fromkeys([head.address, *(link.address for link in head.links if link.address)]))
    line = f'restrict,from="{addresses}" {public_key}\n'
    # sshd reads this second file by default; the first is the deployer's.
    return Tree((File(f"{DEPLOY_HOME}/.ssh/authorized_keys2", line, "600", DEPLOY_ACCOUNT, DEPLOY_ACCOUNT),))


def _store() -> SecretStore:
    return SecretStore(secrets_path(host.data.inventory_file))


def _head_plan_here() -> Tree:
    cluster = site.cluster()
    nightly = (cluster.monitoring and cluster.monitoring.nightly) or Nightly()
    store = _store()
    return head_plan(cluster, nightly, site.lock(), store.ssh_key("nightly")[0], store.signing_key())


def _is_head(node: Node) -> bool:
    return "controller" in node.roles


def deploy() -> None:
    watch = site.cluster().monitoring
    if watch is None or watch.nightly is None:
        return
    configure(
        name="Let the controller certify this node",
        plan=lambda: node_plan(site.cluster(), _store().ssh_key("nightly")[1]),
    )
    if _is_head(site.node()):
        packages(name="Install what the validator needs", wanted=PACKAGES)
        configure(
            name="Certify idle nodes every night",
            plan=_head_plan_here,
            units=(Unit(TIMER),),
            actions={"reload-units": "systemctl daemon-reload"},
        )
