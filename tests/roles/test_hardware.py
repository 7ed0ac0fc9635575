"""Reading a node's hardware, and telling what changed."""

from __future__ import annotations

import pytest

from roles import hardware
from roles.facts.hardware import parse_hardware
from tests.roles.sample import found, gpu

LSCPU = (
    '{"lscpu": [{"field": "Vendor ID:", "data": "X", "children": [{"field": "Model name:", "data": "X 9", "children": '
    '[{"field": "Thread(s) per core:", "data": "2"}, {"field": "Core(s) per socket:", "data": "8"}, '
    '{"field": "Socket(s):", "data": "1"}]}]}]}'
)
OUTPUT = f"""#arch
x86_64
#virt
none
#os
ID=ubuntu
VERSION_ID="24.04"
#lscpu
{LSCPU}
#memory
MemTotal:       65757724 kB
#addresses
[{{"ifname": "enp5s0", "addr_info": [{{"local": "10.0.0.2"}}]}}]
#nics
enp5s0 2500 1500
enp6s0 -1 9000
#disks
{{"blockdevices": [{{"name": "nvme0n1", "size": 2000398934016, "rota": false, "model": "S 990 "}},
{{"name": "zram0", "size": 8589934592, "rota": false, "model": null}}]}}
#cgroup
cpu memory pids
#gpus
0, NVIDIA GeForce RTX 3090, GPU-1, 24576, 00000000:01:00.0
1, NVIDIA GeForce RTX 3090, GPU-2, 24576, 00000000:02:00.0
"""


def test_parse() -> None:
    """Cores, memory, cards, NICs with speed and MTU, and disks are read; an unknown speed stays unknown."""
    node = parse_hardware(OUTPUT.splitlines())
    assert (node.distribution, node.release, node.cpus, node.cpu_model) == ("ubuntu", "24.04", 16, "X 9")
    assert node.memory_mib == 65757724 // 1024
    assert [card.uuid for card in node.gpus] == ["GPU-1", "GPU-2"]
    assert [(nic.name, nic.speed_mbps, nic.mtu, nic.address) for nic in node.nics] == [
        ("enp5s0", 2500, 1500, "10.0.0.2"),
        ("enp6s0", None, 9000, ""),
    ]
    assert [(disk.name, disk.size_gib, disk.model) for disk in node.disks] == [("nvme0n1", 1863, "S 990")]


def test_a_failed_nvidia_smi_is_no_gpu() -> None:
    """What nvidia-smi says when it fails is not taken for a card."""
    broken = OUTPUT.split("#gpus", maxsplit=1)[0] + "#gpus\nNVIDIA-SMI has failed because it couldn't communicate\n"
    assert parse_hardware(broken.splitlines()).gpus == ()


def test_half_an_answer_is_an_error() -> None:
    """An output without memory is refused, not locked as a machine of no memory."""
    with pytest.raises((KeyError, ValueError, IndexError)):
        parse_hardware(OUTPUT.replace("MemTotal:       65757724 kB\n", "").splitlines())


def test_changes_name_field_and_values() -> None:
    """A lost card and another MTU are said with the part and the field."""
    assert hardware.changes(found(), found()) == []
    lost = hardware.changes(found(gpus=(gpu(0), gpu(1))), found(gpus=(gpu(0),)))
    assert "gpus 1 model: NVIDIA X → gone" in lost
    nic = found().nics[0].model_copy(update={"mtu": 9000})
    assert hardware.changes(found(), found(nics=(nic,))) == ["nics enp1s0 mtu: 1500 → 9000"]
