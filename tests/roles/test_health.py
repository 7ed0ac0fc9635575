"""The light health check: what a node is asked, that it is wrong twice before a drain, and the policy's limits."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory import drain_policy
from inventory.model import External, Slurm
from roles import health, slurm
from roles.operations.template import render
from tests.roles.sample import cluster, found, gpu, lock

PROGRAMS = Path(__file__).resolve().parents[2] / "files" / "health"
CONFIG = {
    "node": "n1", "disks": ["/"], "storage": [], "links": [], "cpus": os.cpu_count(), "memory_mib": 1, "gpus": 0,
    "venv": "", "drain_share": 0.5,
}  # fmt: skip


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """health.py as a node has it: the policy and the checks beside it."""
    monkeypatch.setitem(sys.modules, "drain_policy", drain_policy)
    monkeypatch.syspath_prepend(str(PROGRAMS))
    for name in ("health", "health_checks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("health")
    monkeypatch.setattr(module, "RESULT", str(tmp_path / "health.json"))
    monkeypatch.setattr(module, "CONFIG", str(tmp_path / "config.json"))
    monkeypatch.setattr(module, "RETEST_AFTER_S", 0.0)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    yield module
    for name in ("health", "health_checks"):
        sys.modules.pop(name, None)


@pytest.fixture
def checks(program: ModuleType) -> ModuleType:
    """health_checks.py, the same one that `program` uses."""
    return sys.modules["health_checks"]


class Controller:
    """Answers scontrol, and notes what it was told."""

    def __init__(self, module: ModuleType, nodes: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes, self.told, self.module = nodes, [], module  # type: ignore[var-annotated]
        monkeypatch.setattr(module, "command", self.command)

    def command(self, *words: str, timeout_s: float = 1.0) -> str:
        if words[:3] == ("scontrol", "-o", "show"):
            return "".join(f"NodeName={name} State={state}\n" for name, state in self.nodes.items())
        if words[0] == "scontrol":
            self.told.append(" ".join(words[3:]))
            if "State=DRAIN" in words:
                self.nodes["n1"] = f"IDLE+DRAIN {words[-1]} [root@now]"
            return ""
        raise self.module.Unknown(f"{words[0]}: not in a test")


def test_a_node_is_asked_what_was_declared_and_locked() -> None:
    """Storage, links, hardware and share come from the inventory and the lock; simulated cards are no cards."""
    some = cluster(storage=(External(path="/data", fstype="nfs4"),), slurm=Slurm(drain_share=0.25))
    cards = (gpu(0), gpu(1).model_copy(update={"uuid": "SIMULATED-GPU-1"}))
    asked = health.questions(some, some.node("n1"), lock(n1=found(gpus=cards)))
    assert asked["storage"] == [{"path": "/data", "fstype": "nfs4"}]
    assert asked["links"] == [{"address": "10.0.0.2", "speed_gbps": 1, "mtu": 1500}]
    assert (asked["cpus"], asked["memory_mib"], asked["gpus"], asked["drain_share"]) == (8, 32000, 1, 0.25)


def test_it_restarts_nothing_and_brings_the_one_policy() -> None:
    """No file of it triggers anything, and the policy on the node is the validator's, byte for byte."""
    tree = health.plan(cluster(), cluster().node("n1"), lock(n1=found()))
    assert [file.triggers for file in tree.files] == [()] * 5
    policy = next(file for file in tree.files if file.path.endswith("drain_policy.py"))
    assert policy.content == Path(drain_policy.__file__).read_text()
    assert "from inventory" not in policy.content
    assert f"{health.FOLDER}/check" == slurm.HEALTH_CHECK


def test_slurm_starts_it_unless_it_is_switched_off() -> None:
    """slurm.conf names it three times; a job that finds its node unhealthy is not held."""
    named, off = (
        next(f.content for f in slurm.controller_plan(some, lock(n1=found())).files if f.path.endswith("slurm.conf"))
        for some in (cluster(), cluster(slurm=Slurm(health=False)))
    )
    for key in ("HealthCheckProgram", "Prolog", "Epilog"):
        assert f"{key}={slurm.HEALTH_CHECK}\n" in named
    assert "nohold_on_prolog_fail" in named
    assert slurm.HEALTH_CHECK not in off


