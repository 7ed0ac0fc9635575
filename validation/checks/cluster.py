"""Stage cluster: all-reduce over several sizes on all compute nodes at once, verified on every rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from inventory.model import Node
from validation.checks.reach import probe_reach
from validation.launch_ranks import Message, Worker
from validation.launcher import Emit, Fleet, FleetError, RanksLost
from validation.model import CollectiveRecord, Level, Stage, TransportRecord
from validation.schedule import circle_rounds
from validation.verdicts import limits

SMALL, MIDDLE = (4 << 10, 20), (1 << 20, 5)
"""Bytes and repetitions: latency, and the size of a gradient bucket."""
GATHER_BYTES = 1 << 20
LARGE_BYTES = {"quick": 16 << 20, "standard": 64 << 20, "burn-in": 64 << 20}
LARGE_REPETITIONS = {"quick": 5, "standard": 5, "burn-in": 20}
LARGE_S = 2.0
"""On a link slower than declared the large size shrinks so that one all-reduce takes no longer."""
PART_ROUNDS, PART_REPETITIONS = 3, 3
"""A node is slow with up to three partners before it is named."""
GROUP_TIMEOUT_S = 30.0
STAGE_TIMEOUT_S = 240.0


def run_cluster(fleet: Fleet, level: Level, emit: Emit) -> None:
    """Emit a CollectiveRecord a size; only to be called when all pairs of compute nodes reach each other.

    If the largest is slow, all-reduces of two nodes at a time follow: by them a node that slows the whole is named.
    """
    records = fleet.persist("cluster", lambda: _attempt(fleet, level, emit))
    for record in records:
        emit(record)
    whole = next((r for r in reversed(records) if isinstance(r, CollectiveRecord)), None)
    due = (fleet.slowest_gbps or 0.0) / limits.COLLECTIVE_SLACK
    if whole and len(whole.nodes) > 2 and whole.busbw_gbps < due:
        for part in fleet.persist("cluster", lambda: _parts(fleet, whole, emit)):
            emit(part)


def _parts(fleet: Fleet, whole: CollectiveRecord, emit: Emit) -> list[CollectiveRecord]:
    """All-reduces of the same size, two nodes each, all of a round at once; each node with up to PART_ROUNDS others."""
    found = []
    for pairs in circle_rounds([node.name for node in fleet.compute_nodes])[:PART_ROUNDS]:
        group, teams = fleet.new_group("all-reduce"), [_team(fleet, pair) for pair in pairs]
        commands: dict[int, Message] = {
            worker.rank: {
                "op": "all_reduce",
                "sizes": [(whole.bytes, PART_REPETITIONS)],
                "gather_bytes": 4,
                "group": f"{group}/{nodes[0].name}",
                "members": [member.peer() for member in workers],
                "timeout_s": GROUP_TIMEOUT_S,
            }
            for nodes, workers in teams
            for worker in workers
        }
        answers = ask_together(fleet, "cluster", commands, emit, timeout_s=STAGE_TIMEOUT_S)
        found += [
            _record(nodes, workers, {worker.rank: answers[worker.rank]["sizes"][0] for worker in workers})
            for nodes, workers in teams
        ]
    return [record.model_copy(update={"part_of": whole.nodes}) for record in found]


def _team(fleet: Fleet, names: Sequence[str]) -> tuple[list[Node], list[Worker]]:
    nodes = [node for node in fleet.compute_nodes if node.name in names]
    return nodes, fleet.ranks_of(nodes)


def _attempt(fleet: Fleet, level: Level, emit: Emit) -> list[CollectiveRecord | TransportRecord]:
    nodes = fleet.compute_nodes
    workers = fleet.ranks_of(nodes)
    if len(workers) < 2:
        return []  # one rank has nobody to reduce with
    sizes = [SMALL, MIDDLE, (large_bytes(level, fleet.slowest_gbps), LARGE_REPETITIONS[level])]
    command: Message = {
        "op": "all_reduce",
        "sizes": sizes,
        "gather_bytes": GATHER_BYTES,
        "group": fleet.new_group("all-reduce"),
        "members": [worker.peer() for worker in workers],
        "timeout_s": GROUP_TIMEOUT_S,
    }
    answers = ask_together(fleet, "cluster", {w.rank: command for w in workers}, emit, timeout_s=STAGE_TIMEOUT_S)
    return [
        transport_record(nodes, workers, answers),
        *collective_records(nodes, workers, answers, len(sizes)),
    ]


def large_bytes(level: Level, slowest_gbps: float | None) -> int:
    """The largest size in whole mebibytes; an all-reduce moves less than twice its bytes over each link."""
    wanted = LARGE_BYTES[level]
    if slowest_gbps:
        wanted = min(wanted, int(slowest_gbps * 1e9 / 8 * LARGE_S / 2))
    return max(MIDDLE[0], wanted >> 20 << 20)


def ask_together(
    fleet: Fleet, stage: Stage, commands: Mapping[int, Message], emit: Emit, *, timeout_s: float
) -> dict[int, Message]:
    """Ranks do their `commands` together. When communication breaks, reach is probed again to say between whom."""
    try:
        answers = fleet.ask(stage, commands, timeout_s=timeout_s, together=True)
        late = commands.keys() - answers.keys()
        if late:
            names = {worker.node for worker in fleet.ranks_of(fleet.nodes) if worker.rank in late}
            fleet.stop()
            what = next(iter(commands.values()))["op"]
            raise FleetError(f"{what} did not end within {timeout_s:g} s on {', '.join(sorted(names))}")
        return answers
    except RanksLost:
        raise
    except FleetError:
        fleet.up(stage)
        for record in probe_reach(fleet, fleet.compute_nodes, stage=stage):
            emit(record)
        raise


def transport_record(
    nodes: Sequence[Node], workers: Sequence[Worker], answers: Mapping[int, Message]
) -> TransportRecord:
    """What each node did not get as it was sent, by the node it came from."""
    node_of = {worker.rank: worker.node for worker in workers}
    wrong = {
        node.name: tuple(
            dict.fromkeys(node_of[r] for w in workers if w.node == node.name for r in answers[w.rank]["wrong_from"])
        )
        for node in nodes
    }
    return TransportRecord(nodes=tuple(node.name for node in nodes), bytes=GATHER_BYTES, wrong=wrong)


def collective_records(
    nodes: Sequence[Node], workers: Sequence[Worker], answers: Mapping[int, Message], sizes: int
) -> list[CollectiveRecord]:
    """A record a size: each repetition takes as long as its slowest rank."""
    return [
        _record(nodes, workers, {worker.rank: answers[worker.rank]["sizes"][index] for worker in workers})
        for index in range(sizes)
    ]


def _record(nodes: Sequence[Node], workers: Sequence[Worker], found: Mapping[int, Message]) -> CollectiveRecord:
    size, ranks = next(iter(found.values()))["bytes"], len(workers)
    seconds = tuple(max(times) for times in zip(*(one["seconds"] for one in found.values()), strict=True))
    verified = {
        node.name: all(found[worker.rank]["verified"] for worker in workers if worker.node == node.name)
        for node in nodes
    }
    idle = [one["idle_share"] for one in found.values() if one["idle_share"] is not None]
    return CollectiveRecord(
        op="all_reduce",
        nodes=tuple(node.name for node in nodes),
        bytes=size,
        seconds=seconds,
        busbw_gbps=round(size * 8 / 1e9 / median(seconds) * 2 * (ranks - 1) / ranks, 5),
        verified=verified,
        idle_share=min(idle, default=None),
    )
