"""Which packages make a version set on which distribution, and which of them apt must keep to one branch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inventory.cards import consumer
from inventory.gpu_stack import Flavour, GpuStack
from inventory.model import Node
from roles.facts.gpu import GpuState

APT_LIST = "/etc/apt/sources.list.d/klaster-non-free.list"
KEYRING = "/etc/apt/keyrings/klaster-nvidia.asc"
_COMPONENTS = ("contrib", "non-free", "non-free-firmware")
# The same source package and version as the driver; modprobe, persistenced and nccl have numbers of their own.
_DRIVERS_OWN = ("nvidia-kernel", "nvidia-open-kernel", "nvidia-smi", "nvidia-driver", "nvidia-dkms", "nvidia-utils",
                "nvidia-headless", "libcuda1", "libnvidia-")  # fmt: skip


@dataclass(frozen=True)
class PackageSet:
    """One flavour of a set on one distribution."""

    names: tuple[str, ...]
    module: str
    """The package whose kernel module is built by DKMS."""
    rivals: tuple[str, ...]
    """The other flavour's packages: they can't be there too."""
    driver: int

    @property
    def plain_names(self) -> tuple[str, ...]:
        """Without the versions that some are asked for with."""
        return tuple(name.partition("=")[0] for name in self.names)

    def wrong_versions(self, installed: Mapping[str, str]) -> list[str]:
        """Packages of the driver that are of another branch."""
        own = [name for name in self.names if name.startswith(_DRIVERS_OWN) and name in installed]
        return [name for name in own if not installed[name].startswith(f"{self.driver}.")]


def package_set(stack: GpuStack, node: Node, distribution: tuple[str, str], flavour: Flavour) -> PackageSet:
    """The packages of `stack` on `node`; Debian's and NVIDIA's names were read in their archives' documentation."""
    one = stack.set
    if one.source == "debian":
        base, modules, toolkit = _debian(distribution)
    elif one.source == "ubuntu":
        base, modules, toolkit = _ubuntu(one.driver, flavour)
    else:
        base, modules, toolkit = _nvidia(distribution[0], one.driver)
    names = [modules[flavour], *base]
    names += [toolkit] if stack.cuda_toolkit else []
    names += _further(stack, node)
    rival: Flavour = "proprietary" if flavour == "open" else "open"
    return PackageSet(tuple(names), modules[flavour], (modules[rival],), one.driver)


_Packages = tuple[tuple[str, ...], dict[Flavour, str], str]


def _debian(distribution: tuple[str, str]) -> _Packages:
    nvvm, nccl = (("libnvidia-nvvm4",), ("libnccl2",)) if distribution[1] == "13" else ((), ())  # Debian 12 has neither
    base = ("libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", *nvvm, "nvidia-smi", "nvidia-persistenced",
            "nvidia-modprobe", *nccl)  # fmt: skip
    return base, {"open": "nvidia-open-kernel-dkms", "proprietary": "nvidia-kernel-dkms"}, "nvidia-cuda-toolkit"


def _ubuntu(driver: int, flavour: Flavour) -> _Packages:
    suffix = "-open" if flavour == "open" else ""
    base = (f"nvidia-headless-no-dkms-{driver}-server{suffix}", f"nvidia-utils-{driver}-server")
    modules: dict[Flavour, str] = {
        "open": f"nvidia-dkms-{driver}-server-open",
        "proprietary": f"nvidia-dkms-{driver}-server",
    }
    return base, modules, ""


def _nvidia(distribution: str, driver: int) -> _Packages:
    if distribution == "debian":
        base: tuple[str, ...] = ("nvidia-driver-cuda", "nvidia-persistenced", "libnccl2")
        modules: dict[Flavour, str] = {"open": "nvidia-kernel-open-dkms", "proprietary": "nvidia-kernel-dkms"}
    else:
        base = (f"nvidia-utils-{driver}", f"libnvidia-compute-{driver}", "libnccl2")
        modules = {"open": f"nvidia-dkms-{driver}-open", "proprietary": f"nvidia-dkms-{driver}"}
    return base, modules, "cuda-toolkit-13-0"


def _further(stack: GpuStack, node: Node) -> list[str]:
    """Container toolkit (all four parts at one version), DCGM and fabric manager, where the set has them."""
    one, names = stack.set, []
    if one.container_toolkit:
        parts = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools",
                 "libnvidia-container1")  # fmt: skip
        names += [f"{part}={one.container_toolkit}" for part in parts]
    if stack.dcgm and not any(consumer(gpu.model) for gpu in node.gpus):
        names.append(f"datacenter-gpu-manager-{one.dcgm}-cuda13")
    if stack.nvswitch:
        names.append(f"nvidia-fabricmanager-{one.driver}")
    return names


def pinned(packages: PackageSet) -> list[str]:
    """Names whose version is the driver's: apt gets no other branch of them."""
    own = (*packages.names, *packages.rivals)
    return sorted({name.partition("=")[0] for name in own if name.startswith(_DRIVERS_OWN)})


def kernel_packages(found: GpuState) -> tuple[str, ...]:
    """Headers of the kernel that is running, and of those that come after it."""
    cloud = "cloud-" if "-cloud-" in found.kernel else ""
    meta = f"linux-headers-{cloud}amd64" if found.distribution[0] == "debian" else "linux-headers-generic"
    return (meta,) if found.container else (meta, f"linux-headers-{found.kernel}")


def non_free_lines(sources: Sequence[str]) -> list[str]:
    """Lines of sources.list for the components with NVIDIA's driver, from the sources that give `main`, in either
    format; empty if some already give non-free. No address of a mirror is known here: the machine's own is taken."""
    entries = list(dict.fromkeys([*_one_line_entries(sources), *_deb822_entries(sources)]))
    if any("non-free" in components.split() for _, _, components in entries):
        return []
    return [f"deb {url} {suite} {' '.join(_COMPONENTS)}" for url, suite, parts in entries if "main" in parts.split()]


def _one_line_entries(lines: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    for line in lines:
        if found := re.match(r"deb\s+((?:\[[^]]*\]\s+)?\S+)\s+(\S+)\s+(\S.*)", line):
            yield found[1], found[2], found[3]


def _deb822_entries(lines: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    for block in re.split(r"\n\s*\n", "\n".join(lines)):
        fields = dict(re.findall(r"^(Types|URIs|Suites|Components|Signed-By|Enabled):\s*(.+)$", block, re.M))
        if "deb" not in fields.get("Types", "").split() or fields.get("Enabled") == "no":
            continue
        option = f"[signed-by={fields['Signed-By']}] " if "Signed-By" in fields else ""
        for url in fields.get("URIs", "").split():
            for suite in fields.get("Suites", "").split():
                yield f"{option}{url}", suite, fields.get("Components", "")
