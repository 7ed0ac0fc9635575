"""Verdict on cards in containers: a CUDA step in the training image of the cluster's own registry."""

from __future__ import annotations

import json
import re

from validation.checks.gpu import NO_GPU, has_gpus
from validation.checks.node import Finding, Subject, answer, failed, inconclusive, not_applicable, passed, problem

REQUIRED, ORIGIN = "train-cuda:stable of the registry multiplies right on a card", "computed"
RIGHT = 512.0**3
"""The sum over the square of a 512 × 512 matrix of ones."""
MISSING = re.compile(r"manifest unknown|not found|name unknown", re.IGNORECASE)


def gpu_container(subject: Subject) -> Finding:
    """What a job in a container would meet: registry, image, CDI's description of the cards, driver and CUDA."""
    if not has_gpus(subject):
        return not_applicable(NO_GPU)
    stack = subject.cluster.gpu_stack
    if stack is None or not stack.set.container_toolkit:
        return not_applicable("no container toolkit: its set of versions has none")
    if why := problem(subject.probe, "gpu_container"):
        return not_applicable(why)
    found = answer(subject.probe, "gpu_container")
    said = str(found["said"])
    if found["status"] and MISSING.search(said):
        remedy = "build it (deploys/images.py) and promote it to :stable as docs/containers.md says"
        return inconclusive(f"no image: {said[:200]}", remedy, REQUIRED, ORIGIN, "gpu-container")
    remedy = "on the node: nvidia-ctk cdi list; systemctl start klaster-cdi; then the same podman run by hand"
    if found["status"]:
        return failed(said[:300] or f"status {found['status']}", REQUIRED, ORIGIN, "gpu-container", remedy)
    try:
        told = json.loads(said)
        measured, total = f"{told['card']}, CUDA {told['cuda']}, sum {told['sum']:g}", float(told["sum"])
    except (ValueError, KeyError, TypeError):
        return inconclusive(f"answer of no known form: {said[:200]}", remedy, REQUIRED, ORIGIN, "gpu-container")
    if total != RIGHT:
        return failed(measured, f"sum {RIGHT:g}", ORIGIN, "gpu-container", remedy)
    return passed(measured, REQUIRED, ORIGIN)
