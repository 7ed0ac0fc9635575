"""The GPU role: facts in, commands out; what is refused first, what is held, what is taken away."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from inventory.gpu_stack import GpuStack
from inventory.hardware import FoundGpu
from inventory.model import Cluster, Gpu, Node
from roles import gpu
from roles.facts.gpu import Card, GpuState, parse_gpu_state
from roles.operations.gpu_packages import non_free_lines, package_set
from roles.operations.template import render
from tests.roles.sample import cluster, found

KERNEL = "6.12.118+deb13-amd64"
DEBIAN = GpuStack(versions="debian-550")
NVIDIA = GpuStack(versions="nvidia-580", repository_url="https://packages.example/x", repository_key="/root/k.asc")
UBUNTU = GpuStack(versions="ubuntu-580")


LIBRARIES = "libcuda1,libnvidia-ml1,libnvidia-ptxjitcompiler1,libnvidia-nvvm4"
REST = f"{LIBRARIES},nvidia-smi,nvidia-persistenced,nvidia-modprobe,libnccl2"
OPEN = f"open:nvidia-open-kernel-dkms,{REST},nvidia-kernel-dkms-"
PROPRIETARY = f"proprietary:nvidia-kernel-dkms,{REST},nvidia-open-kernel-dkms-"


def node(model: str = "NVIDIA A10G", **fields: Any) -> Node:
    return Node(name="n2", address="10.0.0.3", gpus=(Gpu(model=model, **fields),))


def bare(**changes: Any) -> GpuState:
    """A Debian 13 machine with a card and nothing of NVIDIA's."""
    state = GpuState(
        cards=[Card("0000:01:00.0", "0x2237", "")],
        distribution=("debian", "13"),
        kernel=KERNEL,
        images=[KERNEL],
        headers=[KERNEL],
        boot_mib=500,
        sources=["deb http://mirror.example/debian trixie main"],
    )
    return dataclasses.replace(state, **changes)


def done(stack: GpuStack = DEBIAN, distribution: tuple[str, str] = ("debian", "13"), **changes: Any) -> GpuState:
    """The same after a deploy of the proprietary module."""
    names = package_set(stack, node(), distribution, "proprietary").plain_names
    version = f"{stack.set.driver}.163.01-2"
    packages = {name: "2.22.3-1-1" if name == "libnccl2" else version for name in names}
    packages |= {"linux-headers-amd64": "6.12.118-1", "linux-image-amd64": "6.12.118-1"}
    values: dict[str, Any] = {
        "distribution": distribution,
        "packages": packages,
        "held": list(packages),
        "flavour": "proprietary",
        "ours": True,
        "dkms": [f"nvidia-current/550.163.01, {KERNEL}, x86_64: installed"],
        "library": "550.163.01",
        "loaded": "550.163.01",
    }
    return bare(**{**values, **changes})


def commands(stack: GpuStack, some: Node, state: GpuState) -> list[str]:
    return [step.command for step in gpu.stack_steps(stack, some, state)]


def test_the_module_is_tried_before_anything_is_installed() -> None:
    """Tools and headers first, then the trial of the preferred and the second module, then the set, then the hold."""
    tools, trial, install = commands(DEBIAN, node(), bare())
    assert f"linux-headers-amd64 linux-headers-{KERNEL}" in tools
    assert trial == f"{gpu.TRY} 2 {OPEN} {PROPRIETARY}"
    assert "open) set -- nvidia-open-kernel-dkms libcuda1" in install
    assert "nvidia-kernel-dkms-" in install
    assert "apt-mark -q hold" in install


def test_debian_12_is_asked_for_what_it_has() -> None:
    """Its archive has neither NCCL nor a compiler of its own library: asked for them, apt refuses the whole set."""
    old = package_set(GpuStack(versions="debian-535"), node(), ("debian", "12"), "proprietary")
    assert {"libnccl2", "libnvidia-nvvm4"}.isdisjoint(old.names)
    assert {"libnccl2", "libnvidia-nvvm4"} <= set(package_set(DEBIAN, node(), ("debian", "13"), "proprietary").names)


