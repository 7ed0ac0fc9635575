"""The node stage's verdicts, on a recording of the rehearsal lab with one thing changed at a time."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inventory.model import Gpu
from validation.checks import (
    gpu,
    gpu_container,
    gpu_load,
    gpu_numa,
    node_disk,
    node_fabric,
    node_identity,
    node_network,
    node_reach,
    node_services,
    node_storage,
    node_system,
    registry,
)
from validation.checks.node import Clock, Finding, Gathered, ProbeError, Subject, odd_one_out, process_limit
from validation.model import Outcome
from validation.node_file import load
from validation.registry import CHECKS

RECORDINGS = Path(__file__).parents[1] / "recordings" / "node"
MODULES = (
    node_reach,
    node_network,
    node_system,
    node_disk,
    node_services,
    node_storage,
    node_identity,
    gpu,
    gpu_container,
    gpu_load,
    gpu_numa,
    node_fabric,
    registry,
)


@pytest.fixture
def healthy() -> Gathered:
    return load(RECORDINGS / "healthy.json")


def function_of(check: str) -> Callable[[Subject], Finding]:
    name = check.replace("-", "_")
    found: Callable[[Subject], Finding] = next(getattr(m, name) for m in MODULES if hasattr(m, name))
    return found


def changed(gathered: Gathered, name: str, question: str, value: Any) -> Gathered:
    """The same fleet with another answer of one node."""
    probes: dict[str, Any] = copy.deepcopy(dict(gathered.probes))
    probes[name][question] = value
    return dataclasses.replace(gathered, probes=probes)


def ok(gathered: Gathered, question: str, name: str = "n3") -> Any:
    return copy.deepcopy(gathered.probes[name][question]["ok"])


def finding(gathered: Gathered, check: str, name: str = "n3") -> Finding:
    return function_of(check)(gathered.subject(name))


@pytest.mark.parametrize("check", [check.name for check in CHECKS if check.stage == "node"])
def test_every_registered_check_passes_on_a_healthy_fleet(healthy: Gathered, check: str) -> None:
    """Each check of the registry exists, and on the recording it passes or does not apply, on every node."""
    for name in healthy.probes:
        assert finding(healthy, check, name).outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE), name


def test_the_node_stage_has_a_test_for_every_registered_check() -> None:
    """validation/node/ runs exactly what the registry lists."""
    folder = Path(node_reach.__file__).parents[1] / "node"
    marked = {
        line.split('"')[1]
        for file in folder.glob("test_*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("@pytest.mark.check(")
    }
    assert marked == {check.name for check in CHECKS if check.stage == "node"}


def shm(size: int = 2**33, mode: int = 0o1777) -> dict[str, Any]:
    return {"mode": mode, "total_bytes": size, "free_bytes": size, "files": 100, "files_free": 100, "read_only": False}


def second_address(answered: dict[str, Any], address: str) -> dict[str, Any]:
    rows = json.loads(answered["stdout"])
    rows[-1]["addr_info"].append({"local": address})
    return {**answered, "stdout": json.dumps(rows)}


def low_size(limits: str) -> str:
    return limits.replace("Max file size             unlimited", "Max file size             1048576  ")


def full(**values: Any) -> dict[str, Any]:
    whole = {"total_bytes": 2**38, "free_bytes": 2**37, "files": 10**6, "files_free": 10**5, "read_only": False}
    return {**whole, **values}


FAULTS: list[tuple[str, str, Callable[[Any], Any], str, str]] = [
    # check, question, change of the answer, cause, words in `measured`
    ("host-name", "system", lambda a: {**a, "hostname": "localhost"}, "host-name", "localhost"),
    ("name-resolution", "names", lambda a: {**a, "n3": ["10.77.0.13", "127.0.1.1"]}, "name-resolution", "127.0.1.1"),
    ("name-resolution", "names", lambda a: {**a, "n1": ["10.77.0.99"]}, "name-resolution", "n1 gives 10.77.0.99"),
    ("name-resolution", "names", lambda a: {**a, "n1": ["10.77.0.99", "10.77.0.11"]}, "name-resolution", "10.77.0.99"),
    ("resolver", "resolver", lambda a: {**a, "servers": {"10.0.0.1": "error: timed out"}}, "dns", "10.0.0.1"),
    ("interface", "sources", lambda a: {**a, "n1": "172.17.0.1"}, "route", "to n1 from 172.17.0.1"),
    ("interface", "addresses", lambda a: second_address(a, "10.77.0.11"), "address-conflict", "which is n1's"),
    ("mtu", "interfaces", lambda a: {**a, "eth0": {**a["eth0"], "mtu": "9000"}}, "mtu", "9000"),
    (
        "link-speed",
        "interfaces",
        lambda a: {**a, "eth0": {**a["eth0"], "physical": True, "speed": "100"}},
        "link-speed",
        "0.1 Gb/s",
    ),
    ("hardware", "system", lambda a: {**a, "cpus": 1}, "processors", "1 processors"),
    ("hardware", "system", lambda a: {**a, "memory": {"MemTotal": 2**20}}, "memory", "1024 MiB"),
    ("disk-space", "filesystem:/tmp", lambda a: full(free_bytes=2**20), "disk-full", "0.0 GiB free"),
    ("disk-space", "filesystem:/var", lambda a: full(files_free=3), "inodes-full", "3 of 1000000 inodes"),
    ("disk-space", "filesystem:/", lambda a: full(read_only=True), "disk-read-only", "read-only"),
    ("disk-space", "local_disks", lambda a: {**a, "/scratch": full(free_bytes=0)}, "disk-full", "/scratch has 0.0"),
    ("disk-space", "local_disks", lambda a: {**a, "/data": full(read_only=True)}, "disk-read-only", "/data is read-"),
    ("disk-speed", "disk_speed", lambda a: {**a, "write_mb_s": 5.0}, "disk-slow", "writes 5 MB/s, peers"),
    ("storage-mounts", "mounts", lambda a: a.replace(" /shared ", " /elsewhere "), "mount", "a folder, not a mount"),
    ("limits", "limits", lambda a: {**a, "slurmd": low_files(a["slurmd"])}, "limits", "open files 256"),
    ("limits", "limits", lambda a: {**a, "slurmd": low_size(a["slurmd"])}, "limits", "file size 1048576"),
    ("shared-memory", "filesystem:/dev/shm", lambda a: shm(64 * 2**20), "shared-memory", "0.1 GiB"),
    ("shared-memory", "filesystem:/dev/shm", lambda a: shm(mode=0o700), "shared-memory", "mode 700"),
    ("storage-mounts", "filesystem:/shared", lambda a: full(read_only=True), "mount-options", "read-only here, and"),
    ("identity", "accounts", lambda a: {**a, "klaster": None}, "identity", "there is no account klaster"),
    ("versions", "versions", lambda a: {**a, "torch": "2.9.9"}, "consistency", "torch 2.9.9"),
    ("versions", "versions", lambda a: {**a, "torch": ""}, "torch-missing", "not installed"),
    ("identity", "accounts", lambda a: {**a, "slurm": [777, 777, "slurm"]}, "identity", "slurm has uid 777"),
    (
        "packages",
        "packages",
        lambda a: {**a, "stdout": "The following packages are only half configured:\n nvidia-kernel-dkms  driver\n"},
        "packages",
        "nvidia-kernel-dkms",
    ),
    (
        "services",
        "services",
        lambda a: {**a, "stdout": a["stdout"].replace("Id=slurmd.service\nLoadState=loaded\nActiveState=active",
                                                      "Id=slurmd.service\nLoadState=loaded\nActiveState=failed")},
        "slurmd-down",
        "slurmd.service is failed",
    ),
    ("munge", "munge", lambda a: {"status": 1, "stdout": "", "stderr": "Error: no socket"}, "munge", "no socket"),
    (
        "slurm-controller",
        "slurm_ping",
        lambda a: {**a, "stdout": "Slurmctld(primary) at head is DOWN\n"},
        "slurmctld-unreachable",
        "DOWN",
    ),
]  # fmt: skip


def low_files(text: str) -> str:
    return "\n".join(
        line if not line.startswith("Max open files") else "Max open files   256  256  files"
        for line in text.splitlines()
    )


@pytest.mark.parametrize(("check", "question", "change", "cause", "words"), FAULTS)
def test_a_fault_is_found_and_only_there(
    healthy: Gathered, check: str, question: str, change: Callable[[Any], Any], cause: str, words: str
) -> None:
    """A fault of n3 fails that check on n3, says what was measured and what to do, and leaves n1 alone."""
    sick = changed(healthy, "n3", question, {"ok": change(ok(healthy, question))})
    found = finding(sick, check)
    assert found.outcome is Outcome.FAIL
    assert found.cause == cause
    assert words in found.measured
    assert found.required
    assert found.origin
    assert found.remedy
    assert finding(sick, check, "n1").outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("check", "question"),
    [
        ("time-daemon", "time"),
        ("services", "services"),
        ("munge", "munge"),
        ("gpus", "gpu_smi"),
        ("packages", "packages"),
    ],
)
def test_a_missing_tool_is_never_a_verdict(healthy: Gathered, check: str, question: str) -> None:
    """A probe that could not ask raises, which becomes ERROR and blames the validator."""
    sick = changed(healthy, "n3", question, {"error": "not there: tool"})
    gpu = Gpu(model="NVIDIA GeForce RTX 3090")
    cluster = sick.cluster.model_copy(
        update={"nodes": tuple(n.model_copy(update={"gpus": (gpu,)}) for n in sick.cluster.nodes)}
    )
    with pytest.raises(ProbeError, match="not there"):
        finding(dataclasses.replace(sick, cluster=cluster), check)


def test_a_stopped_time_daemon_is_advice(healthy: Gathered) -> None:
    """chronyd that does not answer while the clock is right passes with advice."""
    answer = {"status": 1, "stdout": "", "stderr": "506 Cannot talk to daemon"}
    found = finding(changed(healthy, "n3", "time", {"ok": answer}), "time-daemon")
    assert found.outcome is Outcome.PASS
    assert "chrony" in found.advice


def test_a_skewed_clock_is_the_nodes_fault(healthy: Gathered) -> None:
    """One node ten minutes ahead fails."""
    sick = dataclasses.replace(healthy, clocks={**healthy.clocks, "n3": Clock(600.0, 0.01)})
    found = finding(sick, "clock-offset")
    assert (found.outcome, found.cause) == (Outcome.FAIL, "clock")
    assert finding(sick, "clock-offset", "n1").outcome is Outcome.PASS


def test_a_skewed_control_machine_blames_no_node(healthy: Gathered) -> None:
    """When all nodes agree with each other, the control machine's clock is wrong."""
    sick = dataclasses.replace(healthy, clocks=dict.fromkeys(healthy.probes, Clock(-600.0, 0.01)))
    assert finding(sick, "clock-offset").outcome is Outcome.INCONCLUSIVE


