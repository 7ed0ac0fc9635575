"""Verdict on where a node's cards, network ports and cores lie to each other, and whether Slurm hands them out so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from validation.checks.gpu import NO_GPU, card, has_gpus
from validation.checks.gpu_smi import bus_id
from validation.checks.node import Finding, Subject, answer, failed, inconclusive, not_applicable, passed, problem

SYSFS = "the machine's own tables (/sys)"
BESIDE = "a rank runs on the cores beside its card"


def cpu_set(text: str) -> frozenset[int]:
    """The kernel's `0-3,8,10-11` as numbers; ValueError for anything else."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        if part:
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def slurm_cores(said: str) -> dict[int, str]:
    """Card's number → cores as Slurm counts them, from `slurmd -G`; none where Slurm knows no cores.

    Cards with the same cores are one line: `Gres Name=gpu … Count=4 … File=/dev/nvidia[0-3] Cores=0-31 …`.
    """
    found = {}
    for line in said.splitlines():
        cores, file = re.search(r"\bCores=([\d,-]+)", line), re.search(r"\bFile=\S*/nvidia\[?([\d,-]+)\]?", line)
        if "Gres Name=gpu" in line and cores and file:
            found.update(dict.fromkeys(sorted(cpu_set(file[1])), cores[1]))
    return found


def gpu_numa(subject: Subject) -> Finding:
    """Distance of each card to the port that collectives use; Slurm must bind to the cores beside a card."""
    if not has_gpus(subject):
        return not_applicable(NO_GPU)
    if problem(subject.probe, "gpu_numa").startswith("not there"):
        return not_applicable("the kernel has no table of memory nodes")
    found: dict[str, Any] = answer(subject.probe, "gpu_numa")
    nodes, cards = found["nodes"], {bus_id(name): one for name, one in found["cards"].items()}
    if len(nodes) < 2:
        return passed("one memory node: everything is equally near", BESIDE, SYSFS)
    lost = sorted(name for name, one in cards.items() if str(one["node"]) not in nodes)
    if lost or not cards:
        remedy = "switch NUMA on in the firmware (one node a socket) and update it; then run again"
        what = f"the firmware does not say where {', '.join(lost) or 'the cards'} are"
        return inconclusive(what, remedy, BESIDE, SYSFS, "gpu-numa")
    if wrong := _wrongly_bound(subject, cards) or _wrongly_known(subject, cards, found["slurmd"]):
        return wrong
    port = subject.compute_interface
    at = {name: one["node"] for name, one in cards.items()}
    seen = [f"{name} node {node}{_distance(nodes, node, found['ports'], port)}" for name, node in at.items()]
    known = slurm_cores(found["slurmd"])
    advice = "" if known else "Slurm does not know which cores are beside which card: jobs may run on the far ones"
    return passed("; ".join(seen), BESIDE, SYSFS, advice=advice)


def _distance(nodes: Mapping[str, Any], node: int, ports: Mapping[str, int], port: str) -> str:
    at = ports.get(port, -1)
    row = nodes[str(node)]["distance"]
    return f", distance to {port} {row[at]}" if 0 <= at < len(row) else ""


def _wrongly_bound(subject: Subject, cards: Mapping[str, Any]) -> Finding | None:
    """What tasks of a real job were given, a card each: only asked on nodes that are in service."""
    if problem(subject.probe, "gpu_binding"):
        return None
    for task in answer(subject.probe, "gpu_binding"):
        where = bus_id(task["card"])
        if where in cards and not cpu_set(task["cpus"]) <= cpu_set(cards[where]["cpus"]):
            return _failed(subject, where, f"a task with {where} runs on cores {task['cpus']}", cards[where]["cpus"])
    return None


def _wrongly_known(subject: Subject, cards: Mapping[str, Any], said: str) -> Finding | None:
    """Slurm counts cores in its own way: so only which cards share cores is compared."""
    known = slurm_cores(said)
    order = list(cards)
    for index, cores in known.items():
        for other, others in known.items():
            if other <= index or max(index, other) >= len(order):
                continue
            together = cards[order[index]]["node"] == cards[order[other]]["node"]
            if together != (cores == others):
                what = f"Slurm holds cores {cores} for {order[index]} and {others} for {order[other]}"
                near = "one memory node" if together else "different memory nodes"
                return _failed(subject, order[index], what, f"as both are on {near}")
    return None


def _failed(subject: Subject, where: str, measured: str, required: str) -> Finding:
    return failed(
        measured, f"{BESIDE}: {required}", SYSFS, "gpu-binding",
        "scontrol show config | grep TaskPlugin (task/affinity, task/cgroup); gres.conf: AutoDetect; then deploy again",
        culprit_kind="configuration", culprit=f"binding of {card(subject, where)}",
    )  # fmt: skip
