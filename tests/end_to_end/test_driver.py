"""NVIDIA's real packages in a lab node: found not to build, or built, installed, held, kept and taken away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.deploys import PYINFRA, deploy
from tests.lab.handle import Lab, run
from tests.lab.trial import write_trial

DEPLOY = "tests/end_to_end/gpu_only.py"
CARD = 'gpus=(Gpu(model="NVIDIA A10G"),), '


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Lab]:
    """A lab of one node, not up yet; gone afterwards."""
    lab = write_trial(tmp_path, 1)
    try:
        yield lab
    finally:
        lab.lab("down")


def declare(lab: Lab, flavour: str, *, card: bool = True, versions: str = "debian-550") -> Lab:
    """The same lab, whose head has a card (or not) and a stack of this flavour."""
    text = Path(lab.inventory).read_text(encoding="utf-8")
    text = text.replace("import Cluster,", "import Cluster, Gpu, GpuStack,")
    text = text.replace('Node(name="head", ', f'Node(name="head", {CARD if card else ""}')
    text = text.replace(
        "    ssh=Ssh(", f'    gpu_stack=GpuStack(versions="{versions}", flavour="{flavour}"),\n    ssh=Ssh('
    )
    path = Path(lab.inventory).with_name(f"{flavour}_{card}.py".lower())
    path.write_text(text, encoding="utf-8")
    return Lab(str(path), lab.name, lab.environment)


def clean(lab: Lab) -> bool:
    """apt and dpkg have nothing to complain of."""
    said = lab.ssh("head", "dpkg --audit; apt-get check -q 2>&1 | grep -i -E 'error|unmet' || true").stdout
    return not said.strip()


def refused(lab: Lab) -> str:
    """What a deploy says that must fail; nothing of NVIDIA is installed then, and apt is clean."""
    done = run([PYINFRA, lab.inventory, DEPLOY, "-y"], timeout_s=3600, check=False)
    assert done.returncode == 1
    assert clean(lab)
    assert lab.ssh("head", "dpkg -l | grep -c '^.. *nvidia' || true").stdout.strip() == "0"
    return done.stdout + done.stderr


def comes_and_stays(lab: Lab) -> None:
    """The set is installed and held with the kernel, survives an upgrade, and a second run changes nothing."""
    deploy(lab, DEPLOY)
    assert "nvidia-current" in lab.ssh("head", "dkms status | grep ': installed'").stdout
    assert clean(lab)
    assert deploy(lab, DEPLOY).changed == 0
    before = lab.ssh("head", "dpkg -l 'nvidia*' 'linux-*' | grep '^hi'").stdout
    assert "nvidia-kernel-dkms" in before
    assert "linux-headers-" in before
    lab.ssh("head", "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -y -q full-upgrade", timeout_s=900)
    assert lab.ssh("head", "dpkg -l 'nvidia*' 'linux-*' | grep '^hi'").stdout == before


def goes(lab: Lab) -> None:
    """Taken out of the inventory, nothing of it is left, and apt is clean."""
    deploy(lab, DEPLOY)
    assert clean(lab)
    assert lab.ssh("head", "apt-mark showhold; dpkg -l | grep -c '^ii *nvidia' || true").stdout.strip() == "0"
    assert deploy(lab, DEPLOY).changed == 0


@pytest.mark.full
def test_the_driver_of_debian_13(bare: Lab) -> None:
    """The open module's failure to build is found before anything is installed; the proprietary one comes and stays.

    Some 10 minutes on two idle cores.
    """
    bare.lab("up", bare.inventory, timeout_s=900)
    said = refused(declare(bare, "open"))
    assert "does not build for kernel" in said
    assert "error:" in said
    assert 'flavour="proprietary"' in said
    comes_and_stays(declare(bare, "auto"))
    goes(declare(bare, "auto", card=False))


@pytest.mark.full
def test_the_driver_of_debian_12(bare: Lab) -> None:
    """The role alone: the open module does not fit its set there, which is found first; the proprietary one comes.

    Some 5 minutes on two idle cores.
    """
    bare.lab("up", bare.inventory, "--suite", "bookworm", timeout_s=900)
    said = refused(declare(bare, "open", versions="debian-535"))
    assert "can't be installed with its set" in said
    assert 'flavour="proprietary"' in said
    comes_and_stays(declare(bare, "auto", versions="debian-535"))
    goes(declare(bare, "auto", card=False, versions="debian-535"))
