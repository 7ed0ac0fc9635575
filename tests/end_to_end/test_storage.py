"""Shared folders between nodes with kernels of their own: mounts, strangers, quotas, memory, a dead server, reboots.

The tests go on from one another, in their order. They take about an hour: such a kernel starts a program in 20 ms.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.certify import validate
from tests.end_to_end.deploys import deploy
from tests.lab.handle import ROOT, Lab
from tests.lab.trial import slot

pytestmark = pytest.mark.full
OPTIONS = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]


class Uml:
    """The lab of inventory/lab_uml.py under another name, and the key of its people."""

    def __init__(self, folder: Path) -> None:
        self.key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        public = self.key.with_suffix(".pub").read_text(encoding="utf-8").strip()
        text = (ROOT / "inventory" / "lab_uml.py").read_text(encoding="utf-8")
        text = text.replace("/var/lib/klaster-lab", str(folder / "state")).replace("10.77.0.", slot().start)
        text = text.replace("User(", f"User(ssh_keys=({public!r},), ")
        (folder / "uml_lab.py").write_text(text, encoding="utf-8")
        self.lab = Lab(str(folder / "uml_lab.py"), slot().name)

    def on(self, node: str, command: str, *, timeout_s: float = 120, check: bool = True) -> str:
        return self.lab.ssh(node, command, timeout_s=timeout_s, check=check).stdout.strip()

    def log_in(self, name: str, node: str, command: str = "id -u") -> str:
        """What a person's command prints on a node; an empty text if they do not get in."""
        argv = ["ssh", *OPTIONS, "-i", str(self.key), f"{name}@{self.lab.cluster.node(node).address}", command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL)
        return done.stdout.strip()

    def wait(self, node: str, command: str, timeout_s: float = 300) -> None:
        """Until a command succeeds on a node."""
        deadline = time.monotonic() + timeout_s
        while self.lab.ssh(node, command, timeout_s=60, check=False).returncode:
            assert time.monotonic() < deadline, f"{node}: {command} fails for {timeout_s:g} s"
            time.sleep(2)

    def in_service(self) -> None:
        idle = "sinfo -hN -t idle -o %N | sort -u | wc -l"  # a line a node and partition
        self.wait("head", f"scontrol update nodename=n1,n2 state=resume; sleep 2; [ $({idle}) = 2 ]")


@pytest.fixture(scope="module")
def uml(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uml]:
    """A head that serves /home and /data to two nodes, from the warm image; deployed."""
    found = Uml(tmp_path_factory.mktemp("uml"))
    try:
        found.lab.lab("up", found.lab.inventory, timeout_s=1800)
        deploy(found.lab)
        yield found
    finally:
        found.lab.lab("down")


def test_a_second_deploy_changes_nothing(uml: Uml) -> None:
    """Everything is as it should be after one run."""
    assert deploy(uml.lab).changed == 0


def test_a_person_works_on_two_nodes(uml: Uml) -> None:
    """A log-in on each, adopted into the job; written on one and read on the other; refused without a job."""
    uml.in_service()
    assert uml.log_in("alex", "head") == "10002"
    assert uml.log_in("alex", "n1") == "", "nobody without a job"
    job = "cd /data/blue; sbatch --parsable -N2 -o /dev/null --wrap 'sleep 120'"
    number = uml.log_in("alex", "head", job)
    uml.wait("head", f"squeue -h -j {number} -t running | grep -q .")
    inside = uml.log_in("alex", "n1", "umask 002; echo word > /data/blue/new; cat /proc/self/cgroup")
    assert f"job_{number}" in inside, "adopted into the job, not in a session of its own"
    assert uml.log_in("alex", "n2", "cat /data/blue/new") == "word"
    assert uml.on("head", "stat -c %G:%a /data/blue/new") == "blue:660"
    uml.on("head", f"scancel {number}")


def test_a_stranger_mounts_nothing(uml: Uml) -> None:
    """From an address that is no node's the mount is refused; the list of exports is not shown.

    Another minor version makes a connection of its own; else the kernel uses that of the mounted folder.
    """
    start, head = slot().start, uml.lab.cluster.node("head").address
    uml.on("n1", f"ip addr add {start}99/24 dev vec0; ip route replace {head} dev vec0 src {start}99")
    try:
        refused = uml.lab.ssh(
            "n1", f"mkdir -p /mnt/x; timeout 60 mount -t nfs4 -o vers=4.1 {head}:/data /mnt/x", check=False
        )
        shown = uml.lab.ssh("n1", f"timeout 20 showmount -e {head}", check=False)
    finally:
        uml.on("n1", f"ip route del {head} dev vec0; ip addr del {start}99/24 dev vec0")
    assert refused.returncode not in (0, 124)
    assert "/data" not in shown.stdout


def test_quotas_hold_over_the_network(uml: Uml) -> None:
    """A person's file beyond their quota is refused by the server, on a client."""
    big = "cd /data/blue && fallocate -l 1100M big"  # not even root may enter, over the network
    done = uml.lab.ssh("n1", f"runuser -u alex -- sh -c '{big}'", check=False)
    assert "quota" in done.stderr.lower()
    uml.on("head", "rm -f /data/blue/big")


def test_a_job_that_takes_too_much_memory_is_killed(uml: Uml) -> None:
    """The kernel ends it at its limit and Slurm says so."""
    hog = 'python3 -c "x = bytearray(400 << 20)"'
    number = uml.log_in("alex", "head", f"sbatch --parsable -D /tmp -o /dev/null --mem=100 --wrap '{hog}'")
    uml.wait("head", f"sacct -nXj {number} -o State%20 | grep -q OUT_OF_ME")


def test_a_dead_server_is_named_and_nobody_is_drained(uml: Uml, tmp_path: Path) -> None:
    """F23: the validator ends, says NFS on head, and drains no node; a minute later all goes on."""
    uml.on("head", "systemctl stop nfs-server")
    try:
        found = validate(uml.lab, tmp_path, "--only", "node")
    finally:
        uml.on("head", "systemctl start nfs-server")
    assert ("service", "NFS on head", "nfs-down") in found.culprits
    assert not [culprit for culprit in found.certificate["culprits"] if culprit.get("node")]
    uml.wait("n1", "timeout 20 runuser -u klaster -- ls /data /home")


@pytest.mark.parametrize("order", [("n1", "n2"), ("head",), ("n2", "head", "n1")], ids="-".join)
def test_nodes_come_back_without_hands(uml: Uml, order: tuple[str, ...]) -> None:
    """After a power cut in any order the folders are mounted, and slurmd started after them."""
    for node in order:
        uml.lab.lab("kill", node)
    uml.lab.lab("up", uml.lab.inventory, timeout_s=900)
    for node in ("n1", "n2"):
        uml.wait(
            node, "findmnt -t nfs4 /home && findmnt -t nfs4 /data && findmnt /scratch && systemctl is-active slurmd"
        )
        stamps = uml.on(
            node, "systemctl show -p ActiveEnterTimestampMonotonic --value klaster-storage; "
            "systemctl show -p ExecMainStartTimestampMonotonic --value slurmd"
        ).split()  # fmt: skip
        assert int(stamps[0]) <= int(stamps[1])
    uml.in_service()
