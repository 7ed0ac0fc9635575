"""The containers role: ids, storage, GPUs."""

from __future__ import annotations

from inventory.gpu_stack import GpuStack
from inventory.model import Cluster, Containers, Gpu, Node, Team, User
from roles import containers
from tests.roles.sample import cluster, found


def some(**fields: object) -> Cluster:
    people = {
        "teams": (Team(name="red"),),
        "users": (User(name="alex", uid=10_000, teams=("red",)), User(name="kim", uid=10_007, teams=("red",))),
    }
    return cluster(containers=Containers(**fields), **people)


def content(cluster_: Cluster, node: Node, path: str) -> str:
    tree = containers.plan(cluster_, node, found(), (("root:1:2", "alex:1:1"), ()))
    return next(file.content for file in tree.files if file.path == path)


def test_ids_follow_from_the_inventory() -> None:
    """Each person's range is the same on every node and overlaps no other; local accounts keep theirs."""
    text = content(some(), some().node("n1"), "/etc/subuid")
    assert text == "root:1:2\nalex:100000:65536\nkim:558752:65536\n"


def test_ids_do_not_change_again() -> None:
    """The file that was written gives the same file."""
    once = containers.subordinate_ids(some(), ())
    assert containers.subordinate_ids(some(), once.splitlines()) == once


def test_storage_is_a_folder_for_everybody() -> None:
    """A person's images lie below the declared folder, which is open like /tmp."""
    tree = containers.plan(some(storage="/scratch/c"), some().node("n1"), found())
    assert ("/scratch/c", "1777") in [(one.path, one.mode) for one in tree.directories]
    assert '"/scratch/c/$UID/storage"' in content(
        some(storage="/scratch/c"), some().node("n1"), "/etc/containers/storage.conf"
    )


def test_cdi_is_there_with_cards_and_toolkit_only() -> None:
    """The description of GPUs is made where NVIDIA's toolkit is: not on Debian's own set, not without cards."""
    nodes = (
        Node(name="head", address="10.0.0.1", roles=("controller",)),
        Node(name="n2", address="10.0.0.3", gpus=(Gpu(model="NVIDIA A10G"),)),
    )
    own = cluster(nodes=nodes, containers=Containers(), gpu_stack=GpuStack(versions="debian-550"))
    stack = GpuStack(versions="nvidia-580", repository_url="https://packages.example", repository_key="/root/k")
    theirs = cluster(nodes=nodes, containers=Containers(), gpu_stack=stack)
    assert [containers.has_cdi(one, one.node("n2")) for one in (own, theirs)] == [False, True]
    assert not containers.has_cdi(theirs, theirs.node("head"))
    unit = "/etc/systemd/system/klaster-cdi.path"
    assert "PathChanged=/usr/bin/nvidia-smi" in content(theirs, theirs.node("n2"), unit)


def test_docker_is_a_choice() -> None:
    """Docker is installed and set up only where it is asked for, with the cgroup driver that survives a reload."""
    assert "docker.io" not in containers.wanted_packages(some())
    assert "docker.io" in containers.wanted_packages(some(docker=True))
    daemon = content(some(docker=True), some().node("n1"), "/etc/docker/daemon.json")
    assert "native.cgroupdriver=cgroupfs" in daemon


def test_slurms_runtime_is_configured_where_slurm_is() -> None:
    """oci.conf lies on the controller; nodes fetch it from there."""
    paths = {
        name: {file.path for file in containers.plan(some(), some().node(name), found()).files}
        for name in ("head", "n1")
    }
    assert "/etc/slurm/oci.conf" in paths["head"]
    assert "/etc/slurm/oci.conf" not in paths["n1"]