@pytest.mark.parametrize(
    ("status", "context", "expected"),
    [(10, "prolog_slurmd", 1), (10, "epilog_slurmd", 0), (10, "", 0), (0, "prolog_slurmd", 0), (1, "prolog_slurmd", 0)],
)
def test_only_a_drained_node_keeps_a_job_out(tmp_path: Path, status: int, context: str, expected: int) -> None:
    """Slurm drains for any other status, with a reason of its own: a broken program must not look unhealthy."""
    (tmp_path / "health.py").write_text(f"import sys\nsys.exit({status})\n")
    script = tmp_path / "check"
    script.write_text(render("health", "check", {"folder": str(tmp_path), "account": "klaster"}))
    environment = {"PATH": os.environ["PATH"]} | ({"SLURM_SCRIPT_CONTEXT": context} if context else {})
    assert subprocess.run(["/bin/sh", str(script)], env=environment, check=False).returncode == expected
    certifies = environment | {"SLURM_JOB_USER": "klaster"}
    assert subprocess.run(["/bin/sh", str(script)], env=certifies, check=False).returncode == 0
    (tmp_path / "health.py").unlink()
    assert subprocess.run(["/bin/sh", str(script)], env=environment, stderr=-3, check=False).returncode == 0


def test_wrong_twice_is_wrong(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen once, breaks, or does not end in time is unknown; only the same twice is a finding."""
    turns = iter([("disk-full", "full"), None])
    monkeypatch.setattr(program, "DEADLINE_S", 0.2)
    monkeypatch.setattr(program, "CHECKS", {
        "lasting": lambda config: ("cause", "seen"),
        "passing": lambda config: next(turns),
        "broken": lambda config: 1 / 0,
        "hanging": lambda config: time.sleep(3),
        "fine": lambda config: None,
    })  # fmt: skip
    answers = program.examine(CONFIG)
    assert answers["lasting"] == {"cause": "cause", "seen": "seen"}
    assert answers["passing"] == {"unknown": "not seen again: full"}
    assert answers["broken"] == {"unknown": "division by zero"}
    assert answers["hanging"] == {"unknown": "no end within 0.2 s"}
    assert answers["fine"] == {"fine": True}


def run(program: ModuleType, monkeypatch: pytest.MonkeyPatch, nodes: dict[str, str], **checks: object) -> Controller:
    monkeypatch.setattr(program, "CHECKS", {"disk-space": lambda config: ("disk-full", "/ is full"), **checks})
    return Controller(program, nodes, monkeypatch)


def test_an_unhealthy_node_drains_itself(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names check, cause and what started the check; the status says so to the prolog."""
    controller = run(program, monkeypatch, {"n1": "IDLE", "n2": "MIXED", "n3": "IDLE"})
    assert program.main(["prolog_slurmd"]) == program.DRAINED
    assert controller.told == ["State=DRAIN Reason=klaster:disk-space:disk-full run=prolog"]
    assert json.loads(Path(program.RESULT).read_text())["did"].startswith("drained: klaster:disk-space:disk-full")


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({"n1": "IDLE+DRAIN Reason=fan is loud [kim@now]", "n2": "IDLE"}, "drained already (fan is loud)"),
        ({"n1": "IDLE", "n2": "DOWN*", "n3": "IDLE+DRAIN"}, "2 of 3 nodes are out of service already"),
        ({"n1": "IDLE", "n2": "DOWN"}, "1 of 2 nodes are out of service already"),
        (
            {"n1": "IDLE", "n2": "IDLE+DRAIN Reason=klaster:disk-space:disk-full run=health [root@x]", "n3": "IDLE"},
            "more than half of the nodes have the same",
        ),
        ({"n2": "IDLE"}, "Slurm does not know this node"),
    ],
)
def test_the_policy_holds_back(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, nodes: dict[str, str], said: str
) -> None:
    """Somebody's drain, too many nodes out, or a cause that others have too: nothing is changed, and it is told."""
    controller = run(program, monkeypatch, nodes)
    assert program.main(["health"]) == 0
    assert controller.told == []
    assert said in json.loads(Path(program.RESULT).read_text())["did"]


