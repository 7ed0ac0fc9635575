"""A CUDA step in a container: what podman said, judged."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from inventory.gpu_stack import GpuStack
from tests.validation.test_gpu_checks import fleet
from validation.checks.gpu_container import gpu_container
from validation.checks.node import Finding
from validation.model import Outcome

STACK = GpuStack(versions="nvidia-580", repository_url="https://packages.example/x", repository_key="/root/k.asc")
GOOD = '{"cuda": "13.0", "card": "NVIDIA A10G", "sum": 134217728.0}'


def judged(answer: dict[str, Any], stack: GpuStack | None = STACK) -> Finding:
    gathered = fleet("eight")
    probes = {**gathered.probes, "n3": {**gathered.probes["n3"], "gpu_container": answer}}
    cluster = gathered.cluster.model_copy(update={"gpu_stack": stack})
    return gpu_container(dataclasses.replace(gathered, probes=probes, cluster=cluster).subject("n3"))


@pytest.mark.parametrize(
    ("said", "status", "outcome"),
    [
        (GOOD, 0, Outcome.PASS),
        (GOOD.replace("134217728.0", "134217727.0"), 0, Outcome.FAIL),
        ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", 126, Outcome.FAIL),
        ("no answer in 180 s", 124, Outcome.FAIL),
        ("Error: reading manifest stable in head:5000/train-cuda: manifest unknown", 125, Outcome.INCONCLUSIVE),
        ("hello", 0, Outcome.INCONCLUSIVE),
        ('{"cuda": "13.0"}', 0, Outcome.INCONCLUSIVE),
    ],
)
def test_what_podman_said_is_judged(said: str, status: int, outcome: Outcome) -> None:
    """Right, wrong, no cards, no end: a verdict; no image, and words of no known form: none, with what to do."""
    found = judged({"ok": {"said": said, "status": status}})
    assert found.outcome is outcome
    assert outcome is Outcome.PASS or found.remedy


def test_it_is_asked_only_where_it_can_be() -> None:
    """Without NVIDIA's toolkit, and where cards are recordings, no container can have one."""
    assert (
        judged({"ok": {"said": GOOD, "status": 0}}, GpuStack(versions="debian-550")).outcome is Outcome.NOT_APPLICABLE
    )
    assert judged({"error": "simulated cards can't be handed to a container"}).outcome is Outcome.NOT_APPLICABLE
