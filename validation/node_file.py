"""What was gathered of the nodes, as one file between the run and the pytest process that judges it."""

from __future__ import annotations

import json
from pathlib import Path

from inventory.hardware import HardwareLock
from inventory.model import Cluster
from validation.checks.node import Clock, Gathered
from validation.slurm_state import SlurmNode


def save(gathered: Gathered, path: Path) -> None:
    document = {
        "cluster": gathered.cluster.model_dump(mode="json"),
        "lock": gathered.lock.model_dump(mode="json"),
        "probes": gathered.probes,
        "unreachable": gathered.unreachable,
        "no_probe": gathered.no_probe,
        "clocks": {name: vars(clock) for name, clock in gathered.clocks.items()},
        "munge": gathered.munge,
        "shared": gathered.shared,
        "slurm": None if gathered.slurm is None else [n.model_dump(mode="json") for n in gathered.slurm.values()],
    }
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load(path: Path) -> Gathered:
    document = json.loads(path.read_text(encoding="utf-8"))
    slurm = document["slurm"]
    return Gathered(
        cluster=Cluster.model_validate(document["cluster"]),
        lock=HardwareLock.model_validate(document["lock"]),
        probes=document["probes"],
        unreachable=document["unreachable"],
        no_probe=document["no_probe"],
        clocks={name: Clock(**clock) for name, clock in document["clocks"].items()},
        munge=document["munge"],
        shared=document.get("shared", {}),
        slurm=None if slurm is None else {n["name"]: SlurmNode.model_validate(n) for n in slurm},
    )
