"""NVIDIA's driver and tools as one set: tried before anything is installed, held together, taken away cleanly."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.gpu_stack import Flavour, GpuStack, flavours, wanted_flavours
from inventory.hardware import FoundNode
from inventory.model import Cluster, Node
from roles.facts import site
from roles.facts.gpu import REBOOT_MARK, STATE, GpuFacts, GpuState
from roles.operations.configure import configure, put_off, sh
from roles.operations.gpu_packages import (
    APT_LIST,
    KEYRING,
    PackageSet,
    kernel_packages,
    non_free_lines,
    package_set,
    pinned,
)
from roles.operations.packages import APT, REPAIR
from roles.operations.settle import Unit
from roles.operations.template import render
from roles.operations.tree import Directory, File, Tree

TRY = "/usr/local/lib/klaster/try-gpu-module"
PREFERENCES = "/etc/apt/preferences.d/klaster-gpu"
UNATTENDED = "/etc/apt/apt.conf.d/52-klaster-gpu"
NVIDIA_SOURCES = "/etc/apt/sources.list.d/klaster-nvidia.sources"
NOUVEAU = "/etc/modprobe.d/klaster-nouveau.conf"
POWER_CAP = "/etc/systemd/system/klaster-power-cap.service"
OUR_FILES = (TRY, PREFERENCES, UNATTENDED, NVIDIA_SOURCES, APT_LIST, KEYRING, NOUVEAU, POWER_CAP)
BOOT_MIB = 200
"""Room that an initramfs with a driver in it may need."""


@dataclass(frozen=True)
class Step:
    """One command, and whether it fails the node on purpose (a refusal)."""

    command: str
    refusal: bool = False


def refuse(sentence: str) -> list[Step]:
    return [Step(f"echo {shlex.quote(sentence)} >&2; exit 1", refusal=True)]


# --- files that apt must know before, and those of the finished node ---------------------------------------------


def apt_plan(stack: GpuStack, node: Node, found: GpuState, key: str) -> Tree:
    """Sources, pin and exclusion from unattended upgrades; and the program that tries a module."""
    one = stack.set
    packages = package_set(stack, node, found.distribution, flavours(node)[0])
    values = {"set": one, "packages": pinned(packages), "state": STATE}
    files = [
        File(PREFERENCES, render("gpu", "preferences", values)),
        File(UNATTENDED, render("gpu", "unattended.conf", values)),
        File(TRY, render("gpu", "try-module.sh", values), "755"),
    ]
    if one.source == "debian" and (lines := non_free_lines(found.sources)):
        files.append(File(APT_LIST, render("gpu", "non-free.list", {"lines": lines}), triggers=("update-gpu",)))
    if one.source == "nvidia":
        source = {"url": stack.repository_url, "keyring": KEYRING}
        files.append(File(KEYRING, key))
        files.append(File(NVIDIA_SOURCES, render("gpu", "nvidia.sources", source), triggers=("update-gpu",)))
    return Tree(tuple(files), (Directory("/usr/local/lib/klaster"), Directory("/etc/apt/keyrings"), Directory(STATE)))


def node_plan(node: Node, hardware: FoundNode | None) -> Tree:
    """nouveau off, and the power cap where one is declared."""
    nouveau = File(NOUVEAU, render("gpu", "nouveau.conf", {}), triggers=("initramfs",))
    caps = power_caps(node, hardware)
    if not caps:
        return Tree((nouveau,), absent=(POWER_CAP,))
    unit = File(POWER_CAP, render("gpu", "power-cap.service", {"caps": caps}), triggers=("power-cap",))
    return Tree((nouveau, unit))


def power_caps(node: Node, hardware: FoundNode | None) -> list[tuple[int, int]]:
    """Index of each locked card and its cap in watts; before the first lock the order of the inventory counts."""
    by_model = {gpu.model: gpu.power_cap_watts for gpu in node.gpus}
    if hardware and hardware.gpus:
        cards = [(card.index, by_model.get(card.model)) for card in hardware.gpus]
    else:
        cards = list(enumerate(gpu.power_cap_watts for gpu in node.gpus for _ in range(gpu.count)))
    return [(index, watts) for index, watts in cards if watts]


# --- preflight, trial, installation ------------------------------------------------------------------------------


def preflight(stack: GpuStack, node: Node, found: GpuState) -> str:
    """Why this node can't take the driver, with the remedy; empty if it can."""
    if found.distribution not in stack.set.distributions:
        runs, wants = " ".join(found.distribution), " or ".join(" ".join(one) for one in stack.set.distributions)
        return f"{node.name} runs {runs}, and versions={stack.versions} is for {wants}: take another set in GpuStack"
    if found.runfile:
        return (
            f"{node.name} has a driver from NVIDIA's .run installer ({found.runfile}), which packages can't replace: "
            f"run {found.runfile} on the node, reboot it, deploy again"
        )
    if found.container:
        return ""  # no bus, no boot loader, no module of its own: the lab
    if not found.cards:
        return (
            f"{node.name} has no NVIDIA card on its bus and {node.gpu_count} declared: look for power and seat of the "
            "card, or correct the inventory"
        )
    if found.secure_boot and not found.key_enrolled:
        return (
            f"{node.name} has Secure Boot on and would refuse the module, because the key that signs it is not "
            "enrolled: on the node run `dkms generate_mok; mokutil --import /var/lib/dkms/mok.pub`, reboot and choose "
            "Enroll MOK, or switch Secure Boot off; then deploy again"
        )
    if found.boot_mib is not None and found.boot_mib < BOOT_MIB:
        return f"{node.name} has {found.boot_mib} MiB free in /boot and needs {BOOT_MIB}: apt autoremove --purge"
    return ""