def test_a_named_module_is_the_only_one_that_may_be_taken() -> None:
    """With flavour=open the other is tried only so as to say that it would work."""
    stack = GpuStack(versions="debian-550", flavour="open")
    _, trial, install = commands(stack, node(), bare())
    assert trial == f"{gpu.TRY} 1 {OPEN} {PROPRIETARY}"
    assert "proprietary)" not in install


def test_an_old_card_gets_the_proprietary_module_only() -> None:
    """Pascal has no open module: it is not even tried."""
    assert commands(DEBIAN, node("Quadro P2000"), bare())[1] == f"{gpu.TRY} 1 {PROPRIETARY}"


def test_a_second_run_changes_nothing() -> None:
    """Installed, held, built for every kernel and loaded: no command."""
    assert commands(DEBIAN, node(), done()) == []


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("a package is missing", {"packages": {"nvidia-smi": "550.163.01-2"}}),
        ("a hold is missing", {"held": ["nvidia-smi"]}),
        ("a new kernel has no module", {"images": [KERNEL, "6.13"], "headers": [KERNEL, "6.13"]}),
        ("the module was built and not installed", {"dkms": [f"nvidia-current/550.163.01, {KERNEL}, x86_64: built"]}),
        ("the other module was chosen before", {"flavour": "open"}),
    ],
)
def test_what_is_not_complete_is_installed_again(what: str, changes: dict[str, Any]) -> None:
    """Each part of a complete set that is missing brings the trial and the installation back."""
    assert len(commands(DEBIAN, node(), done(**changes))) == 3, what


def test_another_branch_of_the_driver_is_replaced() -> None:
    """A driver of another branch than the set's is not complete."""
    state = done()
    state.packages["nvidia-smi"] = "535.1-1"
    assert commands(DEBIAN, node(), state) != []


def test_an_interrupted_dpkg_is_repaired_first() -> None:
    """Half-configured packages are repaired before apt is asked for anything else."""
    assert "dpkg --configure -a" in commands(DEBIAN, node(), bare(broken=["nvidia-kernel-dkms"]))[0]


REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("another distribution", {"distribution": ("ubuntu", "24.04")}, "runs ubuntu 24.04"),
    ("an old runfile", {"runfile": "/usr/bin/nvidia-uninstall"}, "/usr/bin/nvidia-uninstall"),
    ("no card on the bus", {"cards": []}, "no NVIDIA card"),
    ("Secure Boot without a key", {"secure_boot": True}, "mokutil --import"),
    ("a full /boot", {"boot_mib": 20}, "20 MiB"),
]


@pytest.mark.parametrize(("what", "changes", "words"), REFUSALS, ids=[row[0] for row in REFUSALS])
def test_the_preflight_refuses_with_a_remedy(what: str, changes: dict[str, Any], words: str) -> None:
    """What would fail later fails before a package is installed, in one sentence, and only that is done."""
    steps = gpu.stack_steps(DEBIAN, node(), bare(**changes))
    assert [step.refusal for step in steps] == [True]
    assert words in steps[0].command


def test_an_enrolled_key_lets_secure_boot_pass() -> None:
    """Secure Boot with the key enrolled is no obstacle."""
    assert len(commands(DEBIAN, node(), bare(secure_boot=True, key_enrolled=True))) == 3


MISMATCHES: list[tuple[dict[str, Any], str]] = [
    ({"loaded": ""}, "modprobe nvidia"),
    ({"loaded": "550.144.03"}, "modprobe -r nvidia_uvm"),
    ({"loaded": "550.144.03", "holders": ["812 Xorg"]}, "Xorg has a card open"),
    ({"loaded": "", "nouveau": True}, "nouveau has the cards"),
    ({"reboot": "old reason"}, "rm -f"),
]


