"""Faults of simulated NVIDIA cards: another recording is played."""

from __future__ import annotations

from pathlib import Path

from lab import simulated_gpu
from lab.errors import LabError
from lab.fault_model import Fault, Memory, Site

FOLDER = Path("/") / simulated_gpu.FOLDER


def _playing(site: Site) -> str:
    try:
        return site.path(str(FOLDER / "name")).read_text().strip()
    except OSError:
        return ""


def _before(site: Site) -> Memory:
    if not (name := _playing(site)):
        here = site.node.name
        raise LabError(f"{here} has no simulated card to break: `bin/lab gpu {here} eight` and a deploy come first")
    return {"recording": name}


def _back(site: Site, memory: Memory) -> None:
    if site.init and _playing(site) != memory["recording"]:
        simulated_gpu.put_in(site.plan, site.node, memory["recording"])


def _gpu(name: str, sentence: str, recording: str) -> Fault:
    def put(site: Site) -> None:
        simulated_gpu.put_in(site.plan, site.node, recording)

    return Fault(name, sentence, put, _back, _before)


FAULTS = (
    _gpu("gpu-lost", "Seven of eight simulated cards are left.", "seven-of-eight"),
    _gpu("gpu-fell-off", "The kernel log of simulated cards has Xid 79.", "xid-79"),
    _gpu("gpu-memory", "A simulated card has uncorrectable memory errors.", "ecc-uncorrectable"),
    _gpu("gpu-slow-slot", "A simulated card runs at PCIe generation 1 under load.", "gen1-under-load"),
    _gpu("gpu-driver", "The simulated driver's module and library differ.", "driver-mismatch"),
    _gpu("gpu-hangs", "The simulated nvidia-smi does not end.", "hangs"),
    _gpu("gpu-hot", "A simulated card is braked by heat.", "hot"),
    _gpu("gpu-wrong", "A simulated card computes wrong results.", "wrong-results"),
    _gpu("gpu-slow", "A simulated card is slower than its like.", "slow-card"),
)
