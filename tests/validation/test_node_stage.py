"""The node stage as a whole: pytest over a recording gives records, and tests that people add take part."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.lab.handle import Lab
from validation import node_stage
from validation.checks.node import Finding, Gathered, ProbeError
from validation.model import NodeCheckRecord, Outcome
from validation.node.plugin import connection, to_record
from validation.node_file import load
from validation.node_stage import NodeStageError, judge_nodes
from validation.registry import CHECKS

HEALTHY = Path(__file__).parents[1] / "recordings" / "node" / "healthy.json"


@pytest.fixture
def healthy() -> Gathered:
    return load(HEALTHY)


def run(gathered: Gathered, folder: Path, nodes: list[str]) -> list[NodeCheckRecord]:
    records: list[NodeCheckRecord] = []
    judge_nodes(gathered, nodes, folder, records.append)
    return records


def test_every_check_of_every_node_is_one_record(healthy: Gathered, tmp_path: Path) -> None:
    """The records are the registry's checks times the nodes asked for, none failed on a healthy recording."""
    records = run(healthy, tmp_path, ["n1", "n3"])
    checks = [check.name for check in CHECKS if check.stage == "node"]
    assert sorted((r.node, r.check) for r in records) == sorted((n, c) for n in ("n1", "n3") for c in checks)
    assert {r.outcome for r in records} == {Outcome.PASS, Outcome.NOT_APPLICABLE}


def test_an_unreachable_node_is_one_failure(healthy: Gathered, tmp_path: Path) -> None:
    """A node that can't be reached fails `reachable` and nothing else is claimed about it; the others go on."""
    probes = {name: probe for name, probe in healthy.probes.items() if name != "n3"}
    gathered = Gathered(healthy.cluster, healthy.lock, probes, unreachable={"n3": "no route to host"})
    records = run(gathered, tmp_path, ["n1", "n3"])
    assert [(r.check, r.outcome) for r in records if r.node == "n3"] == [
        ("reachable", Outcome.FAIL),
        ("probe", Outcome.NOT_APPLICABLE),
    ]
    assert sum(r.node == "n1" for r in records) == sum(check.stage == "node" for check in CHECKS)


def test_a_broken_probe_is_the_validators(healthy: Gathered, tmp_path: Path) -> None:
    """A node without python3 gives ERROR, not FAIL."""
    probes = {name: probe for name, probe in healthy.probes.items() if name != "n3"}
    gathered = Gathered(healthy.cluster, healthy.lock, probes, no_probe={"n3": "python3: not found"})
    records = run(gathered, tmp_path, ["n3"])
    assert [(r.check, r.outcome) for r in records] == [("reachable", Outcome.PASS), ("probe", Outcome.ERROR)]
    assert records[1].culprit_kind == "validator"
    assert "python3" in records[1].evidence


@pytest.fixture
def own_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of the folder of tests that a person may add to."""
    folder = tmp_path / "node"
    folder.mkdir()
    shutil.copy(node_stage.TESTS / "pytest.ini", folder)
    monkeypatch.setattr(node_stage, "TESTS", folder)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return folder


ADDED = """
import pytest

def test_scratch_is_fast(subject):
    assert subject.name != "n3", "3 MB/s"

def test_validator_breaks(subject):
    raise KeyError("oops")

def test_left_out(subject):
    pytest.skip("not today")
"""


def test_added_tests_become_records(healthy: Gathered, own_tests: Path, tmp_path: Path) -> None:
    """An assertion is a FAIL of the node, any other exception an ERROR of the validator, a skip never a pass."""
    (own_tests / "test_mine.py").write_text(ADDED, encoding="utf-8")
    found = {(r.node, r.check): r for r in run(healthy, tmp_path, ["n1", "n3"])}
    assert found["n1", "scratch-is-fast"].outcome is Outcome.PASS
    failed = found["n3", "scratch-is-fast"]
    assert (failed.outcome, failed.cause, failed.culprit_kind) == (Outcome.FAIL, "scratch-is-fast", "node")
    assert "3 MB/s" in failed.measured
    assert found["n1", "validator-breaks"].outcome is Outcome.ERROR
    assert "KeyError" in found["n1", "validator-breaks"].evidence
    assert found["n1", "left-out"].outcome is Outcome.SKIPPED


def test_a_test_file_that_does_not_import_is_told(healthy: Gathered, own_tests: Path, tmp_path: Path) -> None:
    """pytest's own failure is an error of the stage, with the line that says why."""
    (own_tests / "test_broken.py").write_text("import nosuchmodule\n", encoding="utf-8")
    with pytest.raises(NodeStageError, match="status 2"):
        run(healthy, tmp_path, ["n1"])


def test_records_keep_a_finding() -> None:
    """What a check found stands in the record, also when it failed the test."""
    finding = Finding(Outcome.FAIL, "1 s", "2 s", "a table", "clock", evidence="chronyc", remedy="start it")
    record = to_record("n1", "clock-offset", finding, AssertionError("x"), "failed")
    assert (record.outcome, record.measured, record.cause, record.remedy) == (Outcome.FAIL, "1 s", "clock", "start it")


def test_an_exception_wins_over_a_finding() -> None:
    """A check that broke after it had found something can't be believed."""
    record = to_record("n1", "x", Finding(Outcome.PASS), ProbeError("not there: munge"), "failed")
    assert record.outcome is Outcome.ERROR
    assert record.evidence == "not there: munge"


def test_testinfra_connects_as_the_inventory_says(healthy: Gathered) -> None:
    """User, address, key and known hosts of added tests come from the typed model."""
    found = connection(healthy, "n1")
    assert found["hostspec"] == "ssh://root@10.77.0.11:22"
    assert found["ssh_identity_file"].endswith("id_ed25519")
    assert "UserKnownHostsFile=" in found["ssh_extra_args"]


HOST = """
def test_shared_is_mounted(host):
    assert host.mount_point("/shared").exists
    assert host.check_output("hostname") in ("n1", "n2")
"""


@pytest.mark.lab
def test_added_tests_reach_the_node(lab: Lab, healthy: Gathered, own_tests: Path, tmp_path: Path) -> None:
    """testinfra's host of an added test is a connection to that very node."""
    (own_tests / "test_host.py").write_text(HOST, encoding="utf-8")
    records = run(healthy, tmp_path, ["n1", "n2"])
    assert [(r.node, r.check, r.outcome) for r in records] == [
        ("n1", "shared-is-mounted", Outcome.PASS),
        ("n2", "shared-is-mounted", Outcome.PASS),
    ]
