"""What hardware a node has, asked with tools that a bare Debian or Ubuntu already has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase

from inventory.hardware import FoundDisk, FoundGpu, FoundNic, FoundNode

_SECTIONS: Mapping[str, str] = {
    "arch": "uname -m",
    "virt": "systemd-detect-virt",
    "os": "cat /etc/os-release",
    "lscpu": "lscpu -J",
    "memory": "grep MemTotal: /proc/meminfo",
    "addresses": "ip -j -4 address show",
    # Bridges, containers' veths and tunnels come and go with software; in a container (the lab) every NIC is a veth.
    "nics": "for d in /sys/class/net/*; do n=${d##*/}; case $n in lo|docker*|podman*|veth*|br-*|cni*) continue;; esac; "
    'if [ -e $d/device ] || grep -qs "DEVTYPE=bond" $d/uevent || systemd-detect-virt -cq; then '
    # The speed that a veth reports (10 Gb/s) is made up.
    's=$(cat $d/speed 2>/dev/null || echo -); ! systemd-detect-virt -cq || s=-; echo "$n $s $(cat $d/mtu)"; fi; done',
    "disks": "lsblk -J -b -d -e 1,7,11,43,251,252 -o NAME,SIZE,ROTA,MODEL",
    "cgroup": "cat /sys/fs/cgroup/cgroup.controllers",
    "gpus": "timeout 20 nvidia-smi --query-gpu=index,name,uuid,memory.total,pci.bus_id --format=csv,noheader,nounits",
}
"""Question → command. zram (252), loop (7), ram (1), nbd (43), CD (11) and device-mapper are not disks of their own."""


class Hardware(FactBase[FoundNode | None]):
    """A node's hardware, or None where it could not be asked."""

    def command(self) -> str:
        return (
            "; ".join(f"echo '#{name}'; {{ {command}; }} 2>/dev/null" for name, command in _SECTIONS.items()) + "; true"
        )

    def process(self, output: list[str]) -> FoundNode | None:
        try:
            return parse_hardware(output)
        except (KeyError, ValueError, IndexError) as error:
            raise FactProcessError(f"this node's hardware could not be read: {type(error).__name__} {error}") from error


def parse_hardware(lines: Sequence[str]) -> FoundNode:
    """Parse the sections that `Hardware.command` prints; KeyError or ValueError where a needed one is missing."""
    sections: dict[str, list[str]] = {name: [] for name in _SECTIONS}
    current = ""
    for line in lines:
        if line.startswith("#") and line[1:] in sections:
            current = line[1:]
        elif current:
            sections[current].append(line)
    cpu = {entry["field"].rstrip(":"): entry["data"] for entry in _flat(_json(sections["lscpu"])["lscpu"])}
    release = _os_release(sections["os"])
    return FoundNode(
        architecture=sections["arch"][0],
        virtualisation=(sections["virt"] or ["none"])[0],
        distribution=release["ID"],
        release=release.get("VERSION_ID", ""),
        cpu_model=cpu.get("Model name", "unknown"),
        sockets=_count(cpu, "Socket(s)"),
        cores_per_socket=_count(cpu, "Core(s) per socket"),
        threads_per_core=_count(cpu, "Thread(s) per core"),
        memory_mib=int(sections["memory"][0].split()[1]) // 1024,
        gpus=tuple(_gpu(line) for line in sections["gpus"] if line.count(",") == 4),
        nics=_nics(sections["nics"], _json(sections["addresses"]) if sections["addresses"] else []),
        disks=_disks(sections["disks"]),
        cgroup_controllers=tuple(sorted(" ".join(sections["cgroup"]).split())),
    )


def _json(lines: Sequence[str]) -> Any:
    return json.loads("\n".join(lines))


def _flat(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """lscpu nests its entries since util-linux 2.38; older ones are flat."""
    return [flat for entry in entries for flat in (entry, *_flat(entry.get("children", ())))]


def _count(cpu: Mapping[str, Any], name: str) -> int:
    text = str(cpu.get(name) or "1")
    return int(text) if text.isdigit() else 1


def _os_release(lines: Sequence[str]) -> dict[str, str]:
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines) if key}


def _gpu(line: str) -> FoundGpu:
    index, model, uuid, memory, bus_id = (part.strip() for part in line.split(","))
    return FoundGpu(index=int(index), model=model, uuid=uuid, memory_mib=int(memory), bus_id=bus_id)


def _nics(lines: Sequence[str], addresses: Sequence[Mapping[str, Any]]) -> tuple[FoundNic, ...]:
    first = {entry.get("ifname"): (entry.get("addr_info") or [{}])[0].get("local", "") for entry in addresses}
    nics = []
    for line in lines:
        name, speed, mtu = line.split()
        known = re.fullmatch(r"[1-9]\d*", speed) and speed != "4294967295"
        nics.append(
            FoundNic(name=name, speed_mbps=int(speed) if known else None, mtu=int(mtu), address=first.get(name, ""))
        )
    return tuple(sorted(nics, key=lambda nic: nic.name))


def _disks(lines: Sequence[str]) -> tuple[FoundDisk, ...]:
    devices = _json(lines)["blockdevices"] if lines else []
    return tuple(
        FoundDisk(
            name=device["name"],
            size_gib=int(device["size"]) // 2**30,
            rotational=device["rota"] in (True, "1"),
            model=(device.get("model") or "").strip(),
        )
        for device in sorted(devices, key=lambda device: str(device["name"]))
        if not device["name"].startswith(("zram", "ram", "loop")) and int(device["size"]) > 0
    )
