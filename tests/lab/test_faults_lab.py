"""Faults in real lab nodes: each leaves a node as it found it, also when the program that put it in was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from lab.faults import FAULTS, RECORD
from lab.plan import Instance, make_plan
from tests.lab.handle import Lab

pytestmark = pytest.mark.lab
EACH_WAY = [
    "slow-link",
    "cut",
    "mtu",
    "flapping",
    "decoy",
    "same-address",
    "loopback-name",
    "slurmd-stopped",
    "missing-tool",
    "slow-cpu",
    "disk-full",
    "small-shm",
    "few-files",
    "rank-killed",
    "storage-stuck",
    "storage-gone",
]
"""One fault of each way to put something in; the others run with --full."""
NOT_WORTH_A_TURN = ("clock", "gpu-", "rare-bit-flip", "nfs-stopped")
"""Slow, or the same code as another one."""
STATE = r"""
ip -o link show | sed -E 's/ (qlen|state|qdisc) [^ ]+//g' | grep -v NO-CARRIER; ip -4 -o addr show; hostname
grep -v -E ' /(proc|sys|run/user)' /proc/self/mounts | sed -E 's/size=[0-9a-z]+//' | sort
cksum /etc/hosts /etc/resolv.conf /etc/passwd /etc/ld.so.preload /etc/munge/munge.key /var/lib/dpkg/status 2>&1
ls /usr/bin | grep -c . ; ls /usr/lib/python3/dist-packages 2>/dev/null | grep -v -E '\.pyc$|__pycache__' | cksum
stat -f -c %b /dev/shm
systemctl list-units --state=active --plain --no-legend --type=service | cut -d' ' -f1 | grep -v @ | sort
"""


def state(lab: Lab) -> str:
    """What faults change, of the node and of its plug on the switch's side."""
    inside = lab.ssh("n3", STATE).stdout
    return inside + lab.lab("status").stdout


def every_fault() -> list[ParameterSet]:
    names = [name for name in FAULTS if not name.startswith(NOT_WORTH_A_TURN)]
    return [pytest.param(name, marks=() if name in EACH_WAY else (pytest.mark.full,)) for name in names]


@pytest.mark.parametrize("name", every_fault())
def test_a_fault_leaves_no_trace_when_healed(lab: Lab, name: str) -> None:
    """The node is after heal as it was before; a fault that is not to be had is refused in one line."""
    before = state(lab)
    nodes = {"node": ["n3"], "pair": ["n3", "n2"], "machine": []}[FAULTS[name].takes]
    done = lab.lab("fault", name, *nodes, check=False)
    present = lab.lab("status").stdout
    lab.lab("heal")
    if done.returncode:
        assert done.stderr.count("\n") == 1
        pytest.skip(done.stderr.strip())
    assert f"fault: {name} of" in present
    assert state(lab) == before


def test_healing_after_a_crash_in_the_middle(lab: Lab) -> None:
    """A fault that is recorded but never was put in does no harm when it is undone."""
    before = state(lab)
    plan = make_plan(lab.cluster, Instance(lab.name))
    hosts = lab.ssh("n3", "cat /etc/hosts").stdout
    lab.lab("fault", "loopback-name", "n3")
    record = Path(plan.state_dir) / RECORD
    entries = json.loads(record.read_text(encoding="utf-8"))
    extra = [{"fault": "slow-link", "node": "n3", "memory": {}}, {"fault": "slow-cpu", "node": "n3", "memory": {}}]
    record.write_text(json.dumps([*entries, *extra]), encoding="utf-8")
    assert lab.lab("heal").stdout.count("healed:") == 3
    assert lab.ssh("n3", "cat /etc/hosts").stdout == hosts
    assert state(lab) == before
