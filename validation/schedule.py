"""Who measures with whom in which round, so that no node is in two pairs at once."""

from __future__ import annotations

from collections.abc import Sequence

from validation.model import Level

Pair = tuple[str, str]
Round = tuple[Pair, ...]

SMALL_FLEET = 4
"""Up to here a node has at most three partners: the circle is repeated, because a median needs readings."""
MEDIUM_FLEET = 16
ROUNDS_WITHOUT_CIRCLE = 6
"""In a large fleet so many rounds already find slow nodes (simulated with 64 and 512); links need the full circle."""


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
    return 0 if level == "quick" else 1


def plan_rounds(nodes: Sequence[str], level: Level) -> list[Round]:
    """The rounds of purpose `plan` for this fleet, in order; repeats of a pair are a whole circle apart."""
    rounds = circle_rounds(nodes)
    times = circles(len(nodes), level)
    if times:
        return rounds * times
    step = max(1, len(rounds) // ROUNDS_WITHOUT_CIRCLE)
    return rounds[::step][:ROUNDS_WITHOUT_CIRCLE]
