"""Verdicts on shared folders: what is mounted from where, served to whom, read across nodes, limited."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from inventory.hardware import HardwareLock
from inventory.model import Cluster, Network, Nfs, Node, Team, User
from validation.checks import node_storage
from validation.checks.node import Finding, Gathered
from validation.checks.node_services import services as services_check
from validation.model import Outcome

CLUSTER = Cluster(
    name="c",
    networks=(Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1),),
    nodes=(
        Node(name="head", address="10.0.0.1", roles=("controller",)),
        Node(name="n1", address="10.0.0.2"),
        Node(name="n2", address="10.0.0.3", scratch_disk="/dev/sdb"),
    ),
    storage=(Nfs(path="/home"), Nfs(path="/data", device="/dev/sdc", teams=True)),
    teams=(Team(name="red", gid=70_001, quota_gib=2),),
    users=(User(name="alex", uid=10_001, teams=("red",), quota_gib=1),),
)
OPTIONS = "rw,nosuid,nodev,relatime,vers=4.2,hard,proto=tcp"
HOME = f"10.0.0.1:/home /home nfs4 {OPTIONS} 0 0\n"
MOUNTS = f"/dev/sda / ext4 rw 0 0\n{HOME}10.0.0.1:/data /data nfs4 {OPTIONS} 0 0\n"
SPACE = {"ok": {"total_bytes": 2**38, "free_bytes": 2**37, "files": 9, "files_free": 9, "read_only": False}}
HANGS = {"error": "no answer in 4 s"}
SERVED = "(rw,sync,wdelay,root_squash,no_all_squash)\n"
ETAB = "".join(f"{path}\t10.0.0.{number}{SERVED}" for path in ("/home", "/data") for number in (2, 3))


def services(state: str) -> dict[str, Any]:
    text = f"Id=nfs-server.service\nLoadState=loaded\nActiveState={state}\n"
    return {"ok": {"status": 0, "stdout": text, "stderr": ""}}


@pytest.fixture
def fleet() -> Gathered:
    """A head that serves two folders to two nodes, all well."""
    limits = {"user 10001": 1 << 20, "group 70001": 2 << 20}
    quotas = {"/home": {"on": [], "limits": {}}, "/data": {"on": ["user", "group"], "limits": limits}}
    head = {"services": services("active"), "exports": {"ok": ETAB}, "quotas": {"ok": quotas}}
    node = {"mounts": {"ok": MOUNTS}, "filesystem:/home": SPACE, "filesystem:/data": SPACE}
    scratch = {"mounts": {"ok": MOUNTS + "/dev/sdb /scratch ext4 rw 0 0\n"}, "filesystem:/scratch": SPACE}
    shared = {name: {"/home": "", "/data": ""} for name in ("head", "n1", "n2")}
    probes: dict[str, dict[str, Any]] = {"head": head, "n1": node, "n2": {**node, **scratch}}
    return Gathered(cluster=CLUSTER, lock=HardwareLock(), probes=probes, shared=shared)


def changed(fleet: Gathered, **answers: dict[str, Any]) -> Gathered:
    """The same fleet with other answers of some nodes: head={"exports": {"ok": …}}."""
    probes = copy.deepcopy({name: dict(probe) for name, probe in fleet.probes.items()})
    for name, values in answers.items():
        probes[name].update(values)
    return dataclasses.replace(fleet, probes=probes)


def said(fleet: Gathered, check: str, name: str = "n1") -> Finding:
    finding = getattr(node_storage, check)(fleet.subject(name))
    assert isinstance(finding, Finding)
    return finding


@pytest.mark.parametrize("check", ["storage_mounts", "storage_exports", "storage_shared", "storage_quotas"])
def test_a_healthy_fleet_passes(fleet: Gathered, check: str) -> None:
    """Every check passes or does not apply on every node."""
    for name in fleet.probes:
        assert said(fleet, check, name).outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE), name


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        (HOME, "", "mount"),
        ("10.0.0.1:/home /home", "10.0.0.9:/home /home", "mount-source"),
        ("/home nfs4", "/home ext4", "mount-type"),
        ("nosuid,nodev", "nodev", "mount-options"),
        ("vers=4.2,hard", "vers=4.2,soft", "mount-options"),
    ],
)
def test_a_mount_is_more_than_a_path(fleet: Gathered, old: str, new: str, cause: str) -> None:
    """An empty folder, another server's folder, another file system or other options fail, each by its name."""
    finding = said(changed(fleet, n1={"mounts": {"ok": MOUNTS.replace(old, new)}}), "storage_mounts")
    assert (finding.outcome, finding.cause, finding.culprit_kind) == (Outcome.FAIL, cause, "node")


