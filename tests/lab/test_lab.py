"""The lab itself, up for real: nodes, links, cuts, reboots, interrupted starts, and nothing left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.handle import ROOT, Lab
from tests.lab.leftovers import leftovers
from tests.lab.trial import slot, write_trial

pytestmark = pytest.mark.lab

RECEIVE = (
    "import socket; room = bytearray(1 << 20); s = socket.create_server(('', 7799)); print('ready', flush=True)\n"
    "while True:\n"
    "    c, _ = s.accept()\n"
    "    while True:\n"
    "        n = int.from_bytes(c.recv(8), 'big')\n"
    "        if not n: break\n"
    "        while n: n -= c.recv_into(room, min(n, 1 << 20))\n"
    "        c.sendall(b'k')\n"
)
SEND = (
    "import socket, time, sys; c = socket.create_connection((sys.argv[1], 7799), 5); n = int(sys.argv[2]); best = 0\n"
    "message = n.to_bytes(8, 'big') + bytes(n)\n"  # made before the clock runs: 16 MB of fresh pages cost some 10 ms
    "for _ in range(int(sys.argv[3])):\n"
    "    t = time.perf_counter(); c.sendall(message); c.recv(1)\n"
    "    best = max(best, n * 8 / (time.perf_counter() - t) / 1e6)\n"
    "print(best)\n"
)


def state_of(lab: Lab) -> Path:
    return Path(str(lab.cluster.state_dir))


def traces(lab: Lab) -> dict[str, list[str]]:
    return leftovers(slot().name, state_of(lab), slot().start)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of three nodes, for tests that leave it as they found it."""
    lab = write_trial(tmp_path_factory.mktemp("trial"), 3)
    try:
        lab.lab("up", lab.inventory, timeout_s=600)
        for node in ("n1", "n2"):
            lab.ssh(node, f'setsid python3 -c "{RECEIVE}" >/tmp/receive 2>&1 </dev/null & sleep 0.3')
        yield lab
    finally:
        lab.lab("down")