def complete(packages: PackageSet, found: GpuState) -> bool:
    """Every package of the set is there, of the right branch, and held, and the module is built for every kernel."""
    hold = to_hold(packages, found)
    built = [line for line in found.dkms if line.startswith("nvidia") and ": installed" in line]
    return (
        not found.broken
        and set(packages.plain_names) <= set(found.packages)
        and hold <= set(found.held)
        and all(any(kernel in line for line in built) for kernel in found.kernels)
        and not packages.wrong_versions(found.packages)
    )


def to_hold(packages: PackageSet, found: GpuState) -> set[str]:
    """The set's packages, what of NVIDIA came with them, and the kernel's own: they change together or not at all."""
    ours = ("nvidia", "libnvidia", "libcuda1", "libnccl", "linux-image", "linux-headers", "datacenter-gpu-manager")
    return {name for name in found.packages if name.startswith(ours)} | set(packages.plain_names)


def stack_steps(stack: GpuStack, node: Node, found: GpuState) -> list[Step]:
    """From what is there to the set installed and held; empty if it is; a refusal before anything is changed."""
    choice = wanted_flavours(stack, node)
    chosen: Flavour | None = next((one for one in choice if one == found.flavour), None)
    if chosen and complete(package_set(stack, node, found.distribution, chosen), found):
        return repair_steps(found)
    if why := preflight(stack, node, found):
        return refuse(why)
    steps = [Step(REPAIR)] if found.broken else []
    tools = shlex.join(("dkms", "build-essential", *kernel_packages(found)))
    steps.append(Step(f"{APT} --no-install-recommends install {tools}"))
    others = [one for one in flavours(node) if one not in choice]
    sets = {one: package_set(stack, node, found.distribution, one) for one in (*choice, *others)}
    tries = " ".join(f"{one}:{','.join(apt_words(sets[one]))}" for one in (*choice, *others))
    steps.append(Step(f"{TRY} {len(choice)} {tries}"))
    steps.append(Step(_install_chosen({one: sets[one] for one in choice})))
    return steps