def test_scratch_must_be_its_disk(fleet: Gathered) -> None:
    """A node whose inventory names a scratch disk has it mounted."""
    lost = changed(fleet, n2={"mounts": {"ok": MOUNTS}})
    assert said(lost, "storage_mounts", "n2").measured == "/scratch is a folder, not a mount"


def test_a_dead_server_is_one_service_and_no_node(fleet: Gathered) -> None:
    """F23: the clients and the server itself name one culprit, NFS on head, and no node is blamed for it."""
    hang = {"filesystem:/home": HANGS, "filesystem:/data": HANGS}
    dead = dataclasses.replace(changed(fleet, head={"services": services("inactive")}, n1=hang, n2=hang), shared={})
    asked = (("storage_mounts", "n1"), ("storage_mounts", "n2"), ("storage_exports", "head"))
    found = [said(dead, check, name) for check, name in asked]
    assert {(f.outcome, f.cause, f.culprit_kind, f.culprit) for f in found} == {
        (Outcome.FAIL, "nfs-down", "service", "NFS on head")
    }
    assert said(dead, "storage_shared").outcome is Outcome.INCONCLUSIVE


def test_a_server_that_runs_and_does_not_answer_is_named_too(fleet: Gathered) -> None:
    """A folder that hangs while the server's unit is active is the service's fault as well."""
    finding = said(changed(fleet, n1={"filesystem:/home": HANGS}), "storage_mounts")
    assert (finding.cause, finding.culprit) == ("storage-stale", "NFS on head")


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("10.0.0.3(rw", "*(rw", "exports-open"),
        ("10.0.0.3(rw", "10.0.0.77(rw", "exports-open"),
        (",root_squash", ",no_root_squash", "exports-root"),
        (f"/data\t10.0.0.3{SERVED}", "", "exports"),
    ],
)
def test_folders_are_served_to_nodes_only(fleet: Gathered, old: str, new: str, cause: str) -> None:
    """A wildcard, a stranger's address, root as root and a missing node fail."""
    assert old in ETAB
    loose = changed(fleet, head={"exports": {"ok": ETAB.replace(old, new)}})
    assert said(loose, "storage_exports", "head").cause == cause


def test_what_another_node_wrote_must_be_read(fleet: Gathered) -> None:
    """A complaint of the exchange fails the node that it is about."""
    told = {**fleet.shared, "n2": {"/home": "", "/data": "n1 wrote a, n2 read nothing"}}
    finding = said(dataclasses.replace(fleet, shared=told), "storage_shared", "n2")
    assert (finding.outcome, finding.measured) == (Outcome.FAIL, "/data: n1 wrote a, n2 read nothing")


def test_a_quota_that_is_not_set_fails_and_one_that_cannot_be_is_advice(fleet: Gathered) -> None:
    """The server's limits are the inventory's; a file system without quotas is told, not failed."""
    assert "/home: its file system enforces no quotas" in said(fleet, "storage_quotas", "head").advice
    half = {"/data": {"on": ["user", "group"], "limits": {"user 10001": 1 << 20}}}
    finding = said(changed(fleet, head={"quotas": {"ok": half}}), "storage_quotas", "head")
    assert (finding.cause, finding.measured) == ("quotas", "red may have 0 GiB in /data")


def test_a_node_with_the_role_storage_is_asked_for_its_other_daemons(fleet: Gathered) -> None:
    """Check `services` knows the role; whether NFS runs is said by `storage-exports`."""
    head = CLUSTER.nodes[0].model_copy(update={"roles": ("controller", "storage")})
    cluster = CLUSTER.model_copy(update={"nodes": (head, *CLUSTER.nodes[1:])})
    text = "\n".join(f"Id={unit}.service\nLoadState=loaded\nActiveState=active\n" for unit in ("munge", "slurmctld"))
    told = changed(fleet, head={"services": {"ok": {"status": 0, "stdout": text, "stderr": ""}}})
    finding = services_check(dataclasses.replace(told, cluster=cluster).subject("head"))
    assert finding.outcome is Outcome.PASS
