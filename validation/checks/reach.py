"""The TCP probe of all ordered pairs: high ports on every node, short deadlines, all side by side."""

from __future__ import annotations

from collections.abc import Sequence

from inventory.model import Node
from validation.launch_ranks import Message
from validation.launcher import Fleet
from validation.model import ReachRecord, Stage

CONNECT_TIMEOUT_S = 3.0
"""A lost SYN is sent again after 1 s: one loss is not a dead link."""


def probe_reach(fleet: Fleet, nodes: Sequence[Node], *, stage: Stage) -> list[ReachRecord]:
    """One record an ordered pair: ok only if all ports that the destination listens on answer with its name."""
    names = [node.name for node in nodes]
    leads = {name: fleet.lead(name) for name in names}
    listening = fleet.ask(stage, {lead.rank: {"op": "listen"} for lead in leads.values()}, timeout_s=10)
    ports = {name: listening.get(lead.rank, {}).get("ports", []) for name, lead in leads.items()}
    commands: dict[int, Message] = {}
    for src in names:
        targets = [(dst, leads[dst].address, port) for dst in names if dst != src for port in ports[dst]]
        commands[leads[src].rank] = {"op": "reach", "targets": targets, "timeout_s": CONNECT_TIMEOUT_S}
    answers = fleet.ask(stage, commands, timeout_s=CONNECT_TIMEOUT_S + 10)
    number = fleet.rounds
    return [
        _record(src, dst, ports[dst], answers.get(leads[src].rank, {}).get("answers", []), number)
        for src in names
        for dst in names
        if src != dst
    ]


def _record(src: str, dst: str, ports: Sequence[int], answers: Sequence[Message], number: int) -> ReachRecord:
    """The first port that failed stands for the pair, else the first port."""
    if not ports:
        return ReachRecord(src=src, dst=dst, port=0, ok=False, error="no-listener", round=number)
    mine = [answer for answer in answers if answer["node"] == dst]
    bad = next((answer for answer in mine if not answer["ok"]), None)
    if len(mine) < len(ports) and bad is None:
        return ReachRecord(src=src, dst=dst, port=ports[0], ok=False, error="no-answer", round=number)
    shown = bad or mine[0]
    failed = sum(not answer["ok"] for answer in mine)
    part = f" ({failed} of {len(mine)} ports)" if bad and failed < len(mine) else ""
    return ReachRecord(
        src=src,
        dst=dst,
        port=shown["port"],
        ok=bad is None,
        connect_ms=shown["connect_ms"],
        error=shown["error"] + part,
        round=number,
    )
