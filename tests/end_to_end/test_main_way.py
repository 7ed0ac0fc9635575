"""The main way in the rehearsal lab: deploy, certify, break, name the culprit, heal, certify again.

The tests of this file go on from one another, in their order; together they take some eight minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.certify import (
    VALIDATE,
    Certified,
    children_peak_mib,
    decide,
    going,
    left_behind,
    slurm_state,
    validate,
)
from tests.end_to_end.deploys import PYINFRA, deploy
from tests.lab.handle import ROOT, Lab, run

pytestmark = pytest.mark.lab
COMPUTE = ("n1", "n2", "n3")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def deployed(lab: Lab) -> Lab:
    """The lab after site.py, whatever was there before."""
    deploy(lab)
    return lab


@pytest.fixture(scope="module")
def first(deployed: Lab, out: Path) -> Certified:
    return decide(deployed, out)


def test_a_healthy_cluster_is_certified(deployed: Lab, first: Certified) -> None:
    """After the deploy all four nodes pass, the rehearsal is called one, and every node goes into service."""
    assert first.status == 0, first.said
    assert first.certificate["verdict"] == "PASS"
    assert first.certificate["substrate"] == "rehearsal"
    assert {name: node["verdict"] for name, node in first.certificate["nodes"].items()} == dict.fromkeys(
        ("head", *COMPUTE), "PASS"
    )
    assert not first.certificate["culprits"]
    assert all(slurm_state(deployed, name).startswith("idle") for name in COMPUTE)
    for file in ("results.jsonl", "certificate.json", "report.html", "metrics.prom", "logs"):
        assert (first.folder / file).exists()


def test_jobs_run_on_the_certified_cluster(deployed: Lab, first: Certified) -> None:
    """Slurm starts a job on all three nodes."""
    assert sorted(deployed.ssh("head", "srun -N3 hostname").stdout.split()) == list(COMPUTE)


def test_nothing_stays_on_the_nodes(deployed: Lab, first: Certified) -> None:
    """After a run no process and no file of it is left on any node, and the validator stayed small."""
    assert left_behind(deployed, first) == {}
    assert children_peak_mib() < 300


def test_judging_again_changes_nothing(first: Certified, tmp_path: Path) -> None:
    """--rejudge writes the same certificate, report and metrics byte by byte, wherever the folder lies."""
    copy = tmp_path / "copy"
    shutil.copytree(first.folder, copy)
    for name in ("certificate.json", "report.html", "metrics.prom"):
        (copy / name).unlink()
    assert run([VALIDATE, "--rejudge", str(copy)]).returncode == 0
    for name in ("certificate.json", "report.html", "metrics.prom"):
        assert (copy / name).read_bytes() == (first.folder / name).read_bytes(), name


def daemons(lab: Lab) -> dict[str, str]:
    """Node → main process of each daemon."""
    command = "systemctl show -p Id,MainPID munge slurmctld slurmd chrony ssh"
    return {node.name: lab.ssh(node.name, command).stdout for node in lab.cluster.nodes}


def test_a_second_deploy_changes_and_restarts_nothing(deployed: Lab, first: Certified) -> None:
    """site.py reports 0 changes, every daemon keeps its process, certified nodes stay in service."""
    before = daemons(deployed)
    assert deploy(deployed).changed == 0
    assert daemons(deployed) == before
    assert all(slurm_state(deployed, name).startswith("idle") for name in COMPUTE)


def test_outside_only_ssh_answers(deployed: Lab, first: Certified) -> None:
    """Of all 65,535 TCP ports of every node, a stranger to the cluster's networks reaches ssh and nothing else."""
    addresses = [str(node.address) for node in deployed.cluster.nodes]
    scan = deployed.lab("outside", "python3", "tests/end_to_end/port_scan.py", *addresses, timeout_s=600)
    assert sorted(scan.stdout.splitlines()) == sorted(f"{address} 22" for address in addresses)


@pytest.fixture
def healed(deployed: Lab) -> Iterator[Lab]:
    yield deployed
    deployed.lab("heal")


def test_a_slow_node_is_named_and_drained(healed: Lab, first: Certified, out: Path) -> None:
    """n3 behind a 50 Mb/s link: its network is the one culprit, and only n3 is drained, with that reason."""
    healed.lab("shape", "n3", "50")
    found = decide(healed, out)
    assert found.status == 1, found.said
    assert found.culprits == [("node", "n3", "network")], found.said
    state = slurm_state(healed, "n3")
    assert state.startswith("drained|klaster:bandwidth:network run="), state
    assert slurm_state(healed, "n1").startswith("idle")
    assert slurm_state(healed, "n2").startswith("idle")


def test_a_stopped_rank_is_named(healed: Lab, first: Certified, out: Path) -> None:
    """SIGSTOP of n3's rank in the middle of training: n3 hung; those that waited for it are not to blame."""
    with going(healed, out, "--only", "training") as job:
        job.wait_for("ddp on 1 node done")
        healed.ssh("n3", "pkill -STOP -f '[w]orker[.]py'")
        found = job.end()
    assert found.status == 1, found.said
    assert [(kind, subject) for kind, subject, _ in found.culprits] == [("node", "n3")], found.said
    assert found.culprits[0][2] == "hang"
    assert left_behind(healed, found) == {}
    assert slurm_state(healed, "n3").startswith("drained|klaster:rank:hang")