def apt_words(packages: PackageSet) -> list[str]:
    """What apt is told: the set, its module first, without the other flavour's packages."""
    return [*packages.names, *(f"{name}-" for name in packages.rivals)]


def _install_chosen(sets: dict[Flavour, PackageSet]) -> str:
    """Install the flavour that the trial chose, without the other, and hold the set with the kernel."""
    cases = []
    for flavour, packages in sets.items():
        cases.append(f"{flavour}) set -- {shlex.join(apt_words(packages))};;")
    hold = (
        "dpkg-query -W -f='${db:Status-Abbrev}|${Package}\\n' | sed -n 's/^[hi]i *|//p' | grep -E "
        "'^(nvidia|libnvidia|libcuda1|libnccl|linux-image|linux-headers|datacenter-gpu-manager)' | "
        "xargs apt-mark -q hold"
    )
    # The trial has built the module already: DKMS shall not do it again. A run that dies in between is repeated.
    off = "/etc/dkms/no-autoinstall"
    return (
        f"case $(cat {STATE}/flavour) in {' '.join(cases)} *) echo 'no kernel module was chosen' >&2; exit 1;; esac; "
        f"if [ ! -e {off} ] || grep -qs klaster {off}; then echo klaster > {off}; ours=yes; fi; "
        f'{APT} --no-install-recommends --allow-change-held-packages install "$@"; status=$?; '
        f'[ -z "$ours" ] || rm -f {off}; [ $status = 0 ] && {TRY} install "$1" && {hold} && '
        f"! dkms status | grep -E '^nvidia.*: (added|built)$' >&2"
    )


def repair_steps(found: GpuState) -> list[Step]:
    """Load the module; where another version is loaded, change it if nobody uses a card, else ask for a reboot."""
    if found.container or not found.cards or not found.library:
        return []
    if found.loaded == found.library:
        return [Step(f"rm -f {REBOOT_MARK}")] if found.reboot else []
    if not found.loaded and not found.nouveau:
        return [Step("modprobe nvidia")]
    if found.nouveau or found.holders:
        by = ", ".join(sorted({line.partition(" ")[2] for line in found.holders}))
        why = "nouveau has the cards" if found.nouveau else f"{by} has a card open"
        text = f"driver {found.library} is installed and {found.loaded or 'none of it'} is loaded; {why}"
        return [] if found.reboot == text else [Step(f"echo {shlex.quote(text)} > {REBOOT_MARK}")]
    reload = "systemctl stop nvidia-persistenced 2>/dev/null; modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia"
    return [Step(f"{{ {reload} && modprobe nvidia; }} || echo 'the module could not be changed' > {REBOOT_MARK}")]


# --- taken away --------------------------------------------------------------------------------------------------


def removal_steps(found: GpuState) -> list[Step]:
    """A node that has no card declared any more: packages, holds and files of ours go; apt is left clean."""
    if not found.ours:
        return []
    ours = ("nvidia", "libnvidia", "libcuda1", "libnccl", "cuda-", "datacenter-gpu-manager")
    gone = sorted(name for name in found.packages if name.startswith(ours))
    held = sorted(set(found.held) & {*gone, *(name for name in found.held if name.startswith("linux-"))})
    steps = [Step(f"apt-mark -q unhold {shlex.join(held)}")] if held else []
    if gone:
        steps.append(Step(f"{APT} --allow-change-held-packages purge {shlex.join(gone)} && {APT} autoremove --purge"))
    steps.append(Step(f"rm -f {shlex.join(OUR_FILES)} && {APT} update && rm -rf {STATE}"))
    return steps


# --- wanted against installed ------------------------------------------------------------------------------------


