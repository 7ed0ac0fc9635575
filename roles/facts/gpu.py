"""What a node says of its NVIDIA cards, driver, kernels and packages, in one command that needs no tool of NVIDIA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

STATE = "/var/lib/klaster/gpu"
"""Folder on the node: which kernel module was chosen, and how each trial of building one ended."""
REBOOT_MARK = "/var/lib/klaster/reboot-gpu"
"""On the node: why it must be rebooted; deploys/versions.py lists it."""

REQUIRED = "/run/reboot-required"
"""Debian and Ubuntu make it when a new kernel or library waits for a reboot; it is gone after one."""
REBOOT_DUE = f"cat {REBOOT_MARK} 2>/dev/null || {{ [ -e {REQUIRED} ] && echo {REQUIRED} is there; }}"
"""Shell that says why a reboot is due, and nothing if it is not."""

_SECTIONS: Mapping[str, str] = {
    "cards": "for d in /sys/bus/pci/devices/*; do "
    '[ "$(cat $d/vendor 2>/dev/null)" = 0x10de ] || continue; c=$(cat $d/class); '
    'case $c in 0x03*) l=$(readlink $d/driver); echo "${d##*/} $(cat $d/device) ${l##*/}";; esac; done',
    "virt": "systemd-detect-virt -c",
    "os": '. /etc/os-release; echo "$ID $VERSION_ID"',
    "kernel": "uname -r",
    "images": "ls /boot | sed -n 's/^vmlinuz-//p'",
    "headers": 'for k in /lib/modules/*; do [ -d $k/build/ ] && echo "${k##*/}"; done',
    "boot_mib": "df -Pm /boot | awk 'NR==2{print $4}'",
    "secure_boot": "mokutil --sb-state; mokutil --test-key /var/lib/dkms/mok.pub || mokutil --test-key "
    "/var/lib/shim-signed/mok/MOK.der",
    "runfile": "ls /usr/bin/nvidia-uninstall /usr/local/bin/nvidia-uninstall",
    "nouveau": "grep -o '^nouveau ' /proc/modules",
    "loaded": "cat /sys/module/nvidia/version",
    "library": "ls /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.*.* /usr/lib/x86_64-linux-gnu/nvidia/current/"
    "libnvidia-ml.so.*.* | sed 's/.*libnvidia-ml.so.//' | sort -u",
    "holders": "for p in /proc/[0-9]*; do ls -l $p/fd 2>/dev/null | grep -q /dev/nvidia && "
    'echo "${p##*/} $(cat $p/comm)"; done',
    "dkms": "dkms status",
    "held": "apt-mark showhold",
    "packages": "dpkg-query -W -f='${db:Status-Abbrev}|${Package}|${Version}\\n' | grep -E "
    "'[|](nvidia|libnvidia|libcuda|libnccl|cuda-|dkms|linux-(image|headers)|datacenter-gpu|unattended)|^.[^inc]'",
    "sources": "cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources",
    "flavour": f"cat {STATE}/flavour",
    "reboot": f"cat {REBOOT_MARK}",
    "ours": f"ls -d {STATE}",
    "trials": f"cd {STATE} && head -n 1 trial-*  /dev/null",
}


@dataclass(frozen=True)
class Card:
    """One NVIDIA device of class display on the bus."""

    bus_id: str
    device_id: str
    driver: str
    """nvidia, nouveau, vfio-pci, or empty."""


@dataclass
class GpuState:
    cards: list[Card] = field(default_factory=list)
    container: bool = False
    distribution: tuple[str, str] = ("", "")
    kernel: str = ""
    images: list[str] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    boot_mib: int | None = None
    secure_boot: bool = False
    key_enrolled: bool = False
    runfile: str = ""
    nouveau: bool = False
    loaded: str = ""
    """Version of the loaded kernel module."""
    library: str = ""
    """Version of the installed NVML."""
    holders: list[str] = field(default_factory=list)
    """Programs that have a card open, `pid name`."""
    dkms: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    flavour: str = ""
    ours: bool = False
    """An earlier deploy has been at work here."""
    reboot: str = ""
    """Why a reboot is due, as an earlier run wrote it down."""
    trials: dict[str, str] = field(default_factory=dict)
    """`<package>_<version>_<kernel>` → ok, or the compiler's line."""

    @property
    def kernels(self) -> list[str]:
        """Kernels a module must be built for: those that can boot; in a container any with headers."""
        return [one for one in self.headers if self.container or one in self.images]


class GpuFacts(FactBase[GpuState]):
    """State of the GPU stack in one round trip."""

    @staticmethod
    def default() -> GpuState:
        return GpuState()

    def command(self) -> str:
        return "; ".join(f"echo '#{n}'; {{ {command}; }} 2>/dev/null" for n, command in _SECTIONS.items()) + "; true"

    def process(self, output: list[str]) -> GpuState:
        return parse_gpu_state(output)


def parse_gpu_state(lines: Sequence[str]) -> GpuState:
    """Parse the sections that `GpuFacts.command` prints; what is not there stays empty."""
    found: dict[str, list[str]] = {name: [] for name in _SECTIONS}
    current = ""
    for line in lines:
        if line.startswith("#") and line[1:] in found:
            current = line[1:]
        elif current:
            found[current].append(line)
    one = {name: (rows or [""])[0].strip() for name, rows in found.items()}
    secure = " ".join(found["secure_boot"])
    identifier, _, release = one["os"].partition(" ")
    state = GpuState(
        cards=[Card(*(f"{line}  ".split(" ")[:3])) for line in found["cards"]],
        container=one["virt"] not in ("", "none"),
        distribution=(identifier, release),
        kernel=one["kernel"],
        images=found["images"],
        headers=found["headers"],
        boot_mib=int(one["boot_mib"]) if one["boot_mib"].isdigit() else None,
        secure_boot="SecureBoot enabled" in secure,
        key_enrolled="is already enrolled" in secure,
        runfile=one["runfile"],
        nouveau=bool(found["nouveau"]),
        loaded=one["loaded"],
        library=one["library"],
        holders=found["holders"],
        dkms=found["dkms"],
        held=found["held"],
        sources=found["sources"],
        flavour=one["flavour"],
        reboot=one["reboot"],
        ours=bool(found["ours"]),
        trials=_trials(found["trials"]),
    )
    for line in found["packages"]:
        status, _, rest = line.partition("|")
        package, _, version = rest.partition("|")
        if status[1:2] == "i" and status[2:3] in ("", " "):
            state.packages[package] = version
        elif status[1:2] not in ("n", "c"):
            state.broken.append(package)
    return state


def _trials(lines: Sequence[str]) -> dict[str, str]:
    """`head -n 1` of several files: `==> trial-NAME <==` and the line below it."""
    trials, name = {}, ""
    for line in lines:
        if line.startswith("==> "):
            name = line.removeprefix("==> ").removesuffix(" <==").removeprefix("trial-")
        elif name and line.strip():
            trials[name] = line.strip()
    return trials
