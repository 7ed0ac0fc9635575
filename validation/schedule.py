"""Who measures with whom in which round, so that no node is in two pairs at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from inventory.model import Node
from validation.model import Level

Pair = tuple[str, str]
Round = tuple[Pair, ...]

SMALL_FLEET = 4
"""Up to here a node has at most three partners: the circle is repeated, because a median needs readings."""
MEDIUM_FLEET = 16
LARGE_FLEET = 64
"""Beyond, the full circle takes the better part of an hour: only level burn-in runs it."""
ROUNDS_WITHOUT_CIRCLE = 6
"""In a large fleet so many rounds already find slow nodes (simulated with 64 and 512); links need the full circle."""
INTRA_ROUNDS = 2
"""Of those, so many inside the leaves, where there are leaves; the others go across and load every uplink fully."""


def circle_rounds(nodes: Sequence[str]) -> list[Round]:
    """Every pair exactly once by the circle method: N−1 rounds for an even N, N rounds with one bye for an odd N."""
    seats: list[str | None] = list(nodes)
    if len(set(nodes)) != len(nodes):
        raise ValueError(f"a node is listed twice: {', '.join(nodes)}; list each once")
    if len(seats) % 2:
        seats.append(None)
    rounds: list[Round] = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append(tuple((a, b) for a, b in facing if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return [pairs for pairs in rounds if pairs]


def circles(node_count: int, level: Level) -> int:
    """How often the circle is repeated; 0 means that a part of one circle is enough at this level."""
    if node_count <= SMALL_FLEET:
        return 2 if level == "quick" else 4
    if node_count <= MEDIUM_FLEET:
        return 1 if level == "quick" else 2
    if level == "burn-in":
        return 1
    return 1 if level == "standard" and node_count <= LARGE_FLEET else 0


def plan_rounds(nodes: Sequence[str], level: Level, leaves: Mapping[str, str] | None = None) -> list[Round]:
    """The rounds of purpose `plan` for this fleet, in order; repeats of a pair are a whole circle apart.

    `leaves`: node → leaf switch. With two or more leaves a round goes either inside the leaves or across, whole leaf
    against whole leaf, so that a weak uplink shows in every flow over it.
    """
    groups = by_leaf(nodes, leaves or {})
    times = circles(len(nodes), level)
    if len(groups) < 2:
        rounds = circle_rounds(nodes)
        step = 1 if times else max(1, len(rounds) // ROUNDS_WITHOUT_CIRCLE)
        return rounds * times if times else rounds[::step][:ROUNDS_WITHOUT_CIRCLE]
    inside, across = _inside(groups), _across(groups)
    if times:
        return [*inside, *(pairs for turns in across for pairs in turns)] * times
    return _mixed(_spread(inside, INTRA_ROUNDS), _spread_across(across, ROUNDS_WITHOUT_CIRCLE - INTRA_ROUNDS))


def leaves_of(nodes: Iterable[Node]) -> dict[str, str]:
    """Node → its leaf switch in the network that is measured, for those that hang on one."""
    return {node.name: node.leaf for node in nodes if node.leaf}


def by_leaf(nodes: Sequence[str], leaves: Mapping[str, str]) -> list[list[str]]:
    """The nodes of each leaf in the order given; nodes without one are together."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(leaves.get(node, ""), []).append(node)
    return list(groups.values())


def _inside(groups: Sequence[Sequence[str]]) -> list[Round]:
    """All pairs inside the leaves, all leaves at the same time."""
    circles_of_leaves = [circle_rounds(group) for group in groups]
    return [tuple(pair for one in turns for pair in one) for turns in zip_longest(*circles_of_leaves, fillvalue=())]


def _across(groups: Sequence[Sequence[str]]) -> list[list[Round]]:
    """For each way to put the leaves in pairs, the rounds in which their nodes meet; every cross pair once."""
    found = []
    for facing in circle_rounds([str(index) for index in range(len(groups))]):
        meetings = [_meetings(groups[int(a)], groups[int(b)]) for a, b in facing]
        found.append([tuple(pair for one in turns for pair in one) for turns in zip_longest(*meetings, fillvalue=())])
    return found


def _meetings(a: Sequence[str], b: Sequence[str]) -> list[Round]:
    """Every node of one leaf with every node of the other, in as many rounds as the larger one has nodes."""
    few, many = (a, b) if len(a) <= len(b) else (b, a)
    return [
        tuple((node, many[(seat + turn) % len(many)]) for seat, node in enumerate(few)) for turn in range(len(many))
    ]


def _mixed(inside: Sequence[Round], across: Sequence[Round]) -> list[Round]:
    """Those inside between those across, so that an episode of noise does not look like bad uplinks."""
    found = list(across)
    for number, pairs in enumerate(inside):
        found.insert(1 + 3 * number, pairs)
    return found


def _spread(rounds: Sequence[Round], count: int) -> list[Round]:
    step = max(1, len(rounds) // count) if rounds else 1
    return list(rounds[::step][:count])


def _spread_across(across: Sequence[Sequence[Round]], count: int) -> list[Round]:
    """Rounds of as many different pairings of the leaves as there are, then further turns of the same pairings."""
    chosen = list(across[:: max(1, len(across) // count)][:count])
    turns = [(facing, number // len(chosen)) for number in range(count) for facing in [chosen[number % len(chosen)]]]
    return [facing[turn] for facing, turn in turns if turn < len(facing)]