def test_a_node_that_klaster_drained_takes_no_job(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own earlier reason stays as it is, and still keeps a job out."""
    controller = run(program, monkeypatch, {"n1": "IDLE+DRAIN Reason=klaster:a:b run=r [root@x]", "n2": "IDLE"})
    assert program.main(["prolog_slurmd"]) == program.DRAINED
    assert controller.told == []


def test_a_check_that_could_not_run_drains_nobody(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm is not even asked."""
    controller = run(program, monkeypatch, {"n1": "IDLE"}, **{"disk-space": lambda config: 1 / 0})
    assert program.main(["health"]) == 0
    assert controller.told == []


def test_nodes_that_drain_at_the_same_moment_take_it_back(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the share was used up meanwhile, this node's own drain of a moment ago is lifted again."""
    controller = run(program, monkeypatch, {"n1": "IDLE", "n2": "IDLE", "n3": "IDLE", "n4": "IDLE"})
    plain = controller.command

    def racing(*words: str, timeout_s: float = 1.0) -> str:
        if "State=DRAIN" in words:
            controller.nodes |= {"n2": "IDLE+DRAIN", "n3": "IDLE+DRAIN"}
        return plain(*words, timeout_s=timeout_s)

    monkeypatch.setattr(program, "command", racing)
    assert program.main(["health"]) == 0
    assert controller.told[-1] == "State=RESUME"


@given(nodes=st.integers(1, 600), out=st.integers(0, 600), share=st.floats(0.01, 1.0))
def test_no_more_than_the_share_is_ever_out(nodes: int, out: int, share: float) -> None:
    """However many fail, what may still be drained never goes beyond the share rounded up; one node always may."""
    more = drain_policy.room(nodes, out, share)
    assert more == 0 or out + more <= max(1, share * nodes + 1)
    assert drain_policy.room(nodes, 0, share) >= 1


# --- the checks themselves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({}, None),
        ({"f_bavail": 10}, "disk-full"),
        ({"f_favail": 3}, "inodes-full"),
        ({"f_flag": os.ST_RDONLY}, "disk-read-only"),
    ],
)
def test_disk_space(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, fields: dict[str, int], cause: str | None
) -> None:
    """Full, out of inodes and read-only are told apart, with the causes of validate-cluster."""
    stat = {
        "f_blocks": 10_000_000,
        "f_frsize": 4096,
        "f_bavail": 5_000_000,
        "f_flag": 0,
        "f_files": 1000,
        "f_favail": 900,
    }
    monkeypatch.setattr(checks.os, "statvfs", lambda path: SimpleNamespace(**{**stat, **fields}))
    problem = checks.disk_space(CONFIG)
    assert (problem and problem[0]) == cause


def test_mounts(checks: ModuleType) -> None:
    """A folder that is no mount, and a mount of another type, are this node's; a real one is fine."""
    fstype = next(line.split()[2] for line in Path("/proc/self/mounts").read_text().splitlines() if " /proc " in line)
    for storage, cause in (
        ({"path": "/proc", "fstype": fstype}, None),
        ({"path": "/proc", "fstype": "nfs4"}, "mount-type"),
        ({"path": "/nowhere", "fstype": None}, "mount"),
    ):
        problem = checks.storage_mounts({**CONFIG, "storage": [storage]})
        assert (problem and problem[0]) == cause


TRACKING = "0A4D000A,10.77.0.10,9,1793478.1,{offset},0.000001,0.00002,-10.1,0.001,0.02,0.0003,0.0002,64.2,{leap}\n"


@pytest.mark.parametrize(
    ("offset", "leap", "cause"),
    [("0.000123", "Normal", None), ("-600.01", "Normal", "clock"), ("900", "Not synchronised", "?")],
)
def test_clock(checks: ModuleType, monkeypatch: pytest.MonkeyPatch, offset: str, leap: str, cause: str | None) -> None:
    """More than a second from the source is wrong; without a source nobody can tell (recorded chronyc output)."""
    monkeypatch.setattr(checks, "command", lambda *words: TRACKING.format(offset=offset, leap=leap))
    if cause == "?":
        with pytest.raises(checks.Unknown):
            checks.clock(CONFIG)
        return
    problem = checks.clock(CONFIG)
    assert (problem and problem[0]) == cause


def test_versions(checks: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other software than was certified is named; without a certificate, or during an installation, nothing is said."""
    folder = tmp_path / "venv" / "lib" / "python3.13" / "site-packages"
    (folder / "torch-2.7.0+cu128.dist-info").mkdir(parents=True)
    (folder / "numpy-2.2.4.dist-info").mkdir()
    (tmp_path / "venv" / "bin").mkdir()
    (tmp_path / "venv" / "bin" / "python").touch()
    monkeypatch.setattr(checks, "command", lambda *words: "slurm-wlm 24.11.5\n")
    monkeypatch.setattr(checks, "CERTIFICATE", str(tmp_path / "certificate.json"))
    monkeypatch.setattr(checks, "installing", lambda: False)
    config = {**CONFIG, "venv": str(tmp_path / "venv")}
    assert checks.versions(config) is None
    now = {**checks.version_set(config["venv"]), "python": "3.13.5"}
    assert now["torch"] == "2.7.0+cu128"
    (tmp_path / "certificate.json").write_text(json.dumps({"versions": now}))
    assert checks.versions(config) is None
    (tmp_path / "certificate.json").write_text(json.dumps({"versions": {**now, "torch": "2.6.0"}}))
    assert checks.versions(config) == ("changed-since-certified", "torch 2.6.0 → 2.7.0+cu128")
    monkeypatch.setattr(checks, "installing", lambda: True)
    with pytest.raises(checks.Unknown):
        checks.versions(config)


def test_the_checks_have_the_names_of_the_validator(checks: ModuleType) -> None:
    """A drain reads the same, whoever found it."""
    from validation.registry import CHECKS

    assert set(checks.CHECKS) <= {check.name for check in CHECKS}
