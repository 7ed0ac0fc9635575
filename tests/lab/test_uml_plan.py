"""Nodes with kernels of their own: their command line, their image, and what this machine needs for them."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from inventory.loading import load_cluster
from lab.apt import Mirrors
from lab.cli import main
from lab.image import bare
from lab.node import NodeFiles
from lab.plan import Plan, make_plan
from lab.uml import _prepare, image_of, kernel_words, network_batch
from lab.uml_image import ACCOUNTS, HOST_PACKAGES, WARM, recipe
from roles import accounting, base, identity, slurm, storage, training
from tests.lab.handle import ROOT

INVENTORY = str(ROOT / "inventory" / "lab_uml.py")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    cluster = load_cluster(INVENTORY)
    return make_plan(cluster.model_copy(update={"state_dir": str(tmp_path)}))


def test_a_kernel_gets_its_disks_and_plugs(plan: Plan, tmp_path: Path) -> None:
    """Root as a layer over the image, a blank and a prepared disk, one raw plug, and no folder in root's home."""
    files = NodeFiles(tmp_path, "n1")
    (files.folder / "own" / "etc").mkdir(parents=True)
    (files.folder / "own" / "etc" / "machine-id").write_text("ab12\n")
    words = kernel_words(plan.node("n1"), files, Path("/cache/warm.ext4"))
    assert f"ubda={files.folder}/root.cow,/cache/warm.ext4" in words
    assert f"ubdb={files.folder}/blank.img" in words
    assert files.kernel_argument in words
    assert next(word for word in words if word.startswith("vec0:")).startswith("vec0:transport=raw,ifname=eth0,")
    assert "systemd.machine_id=ab12" in words


def test_addresses_are_given_at_boot(plan: Plan) -> None:
    """Each plug has the address and MTU of the plan; the way out is the switch."""
    assert network_batch(plan, plan.node("n1")).splitlines() == [
        "addr replace 10.77.0.11/24 dev vec0",
        "link set vec0 mtu 1500 up",
        "route replace default via 10.77.0.1",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="furnishing a node gives files to root")
def test_a_node_takes_its_own_files_along(plan: Plan, tmp_path: Path) -> None:
    """Name, keys and sources are in its tar, private ones closed; ubdc has a file system, ubdb nothing."""
    files = NodeFiles(tmp_path, "n1")
    files.host_key.parent.mkdir(parents=True)
    for path in (tmp_path / "id_ed25519.pub", files.host_key, Path(f"{files.host_key}.pub")):
        path.write_text("key\n")
    _prepare(plan, plan.node("n1"), files, Mirrors("http://mirror/debian", None))
    with tarfile.open(files.folder / "own.tar") as archive:
        modes = {member.name: member.mode for member in archive.getmembers()}
    assert modes["etc/ssh/ssh_host_ed25519_key"] == 0o600
    assert modes["root/.ssh"] == 0o700
    assert {"etc/hostname", "etc/apt/sources.list", "etc/lab-network", "root/.ssh/authorized_keys"} <= set(modes)
    assert (files.folder / "blank.img").stat().st_blocks == 0
    with (files.folder / "prepared.img").open("rb") as disk:
        assert disk.read(0x43A)[0x438:] == b"\x53\xef", "ext4's magic number"


def test_a_node_stays_on_the_image_it_was_begun_on(plan: Plan, tmp_path: Path) -> None:
    """Its disk is a layer over that very file: another recipe of today must not be put below it."""
    assert image_of(plan, plan.node("n1")) is None
    begun = NodeFiles(tmp_path, "n1").folder / "ready"
    begun.parent.mkdir(parents=True)
    begun.write_text("/cache/old.ext4")
    assert image_of(plan, plan.node("n1")) == Path("/cache/old.ext4")


def test_the_warm_image_has_what_the_deploy_would_install() -> None:
    """Every package that a role wants for the user-mode lab is in the image, and accounts have the deploy's numbers."""
    cluster = load_cluster(INVENTORY)
    people = cluster.people
    assert people is not None
    wanted = {*base.PACKAGES, *accounting.PACKAGES, *training.DEBIAN, "munge", "libpam-slurm", "libpam-slurm-adopt"}
    for node in cluster.nodes:
        wanted |= {*slurm.wanted_packages(node), *storage.wanted_packages(cluster, node)}
        wanted |= {*identity.wanted_packages(people, node)}
    assert wanted - set(recipe().packages) - {"python3"} == set()
    numbers = {account.name: account.uid for account in base.ACCOUNTS}
    assert {name: int(uid) for name, uid in (pair.split(":") for pair in ACCOUNTS)}.items() <= numbers.items()


def test_images_have_their_own_identities() -> None:
    """Another list of packages is another image; the bare one is as before."""
    assert recipe().hash != bare().hash
    assert set(WARM).isdisjoint(bare().packages)


def test_this_machine_is_told_what_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`packages` names user-mode-linux for this kind of lab, and nothing for containers."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["packages", INVENTORY]) == 0
    assert capsys.readouterr().out.split() == list(HOST_PACKAGES)
    assert main(["packages", str(ROOT / "inventory" / "lab.py")]) == 0
    assert capsys.readouterr().out == ""
