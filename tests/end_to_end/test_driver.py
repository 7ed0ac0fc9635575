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
    """One bare Debian 13 node; gone afterwards."""
    lab = write_trial(tmp_path, 1)
    lab.lab("up", lab.inventory, timeout_s=900)
    try:
        yield lab
    finally:
        lab.lab("down")


def declare(lab: Lab, flavour: str, *, card: bool = True) -> Lab:
    """The same lab, whose head has a card (or not) and a stack of this flavour."""
    text = Path(lab.inventory).read_text(encoding="utf-8")
    text = text.replace("import Cluster,", "import Cluster, Gpu, GpuStack,")
    text = text.replace('Node(name="head", ', f'Node(name="head", {CARD if card else ""}')
    text = text.replace(
        "    ssh=Ssh(", f'    gpu_stack=GpuStack(versions="debian-550", flavour="{flavour}"),\n    ssh=Ssh('
    )
    path = Path(lab.inventory).with_name(f"{flavour}_{card}.py".lower())
    path.write_text(text, encoding="utf-8")
    return Lab(str(path), lab.name, lab.environment)


def clean(lab: Lab) -> bool:
    """apt and dpkg have nothing to complain of."""
    said = lab.ssh("head", "dpkg --audit; apt-get check -q 2>&1 | grep -i -E 'error|unmet' || true").stdout
    return not said.strip()


@pytest.mark.full
def test_the_driver_of_debian_13(bare: Lab) -> None:
    """The open module's failure to build is found before anything is installed; the proprietary one comes and stays.

    Some 10 minutes on two idle cores.
    """
    refused = run([PYINFRA, declare(bare, "open").inventory, DEPLOY, "-y"], timeout_s=3600, check=False)
    said = refused.stdout + refused.stderr
    assert refused.returncode == 1
    assert "does not build for kernel" in said
    assert "error:" in said
    assert 'flavour="proprietary"' in said
    assert clean(bare)
    assert bare.ssh("head", "dpkg -l | grep -c '^.. *nvidia' || true").stdout.strip() == "0"

    auto = declare(bare, "auto")
    deploy(auto, DEPLOY)
    assert "nvidia-current" in bare.ssh("head", "dkms status | grep ': installed'").stdout
    assert clean(bare)
    assert deploy(auto, DEPLOY).changed == 0
    before = bare.ssh("head", "dpkg -l 'nvidia*' 'linux-*' | grep '^hi'").stdout
    assert "nvidia-kernel-dkms" in before
    assert "linux-headers-amd64" in before
    bare.ssh("head", "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -y -q full-upgrade", timeout_s=900)
    assert bare.ssh("head", "dpkg -l 'nvidia*' 'linux-*' | grep '^hi'").stdout == before

    deploy(declare(bare, "auto", card=False), DEPLOY)
    assert clean(bare)
    assert bare.ssh("head", "apt-mark showhold; dpkg -l | grep -c '^ii *nvidia' || true").stdout.strip() == "0"
    assert deploy(declare(bare, "auto", card=False), DEPLOY).changed == 0