@pytest.mark.parametrize(("changes", "words"), MISMATCHES)
def test_a_driver_that_differs_from_its_library_is_repaired_or_waits(changes: dict[str, Any], words: str) -> None:
    """A free module is changed; one in use is left alone, who uses it is named, and a reboot is written down."""
    (command,) = commands(DEBIAN, node(), done(**changes))
    assert words in command


def test_a_reboot_that_is_written_down_is_no_change() -> None:
    """The same reason again changes nothing."""
    state = done(loaded="550.144.03", holders=["812 Xorg"])
    reason = "driver 550.163.01 is installed and 550.144.03 is loaded; Xorg has a card open"
    assert commands(DEBIAN, node(), dataclasses.replace(state, reboot=reason)) == []


@pytest.mark.parametrize(
    ("stack", "distribution", "model", "expected"),
    [
        (NVIDIA, ("debian", "13"), "NVIDIA A10G", ["nvidia-kernel-open-dkms", "nvidia-driver-cuda",
                                                   "libnvidia-container1=1.17.8-1"]),
        (NVIDIA, ("ubuntu", "24.04"), "NVIDIA A10G", ["nvidia-dkms-580-open", "libnvidia-compute-580"]),
        (UBUNTU, ("ubuntu", "24.04"), "NVIDIA A10G", ["nvidia-dkms-580-server-open", "nvidia-utils-580-server"]),
        (UBUNTU, ("ubuntu", "24.04"), "Quadro P2000", ["nvidia-dkms-580-server"]),
    ],
)  # fmt: skip
def test_other_sources_have_their_own_names(
    stack: GpuStack, distribution: tuple[str, str], model: str, expected: list[str]
) -> None:
    """NVIDIA's repository and Ubuntu's server drivers: the commands only; nobody has run them."""
    text = " ".join(commands(stack, node(model), bare(distribution=distribution)))
    assert [name for name in expected if name not in text] == []


def test_dcgm_is_not_for_consumer_cards() -> None:
    """DCGM and fabric manager are installed where they are wanted and the cards are a data centre's."""
    stack = NVIDIA.model_copy(update={"dcgm": True, "nvswitch": True})
    for model, wanted in (("NVIDIA A100-SXM4-80GB", True), ("NVIDIA GeForce RTX 4090", False)):
        names = package_set(stack, node(model), ("debian", "13"), "open").names
        assert ("datacenter-gpu-manager-4-cuda13" in names) is wanted
        assert "nvidia-fabricmanager-580" in names


DEB822 = """\
Types: deb
URIs: http://mirror.example/debian
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/x.gpg
"""


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["deb http://mirror.example/debian trixie main"],
         ["deb http://mirror.example/debian trixie contrib non-free non-free-firmware"]),
        (DEB822.splitlines(), [f"deb [signed-by=/usr/share/keyrings/x.gpg] http://mirror.example/debian {suite} "
                               "contrib non-free non-free-firmware" for suite in ("trixie", "trixie-updates")]),
        (["deb http://mirror.example/debian trixie main non-free"], []),
        (["# deb http://mirror.example/debian trixie main"], []),
    ],
)  # fmt: skip
def test_non_free_comes_from_the_machines_own_mirror(sources: list[str], expected: list[str]) -> None:
    """Both formats of apt's sources give the lines; a machine that has non-free already needs none."""
    assert non_free_lines(sources) == expected


def test_a_node_without_cards_gives_everything_back() -> None:
    """Holds, packages and files go, and apt is asked again without them; a node that never had it is left alone."""
    text = [step.command for step in gpu.removal_steps(done())]
    assert text[0].startswith("apt-mark -q unhold")
    assert "linux-image-amd64" in text[0]
    assert "purge" in text[1]
    assert "linux-image-amd64" not in text[1]
    assert gpu.PREFERENCES in text[2]
    assert gpu.removal_steps(bare()) == []
    refused = gpu.removal_steps(bare(ours=True))  # its module did not build: only files of ours are there
    assert len(refused) == 1


