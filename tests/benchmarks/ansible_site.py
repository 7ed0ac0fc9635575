"""The end state of the site as an Ansible playbook: what speed.py measures klaster's runs beside.

One task a file, one for all packages, one a unit, one an account: as a person writes it. Contents come from the roles'
own plans, so that both tools bring nodes to the same state and a run after the other changes nothing. The playbook has
base, secrets, firewall, munge, slurm and training. Not in it: hardware lock, health checks, Slurm's accounts, backups,
quarantine, whether every slurmd has registered: klaster's runs do more than those they are held against.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inventory.hardware import HardwareLock
from inventory.model import Cluster, Node
from roles import base, firewall, munge, secrets, slurm, training
from roles.operations.secret_store import SecretStore
from roles.operations.tree import Directory, File

Task = dict[str, Any]


def files_of(
    cluster: Cluster, node: Node, lock: HardwareLock, store: SecretStore, hosts_now: str
) -> tuple[list[File], list[Directory]]:
    """All files and folders of the roles that the rehearsal lab has."""
    trees = [
        base.plan(cluster, node, lock, hosts_now, (), base.public_key(cluster)),
        secrets.plan(store.ca()[1], store.signing_key()[1]),
        firewall.plan(cluster, node),
        munge.plan(store.munge_key()),
    ]
    if "controller" in node.roles:
        trees.append(slurm.controller_plan(cluster, lock))
    if "compute" in node.roles:
        trees.append(slurm.compute_plan(cluster, node))
    return [file for tree in trees for file in tree.files], [d for tree in trees for d in tree.directories]


def tasks(files: list[File], directories: list[Directory], packages: list[str], units: list[str]) -> list[Task]:
    """The play of one kind of node; contents are variables of the host."""
    listed: list[Task] = [{"name": "Packages", "ansible.builtin.apt": {"name": packages, "state": "present"}}]
    for account in base.ACCOUNTS:
        group = {"name": account.name, "gid": account.uid, "system": True}
        user = {"name": account.name, "uid": account.uid, "group": account.name, "home": account.home,
                "shell": account.shell, "system": True, "create_home": False}  # fmt: skip
        listed.append({"name": f"Group {account.name}", "ansible.builtin.group": group})
        listed.append({"name": f"Account {account.name}", "ansible.builtin.user": user})
    for one in {d.path: d for d in directories}.values():
        folder = {
            "path": one.path,
            "state": "directory",
            "mode": f"0{one.mode}",
            "owner": one.owner,
            "group": one.group,
        }
        listed.append({"name": f"Folder {one.path}", "ansible.builtin.file": folder})
    for file in files:
        copy = {"dest": file.path, "content": f"{{{{ contents[{file.path!r}] }}}}", "mode": f"0{file.mode}",
                "owner": file.owner, "group": file.group}  # fmt: skip
        listed.append({"name": f"File {file.path}", "ansible.builtin.copy": copy})
    for unit in units:
        service = {"name": unit, "state": "started", "enabled": True}
        listed.append({"name": f"Unit {unit}", "ansible.builtin.systemd_service": service})
    loaded = {"cmd": "nft list table inet klaster"}
    listed.append({"name": "Firewall is loaded", "ansible.builtin.command": loaded, "changed_when": False})
    return listed


def write_playbook(
    folder: Path,
    cluster: Cluster,
    lock: HardwareLock,
    store: SecretStore,
    hosts_now: dict[str, str],
    leave: tuple[str, ...],
) -> tuple[Path, Path]:
    """Playbook and inventory (both JSON, which is YAML); `leave`: paths that one sshd of many names can't hold."""
    hosts: dict[str, Any] = {}
    plays: list[dict[str, Any]] = []
    for node in cluster.nodes:
        if node.name not in hosts_now:
            continue
        files, directories = files_of(cluster, node, lock, store, hosts_now[node.name])
        files = [file for file in files if file.path not in leave]
        hosts[node.name] = {"ansible_host": node.address, "contents": {file.path: file.content for file in files}}
        kind = "controller" if "controller" in node.roles else "compute"
        if kind not in [play["name"] for play in plays]:
            packages = [*base.PACKAGES, "munge", *slurm.wanted_packages(node), *training.DEBIAN]
            daemons = {"controller": "slurmctld", "compute": "slurmd"}
            units = ["chrony", "ssh", "munge", *(unit for role, unit in daemons.items() if role in node.roles)]
            members = [n.name for n in cluster.nodes if ("controller" in n.roles) == (kind == "controller")]
            plays.append({"name": kind, "hosts": ",".join(members), "gather_facts": False,
                          "tasks": tasks(files, directories, packages, units)})  # fmt: skip
    shared = {"ansible_user": cluster.ssh.user, "ansible_port": cluster.ssh.port,
              "ansible_ssh_private_key_file": cluster.ssh.key,
              "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
              "ansible_python_interpreter": "/usr/bin/python3"}  # fmt: skip
    inventory, playbook = folder / "hosts.json", folder / "site.json"
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": shared}}), encoding="utf-8")
    playbook.write_text(json.dumps(plays), encoding="utf-8")
    return playbook, inventory