def test_a_slow_answer_does_not_skew_the_clock(healthy: Gathered) -> None:
    """An offset within what the round trip leaves open is no failure."""
    sick = dataclasses.replace(healthy, clocks={**healthy.clocks, "n3": Clock(1.5, 2.0)})
    assert finding(sick, "clock-offset").outcome is Outcome.PASS


def test_a_decoy_interface_is_advice(healthy: Gathered) -> None:
    """docker0 with an address passes, with the variables that pin the right interface."""
    rows = json.loads(ok(healthy, "addresses")["stdout"])
    rows.append({"ifname": "docker0", "addr_info": [{"local": "172.17.0.1"}]})
    sick = changed(healthy, "n3", "addresses", {"ok": {"status": 0, "stdout": json.dumps(rows), "stderr": ""}})
    found = finding(sick, "decoy-interfaces")
    assert found.outcome is Outcome.PASS
    assert "NCCL_SOCKET_IFNAME==eth0" in found.advice


def test_unknown_hardware_is_never_a_pass(healthy: Gathered) -> None:
    """A node without a lock entry is INCONCLUSIVE."""
    lock = healthy.lock.model_copy(update={"nodes": {}})
    assert finding(dataclasses.replace(healthy, lock=lock), "hardware").outcome is Outcome.INCONCLUSIVE