def test_power_caps_go_to_the_right_cards() -> None:
    """A cap is set by the index of the locked card of its model."""
    two = Node(
        name="n2", address="10.0.0.3", gpus=(Gpu(model="NVIDIA A10G"), Gpu(model="NVIDIA L4", power_cap_watts=60))
    )
    cards = tuple(
        FoundGpu(index=i, model=model, uuid=f"GPU-{i}", memory_mib=1, bus_id="x")
        for i, model in enumerate(("NVIDIA L4", "NVIDIA A10G"))
    )
    assert gpu.power_caps(two, found(gpus=cards)) == [(0, 60)]
    unit = next(file for file in gpu.node_plan(two, found(gpus=cards)).files if file.path == gpu.POWER_CAP)
    assert "nvidia-smi -i 0 -pl 60" in unit.content


def test_the_set_is_kept_from_unattended_upgrades() -> None:
    """Pin, exclusion and the trial program are written before apt is asked."""
    files = {file.path: file.content for file in gpu.apt_plan(DEBIAN, node(), bare(), "").files}
    assert "Pin: version 550.*" in files[gpu.PREFERENCES]
    assert "nvidia-modprobe" not in files[gpu.PREFERENCES]  # it has a version of its own
    assert '"^linux-image"' in files[gpu.UNATTENDED]


FACTS = f"""\
#cards
0000:01:00.0 0x2237 nvidia
#virt
none
#os
debian 13
#kernel
{KERNEL}
#images
{KERNEL}
#headers
{KERNEL}
#boot_mib
412
#secure_boot
SecureBoot enabled
/var/lib/dkms/mok.pub is already enrolled
#holders
812 Xorg
#dkms
nvidia-current/550.163.01, {KERNEL}, x86_64: installed
#held
nvidia-smi
#packages
hi |nvidia-smi|550.163.01-2
iF |nvidia-kernel-dkms|550.163.01-2
rc |libnvidia-ml1|535.1
#flavour
open
#trials
==> trial-nvidia-open-kernel-dkms_550.163.01-2_{KERNEL} <==
nv-pci.c:237:9: error: too few arguments

==> /dev/null <==
""".splitlines()


def test_facts_are_read() -> None:
    """Sections become a state; a half-configured package is broken, a removed one is not there."""
    state = parse_gpu_state(FACTS)
    assert state.cards == [Card("0000:01:00.0", "0x2237", "nvidia")]
    assert (state.secure_boot, state.key_enrolled, state.container) == (True, True, False)
    assert (state.packages, state.broken) == ({"nvidia-smi": "550.163.01-2"}, ["nvidia-kernel-dkms"])
    assert state.kernels == [KERNEL]
    assert "too few arguments" in next(iter(state.trials.values()))
    assert parse_gpu_state([]) == GpuState()


def test_one_table_says_what_is_wanted_and_what_is_there() -> None:
    """Every node is a row; what is due is said."""
    nodes = (Node(name="head", address="10.0.0.1", roles=("controller",)), node())
    some: Cluster = cluster(nodes=nodes, gpu_stack=DEBIAN)
    text = gpu.versions_table(some, {"head": GpuState(), "n2": done(reboot="module in use")})
    rows = text.splitlines()
    assert rows[1].split()[:2] == ["head", "none"]
    assert "debian-550 (open/proprietary)" in rows[2]
    assert "550.163.01" in rows[2]
    assert rows[2].endswith("module in use")
    assert gpu.versions_table(some, {"n2": bare()}).endswith("deploy")


def test_the_trial_program_is_valid_shell(tmp_path: Path) -> None:
    """dash reads it without complaint."""
    file = tmp_path / "try.sh"
    file.write_text(render("gpu", "try-module.sh", {"state": "/var/lib/klaster/gpu"}), encoding="utf-8")
    subprocess.run([shutil.which("dash") or "sh", "-n", str(file)], check=True)