def test_a_dead_node_does_not_stop_the_others(healed: Lab, first: Certified, out: Path) -> None:
    """n3 without power: it is the culprit, within the connection's deadline, and the others are tested."""
    healed.lab("kill", "n3")
    try:
        found = validate(healed, out, "--only", "node")
    finally:
        healed.lab("up", healed.inventory)
    assert found.status == 1, found.said
    assert found.culprits == [("node", "n3", "unreachable")], found.said
    assert found.certificate["nodes"]["n1"]["verdict"] == "PASS"
    assert slurm_state(healed, "n3").partition("|")[2].startswith("klaster:reachable:unreachable")


def test_a_healed_node_returns_and_a_strangers_drain_stays(healed: Lab, first: Certified, out: Path) -> None:
    """A pass takes n3 back into service; n2, drained by somebody else, passes too and stays drained."""
    healed.ssh("head", 'scontrol update NodeName=n2 State=DRAIN Reason="fan is loud, alice"')
    try:
        found = decide(healed, out)
        assert found.status == 0, found.said
        assert slurm_state(healed, "n3").startswith("idle")
        assert slurm_state(healed, "n2") == "drained|fan is loud, alice"
    finally:
        healed.ssh("head", "scontrol update NodeName=n2 State=RESUME")


def test_a_cut_link_is_named_and_drains_nobody(healed: Lab, first: Certified, out: Path) -> None:
    """With nothing between n1 and n2 the link is the culprit, and all nodes stay in service."""
    healed.lab("cut", "n1", "n2")
    found = decide(healed, out)
    assert found.status == 1, found.said
    assert [(kind, cause) for kind, _, cause in found.culprits] == [("link", found.culprits[0][2])], found.said
    assert {"n1", "n2"} <= set(found.culprits[0][1].replace("–", " ").split())
    assert all(slurm_state(healed, name).startswith("idle") for name in COMPUTE)


def test_one_run_at_a_time_and_an_interrupted_one_leaves_nothing(healed: Lab, first: Certified, out: Path) -> None:
    """A second run is refused with the holder's name; Ctrl-C ends the first, keeps its results, frees the cluster."""
    with going(healed, out, "--launcher", "ssh", "--only", "pairs") as job:
        job.wait_for("round 2 of")
        second = subprocess.run(
            [VALIDATE, healed.inventory, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert second.returncode == 2
        assert "another run holds this cluster" in second.stderr
        job.process.send_signal(signal.SIGINT)
        found = job.end()
    assert found.status == 130
    assert found.certificate["verdict"] == "INCONCLUSIVE"
    assert (found.folder / "results.jsonl").read_text("utf-8").count('"kind":"cell"') > 0
    assert left_behind(healed, found) == {}
    assert validate(healed, out, "--only", "node").status == 2  # not refused: a partial run never certifies


BROKEN = {
    "an unknown role": ('roles=("controller",)', 'roles=("controler",)', "controler"),
    "a doubled address": ("10.77.0.12", "10.77.0.11", "10.77.0.11"),
    "a text where a number belongs": ("speed_gbps=1", 'speed_gbps="fast"', "fast"),
    "a name with a space": ('name="n1"', 'name="n 1"', "n 1"),
    "no controller": ('roles=("controller",)', 'roles=("compute",)', "controller"),
}


@pytest.mark.parametrize("mistake", BROKEN)
@pytest.mark.parametrize("program", ["pyinfra", "validate-cluster"])
def test_a_wrong_inventory_contacts_nobody(tmp_path: Path, mistake: str, program: str) -> None:
    """One line names the mistake, the exit status is not 0, under both programs, without a traceback."""
    right, wrong, named = BROKEN[mistake]
    text = (ROOT / "inventory" / "lab.py").read_text("utf-8")
    assert right in text
    file = tmp_path / "broken.py"
    file.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    words = [PYINFRA, str(file), "deploys/site.py", "-y"] if program == "pyinfra" else [VALIDATE, str(file)]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "NO_COLOR": "1"}
    )
    assert done.returncode == (3 if program == "validate-cluster" else 1)
    said = [line for line in (done.stdout + done.stderr).splitlines() if named in line]
    assert len(said) == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "Connected" not in done.stdout + done.stderr


def test_the_certificate_is_whole(first: Certified) -> None:
    """certificate.json on disk has what the issue of certificates promises, and is what --json printed."""
    on_disk = json.loads((first.folder / "certificate.json").read_text("utf-8"))
    assert on_disk == first.certificate
    promised = (
        "cluster verdict level issued_at expires_at inventory_sha256 hardware_sha256 results_sha256 coverage "
        "substrate nodes links culprits"
    )
    assert set(promised.split()) <= set(on_disk)
