"""The table of faults by name; put one in, heal them all. What healing needs is on disk before anything is changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lab import fault_gpu, fault_network, fault_rank, fault_resources, fault_system
from lab.errors import CommandFailed, LabError
from lab.fault_model import Fault, Site
from lab.plan import Plan

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for part in (fault_network, fault_system, fault_resources, fault_rank, fault_gpu)
    for fault in part.FAULTS
}
RECORD = "faults.json"
NODES_TAKEN = {"node": "one node or more", "pair": "two nodes", "machine": "no node"}


def by_name(name: str) -> Fault:
    if name in FAULTS:
        return FAULTS[name]
    near = get_close_matches(name, FAULTS, n=1, cutoff=0.5)
    hint = f" (nearest: {near[0]})" if near else ""
    raise LabError(f'no fault "{name}"{hint}; `bin/lab fault` lists them')


def render_list(site: Site | None = None) -> str:
    """All faults with their sentence; those that can't be had here with the reason."""
    width = max(map(len, FAULTS))
    rows = []
    for fault in FAULTS.values():
        why = fault.unable(site)
        takes = "" if fault.takes == "node" else f" ({NODES_TAKEN[fault.takes]})"
        rows.append(f"{fault.name:<{width}}  {fault.sentence}{takes}" + (f" NOT HERE: {why}." if why else ""))
    return "\n".join(rows)


def render_table() -> str:
    """The same for a page: a row a fault, whatever this machine can."""
    rows = [f"| `{fault.name}` | {fault.sentence} | {NODES_TAKEN[fault.takes]} |" for fault in FAULTS.values()]
    return "\n".join(["| fault | what is broken | takes |", "| --- | --- | --- |", *rows])


def put_in(plan: Plan, name: str, nodes: Sequence[str]) -> None:
    """Put a fault into nodes; LabError, with nothing changed, where that can't be done."""
    fault = by_name(name)
    sites = _sites(plan, fault, nodes)
    there = {(entry["fault"], entry["node"]) for entry in _read(plan)}
    for site in sites:
        if (name, site.node.name) in there:
            raise LabError(f"{site.node.name} has the fault {name} already: `bin/lab heal` first")
        if why := fault.unable(site):
            raise LabError(f"{name}: {why}")
    for site in sites:
        memory = fault.remember(site)
        entry = {"fault": name, "node": site.node.name, "memory": memory}
        if site.partner:
            entry["partner"] = site.partner.name
        _write(plan, [*_read(plan), entry])
        fault.put(site)


def _sites(plan: Plan, fault: Fault, names: Sequence[str]) -> list[Site]:
    right = {"node": len(names) >= 1, "pair": len(names) == 2, "machine": not names}[fault.takes]
    if not right or len(set(names)) != len(names):
        given = ", ".join(names) or "none"
        raise LabError(f"{fault.name} takes {NODES_TAKEN[fault.takes]}, each once; given: {given}")
    nodes = [plan.node(name) for name in names]
    if fault.takes == "pair":
        return [Site(plan, nodes[0], nodes[1], name=fault.name)]
    return [Site(plan, node, name=fault.name) for node in nodes or plan.nodes[:1]]


def heal(plan: Plan) -> list[str]:
    """Undo every fault that is recorded, the last one first; what was undone. LabError with what could not be."""
    healed, troubles = [], []
    entries = _read(plan)
    for entry in reversed(list(entries)):
        fault, node = FAULTS.get(entry["fault"]), plan.node(entry["node"])
        partner = plan.node(entry["partner"]) if "partner" in entry else None
        try:
            if fault:
                fault.undo(Site(plan, node, partner, name=fault.name), entry["memory"])
        except (CommandFailed, LabError, OSError) as error:
            troubles.append(f"{entry['fault']} of {node.name}: {error}")
            continue
        entries.remove(entry)
        _write(plan, entries)
        healed.append(f"{entry['fault']} of {node.name}")
    if troubles:
        raise LabError(f"could not undo {'; '.join(troubles)}; the rest is healed: run it again")
    return healed


def present(plan: Plan) -> list[str]:
    """What is put in now, a line each."""
    return [
        " ".join(filter(None, (entry["fault"], "of", entry["node"], entry.get("partner", "")))) for entry in _read(plan)
    ]


def _file(plan: Plan) -> Path:
    return Path(plan.state_dir) / RECORD


def _read(plan: Plan) -> list[dict[str, Any]]:
    try:
        found = json.loads(_file(plan).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    assert isinstance(found, list)
    return found


def _write(plan: Plan, entries: Sequence[dict[str, Any]]) -> None:
    target = _file(plan)
    new = target.with_suffix(".new")
    new.write_text(json.dumps(entries), encoding="utf-8")
    new.replace(target)