def version_row(cluster: Cluster, node: Node, found: GpuState) -> tuple[str, ...]:
    """One node: wanted set, module, driver installed and loaded, NCCL, container toolkit, held, what is due."""
    stack = cluster.gpu_stack
    wanted = f"{stack.versions} ({'/'.join(wanted_flavours(stack, node))})" if stack and node.gpus else "none"
    nvidia = {name: version for name, version in found.packages.items() if "nvidia" in name or name.startswith("lib")}
    held = sum(name in found.held for name in nvidia)
    due = [found.reboot] if found.reboot else []
    if found.broken:
        due.append(f"half-configured: {', '.join(found.broken[:3])}")
    if stack and node.gpus and found.distribution in stack.set.distributions:
        chosen = next((one for one in wanted_flavours(stack, node) if one == found.flavour), None)
        if chosen is None or not complete(package_set(stack, node, found.distribution, chosen), found):
            due.append("deploy")
    return (
        node.name, wanted, found.flavour or "-", found.library or "-", found.loaded or "-",
        found.packages.get("libnccl2", "-"), found.packages.get("nvidia-container-toolkit", "-"),
        f"{held}/{len(nvidia)}", "; ".join(due) or "-",
    )  # fmt: skip


def versions_table(cluster: Cluster, states: Mapping[str, GpuState]) -> str:
    """All nodes of the run as one table."""
    head = ("node", "wanted", "module", "installed", "loaded", "NCCL", "container toolkit", "held", "due")
    rows = [head, *(version_row(cluster, cluster.node(name), found) for name, found in states.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


# --- operations --------------------------------------------------------------------------------------------------


def _yielded(steps: Sequence[Step], nothing: str) -> Generator[StringCommand, None, None]:
    if not steps:
        host.noop(nothing)
    for step in steps:
        yield sh(step.command)


@operation()
def install() -> Generator[StringCommand, None, None]:
    """Try the kernel module, then install and hold the set."""
    stack = site.cluster().gpu_stack
    assert stack is not None
    steps = stack_steps(stack, site.node(), host.get_fact(GpuFacts))
    # Under a job the libraries of another driver do not fit the loaded module any more.
    if steps and put_off(["change of the GPU stack"], "jobs here"):
        return
    yield from _yielded(steps, "the set is installed and held")


@operation()
def remove() -> Generator[StringCommand, None, None]:
    steps = removal_steps(host.get_fact(GpuFacts))
    if steps and put_off(["removal of the GPU stack"], "jobs here"):
        return
    yield from _yielded(steps, "no driver of ours is installed")


def _apt_plan_here() -> Tree:
    stack = site.cluster().gpu_stack
    assert stack is not None
    found = host.get_fact(GpuFacts)
    if found.distribution not in stack.set.distributions:
        return Tree()  # `install` refuses it with a sentence
    key = Path(stack.repository_key).expanduser().read_text(encoding="utf-8") if stack.repository_key else ""
    return apt_plan(stack, site.node(), found, key)


def _units(cluster: Cluster, node: Node) -> tuple[Unit, ...]:
    """The persistence daemon needs a card: a rehearsal has none to give."""
    return (Unit("nvidia-persistenced.service"),) if node.gpus and cluster.substrate == "hardware" else ()


def deploy() -> None:
    cluster, node = site.cluster(), site.node()
    if cluster.gpu_stack is None:
        return
    if not node.gpus:
        remove(name="Have no NVIDIA driver where no card is declared")
        return
    configure(
        name="Let apt know the driver's set of versions",
        plan=_apt_plan_here,
        actions={"update-gpu": f"{APT} update"},
    )
    install(name="Install the driver's set of versions, held together")
    configure(
        name="Keep nouveau away and cap the cards' power",
        plan=lambda: node_plan(site.node(), site.lock().nodes.get(host.name)),
        units=_units(cluster, node),
        actions={
            "initramfs": "! command -v update-initramfs >/dev/null || update-initramfs -u",
            "power-cap": "systemctl daemon-reload && systemctl enable --quiet klaster-power-cap.service && "
            "systemctl restart klaster-power-cap.service",
        },
    )