def test_two_versions_on_two_nodes_decide_nothing(healthy: Gathered) -> None:
    """Without a majority nobody is blamed."""
    two = dataclasses.replace(healthy, probes={name: healthy.probes[name] for name in ("n1", "n3")})
    sick = changed(two, "n3", "versions", {"ok": {**ok(healthy, "versions"), "torch": "2.9.9"}})
    assert finding(sick, "versions").outcome is Outcome.INCONCLUSIVE
    assert finding(sick, "versions", "n1").outcome is Outcome.INCONCLUSIVE


def test_another_kernel_is_advice(healthy: Gathered) -> None:
    """A node that waits for its reboot does not fail for it."""
    sick = changed(healthy, "n3", "system", {"ok": {**ok(healthy, "system"), "kernel": "6.1.0-old"}})
    found = finding(sick, "versions")
    assert found.outcome is Outcome.PASS
    assert "6.1.0-old" in found.advice


def test_apt_at_work_is_not_a_broken_node(healthy: Gathered) -> None:
    """dpkg says half-configured while another process installs: wait, don't blame."""
    said = "Another process has locked the database for writing, …\n python3-torch  tensors\n"
    sick = changed(healthy, "n3", "packages", {"ok": {"status": 0, "stdout": said, "stderr": ""}})
    assert finding(sick, "packages").outcome is Outcome.INCONCLUSIVE