@pytest.fixture
def unused(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """An inventory whose lab is down; whatever a test does, it's down afterwards."""
    if "trial" in request.fixturenames:
        pytest.fail("there is one trial lab at a time")
    lab = write_trial(tmp_path, 2)
    yield lab
    lab.lab("down")


def send_mbps(lab: Lab, source: str, target: str, megabytes: float, times: int) -> float:
    """The best of some messages over one connection, payload Mb/s."""
    address = lab.cluster.node(target).address
    done = lab.ssh(source, f'python3 -c "{SEND}" {address} {int(megabytes * 1e6)} {times}', timeout_s=60)
    return float(done.stdout)


def test_nodes_are_bare_and_themselves(trial: Lab) -> None:
    """Each node has its own name, identity and processes, has booted cleanly, and knows nothing of a cluster."""
    seen = set()
    for node in ("head", "n1", "n2"):
        words = trial.ssh(
            node, "hostname; cat /etc/machine-id; systemctl is-system-running; ps ax | grep -c '[s]ystemd-journald'"
        ).stdout.split()
        assert words[0] == node
        assert words[2:] == ["running", "1"]
        seen.add(words[1])
        missing = trial.ssh(node, "command -v slurmd munged chronyd nft || echo none").stdout.strip()
        assert missing == "none"
    assert len(seen) == 3


def test_a_service_stops_in_its_own_node_only(trial: Lab) -> None:
    """Containers don't share control groups: stopping a service in one node leaves its namesake in another alone."""
    before = trial.ssh("n2", "systemctl show -p MainPID --value dbus").stdout
    trial.ssh("n1", "systemctl stop dbus.socket dbus.service; systemctl start dbus.socket dbus.service")
    assert trial.ssh("n2", "systemctl is-active dbus && systemctl show -p MainPID --value dbus").stdout.endswith(before)


@pytest.mark.parametrize("forbidden", ["date -s @1", "dmesg", "modprobe dummy"])
def test_a_node_cannot_change_the_machine(trial: Lab, forbidden: str) -> None:
    """A node can't set the machine's clock, read its log or load modules."""
    assert trial.ssh("n1", forbidden, check=False).returncode != 0


def idle_and_all_ticks() -> tuple[int, int]:
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return ticks[3], sum(ticks)


def test_links_have_their_declared_speed(trial: Lab) -> None:
    """16 MB messages reach at least 0.93 of the declared 1 Gb/s, and never more than it."""
    idle_shares = []
    for _ in range(10):
        before = idle_and_all_ticks()
        speed = send_mbps(trial, "head", "n1", 16, 6)
        assert speed <= 1005
        if speed >= 930:
            return
        after = idle_and_all_ticks()
        idle_shares.append((after[0] - before[0]) / (after[1] - before[1]))
        time.sleep(1)
    # On a machine whose processors are taken by others, 1 Gb/s may be out of reach: that says nothing of the lab.
    assert min(idle_shares) < 0.5, f"the last message had {speed:.0f} Mb/s, with processors idle all the time"
    pytest.skip(f"this machine is busy: idle shares {idle_shares}")


def test_a_shaped_link_is_slow_both_ways_until_healed(trial: Lab) -> None:
    """`shape` limits what a node sends and receives; `heal` brings the declared speed back."""
    trial.lab("shape", "n1", "50")
    assert 45 <= send_mbps(trial, "head", "n1", 1, 3) <= 52
    assert 45 <= send_mbps(trial, "n1", "n2", 1, 3) <= 52
    assert "(declared 1000)" in trial.lab("status").stdout
    trial.lab("heal")
    assert send_mbps(trial, "head", "n1", 8, 5) > 500
    assert "(declared" not in trial.lab("status").stdout


def test_a_link_can_be_slow_one_way(trial: Lab) -> None:
    """`shape --egress-only` limits what the node sends and leaves what it receives."""
    trial.lab("shape", "n1", "50", "--egress-only")
    try:
        assert 45 <= send_mbps(trial, "n1", "n2", 1, 3) <= 52
        assert send_mbps(trial, "n2", "n1", 8, 5) > 500
    finally:
        trial.lab("heal")


def reaches(lab: Lab, source: str, target: str) -> bool:
    return lab.ssh(source, f"ping -c1 -W1 {lab.cluster.node(target).address}", check=False).returncode == 0


def test_a_cut_parts_two_nodes_only(trial: Lab) -> None:
    """`cut A B` stops everything between A and B, both ways, and nothing else; `heal` undoes it."""
    trial.lab("cut", "n1", "n2")
    assert "cut: n1 and n2" in trial.lab("status").stdout
    assert not reaches(trial, "n1", "n2")
    assert not reaches(trial, "n2", "n1")
    assert reaches(trial, "head", "n1")
    assert reaches(trial, "n2", "head")
    trial.lab("heal")
    assert reaches(trial, "n1", "n2")


def test_a_stranger_s_address_is_outside(trial: Lab) -> None:
    """`outside` runs at an address that no cluster network holds, from which nodes can be reached."""
    node = trial.cluster.node("n1").address
    code = f"import socket; c = socket.create_connection(('{node}', 22), 3); print(c.getsockname()[0])"
    assert trial.lab("outside", "python3", "-c", code).stdout.strip() == slot().outside


def test_addresses_in_use_are_refused(trial: Lab, tmp_path: Path) -> None:
    """A lab whose network this machine already has a way into is refused in one line, and nothing is left of it."""
    other = Lab(write_trial(tmp_path, 2).inventory, "clash")
    done = other.lab("up", other.inventory, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("bin/lab: this machine already has a route into")
    assert other.lab("status", check=False).stdout == "the lab is down\n"
    assert leftovers("clash", state_of(other), "nowhere") == {}


def test_no_packet_leaves_the_machine(trial: Lab) -> None:
    """A lab address that no node has is unreachable from here, and a node can't reach beyond the lab."""
    away = subprocess.run(["ip", "route", "get", slot().outside], capture_output=True, text=True, check=False)
    assert away.returncode != 0
    assert trial.ssh("n1", "ping -c1 -W1 192.0.2.1", check=False).returncode != 0


def test_all_nodes_share_one_folder(trial: Lab) -> None:
    """The storage that the inventory calls external is one folder, mounted in every node."""
    trial.ssh("n1", "echo here > /shared/word")
    assert trial.ssh("head", "cat /shared/word; grep -c ' /shared ' /proc/mounts").stdout.split() == ["here", "1"]


def test_packages_come_through_the_cache(trial: Lab) -> None:
    """A node installs a package by way of the lab's cache, and the second node's copy is not downloaded again."""
    for node in ("n1", "n2"):
        trial.ssh(node, "apt-get -q update && apt-get -q install -y --no-install-recommends hello", timeout_s=120)
    assert trial.ssh("n2", "hello").stdout == "Hello, world!\n"
    log = (state_of(trial) / "cache" / "access.log").read_text().splitlines()
    fetched = [line.split()[0] for line in log if "/hello_" in line]
    assert len(fetched) == 2
    assert fetched[1] == "HIT"


def test_a_node_comes_back_after_its_reboot(trial: Lab) -> None:
    """A node that reboots boots anew, with its files and its address."""
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    before = trial.ssh("n2", f"touch /root/kept; {boot_id}").stdout
    trial.ssh("n2", "systemctl reboot", check=False)
    deadline = time.monotonic() + 40
    while True:
        now = trial.ssh("n2", f"ls /root/kept && {boot_id}", check=False)
        if now.returncode == 0 and now.stdout.splitlines()[1:] != before.splitlines():
            break
        assert time.monotonic() < deadline, now.stderr
        time.sleep(0.3)


def test_up_starts_what_is_missing(trial: Lab) -> None:
    """A node that powered itself off is started again by `up`; those that run are left alone."""
    before = trial.ssh("n1", "cat /proc/sys/kernel/random/boot_id").stdout
    trial.ssh("head", "systemctl poweroff", check=False)
    deadline = time.monotonic() + 20
    while "stopped" not in trial.lab("status").stdout:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    trial.lab("up", trial.inventory)
    assert "stopped" not in trial.lab("status").stdout
    assert trial.ssh("n1", "cat /proc/sys/kernel/random/boot_id").stdout == before


def test_a_killed_node_is_gone_at_once(trial: Lab) -> None:
    """`kill` ends every process of a node; `up` boots it again with its files."""
    trial.ssh("n2", "touch /root/before; sync")
    trial.lab("kill", "n2")
    assert trial.ssh("n2", "true", check=False).returncode != 0
    trial.lab("up", trial.inventory)
    trial.ssh("n2", "ls /root/before")


def test_another_inventory_must_wait(trial: Lab, tmp_path: Path) -> None:
    """`up` with another inventory says in one line to run `down` first, and changes nothing."""
    other = write_trial(tmp_path, 2, speed_gbps=10)
    done = other.lab("up", other.inventory, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "run `bin/lab down` first" in done.stderr
    assert "stopped" not in trial.lab("status").stdout


def test_a_second_checkout_is_told_who_holds_the_lab(trial: Lab, tmp_path: Path) -> None:
    """Another checkout's verbs end with one line that names the holder, and touch nothing."""
    for package in ("lab", "inventory"):
        shutil.copytree(ROOT / package, tmp_path / package)
    for words in (["up", trial.inventory], ["down"], ["heal"], ["shape", "n1", "50"]):
        done = subprocess.run(
            [str(ROOT / ".venv/bin/python"), "-m", "lab", *words],
            cwd=tmp_path,
            env={**os.environ, "KLASTER_LAB_NAME": slot().name, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stdout
        assert f"held by {ROOT} since" in done.stderr
        assert done.stderr.count("\n") == 1
    assert "(declared" not in trial.lab("status").stdout


def test_a_node_is_added_to_a_lab_that_is_up(trial: Lab) -> None:
    """A node added to the inventory is booted by `up`, and the others are left alone (last: it changes the trial)."""
    before = trial.ssh("n1", "cat /proc/sys/kernel/random/boot_id").stdout
    grown = write_trial(Path(trial.inventory).parent, 4)
    grown.lab("up", grown.inventory)
    assert grown.ssh("n3", "hostname").stdout == "n3\n"
    assert grown.ssh("n1", "cat /proc/sys/kernel/random/boot_id").stdout == before


def test_down_leaves_nothing(trial: Lab) -> None:
    """After `down` there's no process, mount, interface, namespace, route, control group or state of the lab."""
    assert traces(trial).keys() >= {"routes", "links", "namespaces", "claims", "state", "processes"}
    trial.lab("down")
    assert traces(trial) == {}
    assert trial.lab("down").stdout == "the lab is down already\n"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_up_can_be_interrupted_anywhere(unused: Lab, how: signal.Signals) -> None:
    """Whenever `up` is stopped or killed, `down` leaves nothing and `up` brings the whole lab up."""
    chance = random.Random(int(how))  # noqa: S311 - moments, not secrets
    for attempt in range(4):
        interrupted = subprocess.Popen(
            [str(ROOT / ".venv/bin/python"), "-m", "lab", "up", unused.inventory],
            cwd=ROOT,
            env={**os.environ, "KLASTER_LAB_NAME": slot().name},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(chance.uniform(0.4, 2.5))
        os.killpg(interrupted.pid, how)
        interrupted.wait(timeout=30)
        if attempt % 2:
            unused.lab("down")
            assert traces(unused) == {}
    unused.lab("up", unused.inventory)
    assert unused.ssh("n1", "hostname").stdout == "n1\n"
    unused.lab("down")
    assert traces(unused) == {}


@pytest.mark.full
def test_sixteen_nodes(tmp_path: Path) -> None:
    """Sixteen nodes boot side by side, reach each other, and go without a trace."""
    lab = write_trial(tmp_path, 16)
    try:
        lab.lab("up", lab.inventory, timeout_s=300)
        assert all(reaches(lab, "head", f"n{i}") for i in range(1, 16))
    finally:
        lab.lab("down")
    assert traces(lab) == {}
