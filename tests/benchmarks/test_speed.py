"""What the runs beside klaster's are made of: the playbook holds the roles' files, the names are one machine."""

from __future__ import annotations

import json
from pathlib import Path

from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, load_cluster, secrets_path
from roles import firewall
from roles.operations.secret_store import SecretStore
from tests.benchmarks.ansible_site import write_playbook
from tests.benchmarks.speed import changed_tasks
from tests.benchmarks.speed_lab import write_aliases
from tests.lab.trial import write_trial
from tests.roles.sample import cluster, found, lock


def test_playbook_holds_the_roles_files_and_units(tmp_path: Path) -> None:
    """Beside klaster stands the same end state: its files, its contents, its daemons."""
    site = cluster()
    hosts_now = {node.name: "127.0.0.1 localhost\n" for node in site.nodes}
    store = SecretStore(tmp_path / "secrets.json")
    locked = lock(**{node.name: found() for node in site.nodes})
    playbook, inventory = write_playbook(tmp_path, site, locked, store, hosts_now, leave=("/etc/hostname",))
    plays = {play["name"]: play for play in json.loads(playbook.read_text(encoding="utf-8"))}
    assert plays["compute"]["hosts"] == "n1,n2"
    units = [task["name"] for task in plays["compute"]["tasks"] if task["name"].startswith("Unit")]
    assert units == ["Unit chrony", "Unit ssh", "Unit munge", "Unit slurmd"]
    hosts = json.loads(inventory.read_text(encoding="utf-8"))["all"]["hosts"]
    contents = hosts["n1"]["contents"]
    assert contents[firewall.RULES] == firewall.plan(site, site.node("n1")).files[0].content
    assert contents["/etc/munge/munge.key"] == store.munge_key()
    assert "/etc/hostname" not in contents
    written = {task["ansible.builtin.copy"]["dest"] for task in plays["compute"]["tasks"] if "File" in task["name"]}
    assert written == set(contents)


def test_a_controller_that_computes_has_both_daemons(tmp_path: Path) -> None:
    """The head of a home computes too: slurmctld and slurmd."""
    trial = load_cluster(write_trial(tmp_path / "trial", 2).inventory)
    store = SecretStore(tmp_path / "secrets.json")
    playbook, _ = write_playbook(tmp_path, trial, lock(head=found(), n1=found()), store, {"head": ""}, leave=())
    (play,) = json.loads(playbook.read_text(encoding="utf-8"))
    assert {"Unit slurmctld", "Unit slurmd"} <= {task["name"] for task in play["tasks"]}


def test_a_playbooks_changes_are_counted() -> None:
    """A run is a no-op only if no host of the recap changed something."""
    recap = "head : ok=60   changed=2    unreachable=0\nn1 : ok=58   changed=1    unreachable=0\npeak_mib=56\n"
    assert changed_tasks(recap) == 3
    assert changed_tasks("--> Grand total\npeak_mib=70\n") == 0


def test_aliases_are_the_last_node(tmp_path: Path) -> None:
    """A hundred names are the addresses of one machine, and the rest of the inventory stays."""
    inventory = write_trial(tmp_path / "trial", 2).inventory
    trial = load_cluster(inventory)
    last = trial.node("n1").address
    known_hosts = Path(str(trial.ssh.known_hosts))
    known_hosts.parent.mkdir(parents=True)
    known_hosts.write_text(f"head,10.0.0.1 ssh-ed25519 HEAD\nn1,{last} ssh-ed25519 LAST\n", encoding="utf-8")
    lock(n1=found(memory_mib=4096)).save(hardware_lock_path(inventory))
    key = SecretStore(secrets_path(inventory)).munge_key()
    path = str(write_aliases(tmp_path / "many", inventory, trial, 3))
    many = load_cluster(path)
    start = last.rpartition(".")[0]
    addresses = {"a000": f"{start}.100", "a001": f"{start}.101", "a002": f"{start}.102"}
    assert {node.name: node.address for node in many.compute_nodes} == addresses
    assert HardwareLock.load(hardware_lock_path(path)).nodes == dict.fromkeys(addresses, found(memory_mib=4096))
    assert SecretStore(secrets_path(path)).munge_key() == key
    lines = Path(str(many.ssh.known_hosts)).read_text(encoding="utf-8").splitlines()
    assert lines == [f"{address} ssh-ed25519 LAST" for address in addresses.values()]
