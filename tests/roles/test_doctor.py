"""What deploys/doctor.py makes of a node's answers: each finding with its remedy, and none for a healthy node."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from inventory.model import External
from roles.facts.doctor import Doctor, Probe, parse_doctor
from roles.operations.doctor import Finding, examine, page
from tests.roles.sample import cluster

ANSWERS = """\
#os
debian 13
#arch
x86_64
#root
yes
#host
n1
n1.lan
#machine
aaaa
KEY
#apt
apt-get
#broken
nvidia-kernel-dkms
#sources
yes http://deb.example.org/debian/dists/trixie/InRelease
no http://gone.example.org/dists/x/InRelease
#proxy
#disk
/ 52000
/boot 120
#synchronised
yes
#addresses
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever
2: enp1s0    inet 10.0.0.2/24 brd 10.0.0.255 scope global dynamic enp1s0\\       valid_lft 3000sec
#wireless
/sys/class/net/wlp2s0/wireless
#accounts
munge:x:110:110::/nonexistent:/usr/sbin/nologin
#secure_boot
   1
#swap
/dev/sda2 partition 1 0 -2
#memory
MemTotal:       32000000 kB
#virt
none
#sleep
static
/sys/class/power_supply/BAT0
#firmware
03/14/2014
#cards
0x2204
#listening
0.0.0.0:22
[::]:6818
#degraded
x.service
#peers
head
#mounts
/data
""".splitlines()

HEALTHY = Probe(
    distribution="debian", release="13", architecture="x86_64", root=True, host_name="n1", machine_id="a",
    host_key="b", sources={"http://deb": True}, addresses={"10.0.0.2": "enp1s0"}, memory_mib=32000,
    virtualisation="none", free_mib={"/": 50000}, firmware_year=2025,
)  # fmt: skip


def _findings(probe: Probe, offset_s: float = 0.0, **changes: object) -> dict[str, Finding]:
    found = examine(cluster(**changes), {"n1": probe}, [], {"n1": offset_s}, 2026)
    return {finding.what: finding for finding in found}


def test_a_healthy_node_has_no_finding() -> None:
    """Nothing is made up."""
    assert _findings(HEALTHY) == {}
    assert page([], ["n1", "n2"]) == "Doctor: n[1-2]: nothing found"


def test_a_whole_answer_is_parsed() -> None:
    """Each section of a real answer lands in its field."""
    probe = parse_doctor(ANSWERS)
    assert (probe.distribution, probe.release, probe.root) == ("debian", "13", True)
    assert probe.sources == {
        "http://deb.example.org/debian/dists/trixie/InRelease": True,
        "http://gone.example.org/dists/x/InRelease": False,
    }
    assert probe.free_mib == {"/": 52000, "/boot": 120}
    assert (probe.addresses["10.0.0.2"], probe.leased) == ("enp1s0", {"10.0.0.2"})
    assert (probe.secure_boot, probe.battery, probe.firmware_year, probe.cards) == (True, True, 2014, 1)
    assert (probe.listening, probe.deaf, probe.missing_mounts) == ({22, 6818}, ["head"], ["/data"])
    assert parse_doctor([]) == Probe()


WORDS = [
    "apt-get is at work",
    "half-configured: nvidia-kernel-dkms",
    "package source does not answer: http://gone.example.org/dists/x/InRelease",
    "120 MiB free in /boot, 300 wanted",
    "10.0.0.2 comes from DHCP and may change",
    "munge has uid 110 and must have 902",
    "swap on /dev/sda2",
    "a laptop that may fall asleep",
    "firmware of 2014",
    "can't reach ssh of head",
    "port 6818 of slurmd is taken",
    "failed units: x.service",
    "/data is not mounted",
]


@pytest.mark.parametrize("what", WORDS)
def test_each_trouble_is_found_with_a_remedy(what: str) -> None:
    """Every trouble of the recorded answer is one finding, and each says what to do."""
    found = _findings(parse_doctor(ANSWERS), storage=(External(path="/data"),))
    assert what in found
    assert found[what].remedy


@pytest.mark.parametrize(
    ("change", "what", "weight"),
    [
        ({"root": False}, "root may not use sudo without a password", "stops"),
        ({"distribution": "fedora", "release": "41"}, "fedora 41 is not supported", "stops"),
        ({"release": "12"}, "debian 12 has a Slurm older than 23.11", "stops"),
        ({"host_name": "n1.lan"}, "its host name is the long n1.lan", "look"),
        ({"host_name": "other"}, "it calls itself other", "look"),
        ({"addresses": {"10.9.9.9": "e"}}, "10.0.0.2 is on none of its interfaces", "look"),
        ({"wireless": {"enp1s0"}}, "10.0.0.2 is on WLAN (enp1s0)", "look"),
        ({"free_mib": {"/": 100}}, "100 MiB free in /, 6000 wanted", "stops"),
        ({"accounts": {"alex": 901}}, "uid 901 of klaster belongs to alex", "stops"),
        ({"virtualisation": "kvm", "firmware_year": None}, "a virtual machine (kvm)", "look"),
        ({"sources": {}}, "no package source", "stops"),
        ({"memory_mib": 900}, "900 MiB of memory", "stops"),
    ],
)
def test_one_change_is_one_finding(change: dict[str, object], what: str, weight: str) -> None:
    """One thing wrong on an otherwise healthy node is one finding of the right weight."""
    found = _findings(replace(HEALTHY, **change))  # type: ignore[arg-type]
    assert set(found) == {what}
    assert found[what].weight == weight


def test_cards_are_counted_and_secure_boot_matters_with_them() -> None:
    """A node that declares two cards and shows one is told; Secure Boot counts where a driver is to be loaded."""
    probe = replace(HEALTHY, addresses={"10.0.0.3": "e"}, host_name="n2", cards=1, secure_boot=True)
    found = examine(cluster(), {"n2": probe}, [], {}, 2026)
    assert [f.what for f in found] == ["1 NVIDIA cards on the bus, 2 declared"]
    assert "Secure Boot" not in page(found, ["n2"])


def test_a_clock_that_is_off() -> None:
    """A second is worth a look, a minute stops: munge and certificates fail."""
    assert _findings(HEALTHY, 30.0)["clock 30 s ahead of this machine's"].weight == "look"
    assert _findings(HEALTHY, -300.0)["clock 300 s behind this machine's"].weight == "stops"
    assert _findings(HEALTHY, 0.4) == {}


def test_clones_and_double_addresses_are_found() -> None:
    """Two machines of one disk image share an id and a host key; two with one address are both named."""
    other = replace(HEALTHY, host_name="head", addresses={"10.0.0.1": "e", "10.0.0.2": "f"})
    text = page(examine(cluster(), {"n1": HEALTHY, "head": other}, [], {}, 2026), ["head", "n1"])
    assert "the same machine id is also that of" in text
    assert "the same ssh host key is also that of" in text
    assert "an address is also that of" in text


def test_a_silent_node_is_a_finding() -> None:
    """Who could not be reached is in the table with the command that shows why; what stops comes first."""
    found = examine(cluster(), {"n1": replace(HEALTHY, swap=["/dev/sda2"])}, ["n2"], {}, 2026)
    text = page(found, ["n1"]).splitlines()
    assert "no ssh to 10.0.0.3" in text[1]
    assert "ssh -p 22 root@10.0.0.3" in text[1]
    assert text[-1] == "Doctor: 1 findings stop a deploy, 1 to look at"


def test_the_probe_is_a_shell_program() -> None:
    """It is one command that a plain sh takes, whatever the names of folders."""
    command = Doctor().command(peers=("a 127.0.0.1 1",), mounts=("/da ta",))
    assert subprocess.run(["sh", "-n", "-c", command], check=False).returncode == 0