def test_a_stale_mount_blames_the_storage(healthy: Gathered) -> None:
    """A mount that does not answer is its server's fault: a service, not the node."""
    found = finding(changed(healthy, "n3", "filesystem:/shared", {"error": "no answer in 4 s"}), "storage-mounts")
    assert (found.outcome, found.culprit_kind, found.culprit) == (Outcome.FAIL, "service", "storage /shared")


def test_a_stopped_munge_is_one_fault(healthy: Gathered) -> None:
    """Check services names it; the checks that need munge don't blame its key or the controller."""
    units = ok(healthy, "services")
    stopped = units["stdout"].replace(
        "Id=munge.service\nLoadState=loaded\nActiveState=active",
        "Id=munge.service\nLoadState=loaded\nActiveState=inactive",
    )
    assert stopped != units["stdout"]
    sick = changed(healthy, "n3", "services", {"ok": {**units, "stdout": stopped}})
    sick = changed(sick, "n3", "munge", {"ok": {"status": 1, "stdout": "", "stderr": "Error: no socket"}})
    assert finding(sick, "services").cause == "munge-down"
    for check in ("munge", "slurm-controller"):
        assert finding(sick, check).outcome is Outcome.INCONCLUSIVE


def test_munge_blames_the_odd_node(healthy: Gathered) -> None:
    """With another key on n3 only n3 fails, not the head that it was tried with."""
    bad = "unmunge: Error: Invalid credential"
    exchanges = {source: dict(targets) for source, targets in healthy.munge.items()}
    exchanges["n3"]["head"] = exchanges["head"]["n3"] = bad
    sick = dataclasses.replace(healthy, munge=exchanges)
    assert finding(sick, "munge").outcome is Outcome.FAIL
    for name in ("head", "n1", "n2"):
        assert finding(sick, "munge", name).outcome is Outcome.PASS


