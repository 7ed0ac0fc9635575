"""The controller's own validator: its snapshot, its inventory, its key, and which nodes it takes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from inventory.loading import load_cluster
from inventory.model import Monitoring, Nightly, Ssh
from roles import nightly
from tests.roles.sample import cluster, found, lock

PROGRAM = Path(__file__).resolve().parents[2] / "files" / "nightly" / "nightly.py"


@pytest.fixture
def program() -> ModuleType:
    """The program that the timer starts."""
    spec = importlib.util.spec_from_file_location("nightly_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_snapshots_inventory_is_the_cluster_seen_from_the_controller(tmp_path: Path) -> None:
    """It loads, has the same nodes, and logs in as the deploy account with a key of its own."""
    some = cluster(ssh=Ssh(user="me", key="~/.ssh/mine"), monitoring=Monitoring())
    tree = nightly.head_plan(some, Nightly(at="02:15"), lock(n1=found()), "KEY", ("SECRET", "PUBLIC"))
    file = next(file for file in tree.files if file.path == nightly.inventory_path(some))
    path = tmp_path / "cluster_c.py"
    path.write_text(file.content, encoding="utf-8")
    loaded = load_cluster(str(path))
    assert loaded.nodes == some.nodes
    assert (loaded.ssh.user, loaded.ssh.key) == ("klaster", nightly.KEY)
    assert any("OnCalendar=*-*-* 02:15:00" in file.content for file in tree.files)


def test_the_snapshot_is_complete_and_has_no_tests() -> None:
    """Every module of inventory and validation and the report's templates are in it, and nothing else."""
    paths = {str(file.path) for file in nightly.snapshot(nightly.FILES.parent)}
    for name in ("inventory/model.py", "validation/cli.py", "validation/node/pytest.ini", "files/report/report.css"):
        assert f"{nightly.SNAPSHOT}/{name}" in paths
    assert not any("/tests/" in path or "/roles/" in path or "__pycache__" in path for path in paths)


def test_the_key_opens_only_from_the_controller() -> None:
    """The public line names the controller's address and allows commands only; the private key is the account's."""
    some = cluster(monitoring=Monitoring())
    line = nightly.node_plan(some, "ssh-ed25519 AAAA klaster-nightly").files[0]
    assert line.content == 'restrict,from="10.0.0.1" ssh-ed25519 AAAA klaster-nightly\n'
    files = {file.path: file for file in nightly.head_plan(some, Nightly(), lock(), "KEY", ("SECRET", "PUBLIC")).files}
    assert (files[nightly.KEY].mode, files[nightly.KEY].owner) == ("600", "klaster")
    secrets = files[nightly.inventory_path(some).replace(".py", ".secrets.json")]
    assert (secrets.mode, secrets.owner, secrets.content) == ("600", "klaster", '{"signing_key": "SECRET"}\n')


IDLE, BUSY = "NodeName=n1 State=IDLE Partitions=all", "NodeName=n2 State=MIXED Partitions=all"
OURS = "NodeName=n3 State=IDLE+DRAIN Reason=klaster:quarantine:uncertified run=none [root@x]"
THEIRS = "NodeName=n4 State=IDLE+DRAIN Reason=fan broken [kim@x]"
SILENT = "NodeName=n5 State=IDLE*+NOT_RESPONDING Partitions=all"


@pytest.mark.parametrize(
    ("lines", "idle", "whole"),
    [
        ([IDLE], ["n1"], True),
        ([IDLE, OURS], ["n1"], True),
        ([IDLE, BUSY], ["n1"], False),
        ([BUSY], [], False),
        ([IDLE, THEIRS], ["n1"], False),
        ([IDLE, SILENT], ["n1"], False),
        ([IDLE.replace("IDLE", "IDLE+PLANNED"), IDLE.replace("n1", "n9")], ["n9"], False),
    ],
)
def test_only_idle_nodes_take_part(program: ModuleType, lines: list[str], idle: list[str], whole: bool) -> None:
    """A node with a job, a silent one and one that a person drained are left alone; klaster's own drains are not."""
    assert program.idle_nodes("\n".join(lines)) == (idle, whole)


def test_what_the_validator_is_asked(program: ModuleType) -> None:
    """The whole cluster if nobody works, else the idle nodes by name; nothing if none is idle."""
    assert "--nodes" not in program.arguments("c.py", "quick", "r", ["n1"], True)
    assert program.arguments("c.py", "quick", "r", ["n1", "n3"], False)[-2:] == ["--nodes", "n1,n3"]
    assert program.arguments("c.py", "quick", "r", [], False) is None
