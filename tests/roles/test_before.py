"""The record of what a node was, and the way back; and who may be taken out of a cluster."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from inventory.errors import InventoryError
from inventory.guard import check_run
from inventory.model import Partition, Slurm
from roles.facts.site import without
from roles.operations.before import give_back_script, recorded, remember
from tests.roles.sample import cluster


def _remember(folder: Path, *paths: str) -> Path:
    """Run the record's script with its folder below `folder`."""
    script = "\n".join(["set -e", *remember(paths)]).replace("/var/lib/klaster/before", f"{folder}/before")
    script = script.replace("/etc/klaster", f"{folder}/none")
    subprocess.run(["sh", "-c", script], check=True)
    return folder / "before"


def test_originals_are_kept_and_new_paths_written_down(tmp_path: Path) -> None:
    """An old file is copied, a missing one and the folders it will need are noted; a second time adds nothing."""
    old = tmp_path / "old"
    old.write_text("as found", encoding="utf-8")
    time.sleep(1.1)  # the record tells files apart by whole seconds
    new = tmp_path / "a" / "b" / "new"
    before = _remember(tmp_path, str(old), str(new), str(tmp_path))
    assert (before / f"files{old}").read_text(encoding="utf-8") == "as found"
    assert (before / "made").read_text(encoding="utf-8").splitlines() == [str(new)]
    assert (before / "parents").read_text(encoding="utf-8").splitlines() == [str(new.parent), str(new.parent.parent)]
    assert str(tmp_path) in (before / "modes").read_text(encoding="utf-8")
    old.write_text("changed by us", encoding="utf-8")
    _remember(tmp_path, str(old), str(new))
    assert (before / f"files{old}").read_text(encoding="utf-8") == "as found"
    assert (before / "made").read_text(encoding="utf-8").splitlines() == [str(new)]


def test_a_file_that_came_later_is_no_original(tmp_path: Path) -> None:
    """A configuration file that one of our packages brought goes with the package and is not put back."""
    before = _remember(tmp_path)
    os.utime(before / "started", (time.time() - 60,) * 2)
    conf = tmp_path / "chrony.conf"
    conf.write_text("the package's", encoding="utf-8")
    _remember(tmp_path, str(conf))
    assert (before / "made").read_text(encoding="utf-8").splitlines() == [str(conf)]
    assert not (before / f"files{conf}").exists()


def test_the_scripts_are_shell() -> None:
    """What runs on a node as root is at least a program that sh takes, also with odd names of folders."""
    scripts = [give_back_script(()), give_back_script(("/var/ba ck",)), recorded("true")]
    for script in (*scripts, "\n".join(remember(("/etc/it's",)))):
        assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(("keep", "status"), [((), 0), (("/var/backups/x",), 0), (("/etc/made",), 1)])
def test_only_what_is_to_be_kept_is_kept(keep: tuple[str, ...], status: int) -> None:
    """Without anything to keep every made path goes; a kept folder keeps what is in it."""
    line = next(line for line in give_back_script(keep).splitlines() if line.startswith("ours()"))
    assert subprocess.run(["sh", "-c", f"{line}; ours /etc/made/file"], check=False).returncode == status


def test_a_cluster_without_a_node() -> None:
    """The node is in no list any more, a partition of it alone is gone, and the others stay as they were."""
    parts = (
        Partition(name="all", default=True),
        Partition(name="one", nodes=("n1",)),
        Partition(name="two", nodes=("n1", "n2")),
    )
    left = without(cluster(slurm=Slurm(partitions=parts)), "n1")
    assert [node.name for node in left.nodes] == ["head", "n2"]
    assert [(p.name, p.nodes) for p in left.slurm.partitions] == [("all", ()), ("two", ("n2",))]


@pytest.mark.parametrize(
    ("data", "deploy", "said"),
    [
        ([], "deploys/remove.py", "which node leaves"),
        (["remove=n9"], "deploys/remove.py", 'no node "n9"'),
        (["remove=head"], "deploys/remove.py", "is the controller"),
        (["remove=n1"], "deploys/site.py", "is for deploys/remove.py"),
    ],
)
def test_a_wrong_removal_contacts_nobody(data: list[str], deploy: str, said: str) -> None:
    """The node must be named, known, not the controller, and only with the deploy that removes."""
    with pytest.raises(InventoryError, match=said):
        check_run({"inventory": "inventory/lab.py", "data": data, "operations": [deploy]})