def test_munge_blames_an_odd_head(healthy: Gathered) -> None:
    """With another key on the head only the head fails."""
    bad = "unmunge: Error: Invalid credential"
    exchanges = {source: dict.fromkeys(targets, bad) for source, targets in healthy.munge.items()}
    sick = dataclasses.replace(healthy, munge=exchanges)
    assert finding(sick, "munge", "head").outcome is Outcome.FAIL
    assert finding(sick, "munge", "n3").outcome is Outcome.PASS


def test_a_dead_slurmctld_is_the_heads(healthy: Gathered) -> None:
    """Every node names the same service, so that it is one culprit."""
    services = ok(healthy, "services", "head")
    services["stdout"] = services["stdout"].replace(
        "Id=slurmctld.service\nLoadState=loaded\nActiveState=active",
        "Id=slurmctld.service\nLoadState=loaded\nActiveState=inactive",
    )
    sick = changed(healthy, "head", "services", {"ok": services})
    sick = changed(sick, "n3", "slurm_ping", {"ok": {"status": 1, "stdout": "head is DOWN", "stderr": ""}})
    found = finding(sick, "slurm-controller")
    assert (found.outcome, found.culprit) == (Outcome.FAIL, "slurmctld on head")


def test_a_card_that_reports_no_speed_is_undecided_and_a_rehearsals_has_none(healthy: Gathered) -> None:
    """A real card must say it; the virtual one of a user-mode kernel can't, and would keep its lab from passing."""
    interfaces = ok(healthy, "interfaces")
    interfaces["eth0"] = {**interfaces["eth0"], "physical": True, "speed": "-1"}
    silent = changed(healthy, "n3", "interfaces", {"ok": interfaces})
    assert finding(silent, "link-speed").outcome is Outcome.NOT_APPLICABLE
    real = dataclasses.replace(silent, cluster=silent.cluster.model_copy(update={"substrate": "hardware"}))
    assert finding(real, "link-speed").outcome is Outcome.INCONCLUSIVE


def test_a_stopped_munge_is_a_service_of_its_node(healthy: Gathered) -> None:
    """A daemon that takes connections and never answers is no fault of the validator."""
    sick = changed(healthy, "n3", "munge", {"error": "no answer in 5 s"})
    found = finding(sick, "munge")
    assert (found.outcome, found.cause, found.culprit_kind) == (Outcome.FAIL, "munge", "service")
    assert finding(sick, "slurm-controller").outcome is Outcome.INCONCLUSIVE


def test_a_stopped_slurmctld_is_the_heads(healthy: Gathered) -> None:
    """It runs, by systemd, and answers not even on its own machine."""
    sick = healthy
    for name in ("head", "n3"):
        sick = changed(sick, name, "slurm_ping", {"error": "no answer in 5 s"})
    found = finding(sick, "slurm-controller")
    assert (found.outcome, found.culprit) == (Outcome.FAIL, "slurmctld on head")


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({"a": "1", "b": "1", "c": "2"}, "c", "1"),
        ({"a": "1", "b": "1", "c": "2"}, "a", None),
        ({"a": "1", "b": "2"}, "a", ""),
        ({"a": "1"}, "a", None),
        ({"a": "1", "b": "1"}, "missing", None),
        ({"a": "1", "b": "1", "c": "2", "d": "2"}, "a", ""),
    ],
)
def test_the_odd_one_out(values: dict[str, str], name: str, expected: str | None) -> None:
    """A strict majority decides; without one nobody can tell; who agrees or is unknown is not odd."""
    assert odd_one_out(values, name) == expected


def test_limits_are_read_from_the_kernels_table(healthy: Gathered) -> None:
    """`unlimited` is infinite, numbers are numbers, a missing row is the validator's fault."""
    text = (
        "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   524288   files\nMax locked memory unlimited x b"
    )
    assert process_limit(text, "Max open files") == 1024
    assert process_limit(text, "Max locked memory") == float("inf")
    with pytest.raises(ProbeError):
        process_limit(text, "Max nonsense")
