"""Which node is not cleared in which direction: a good pair clears both of its ends in that direction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from validation.verdicts.evidence import Directed
from validation.verdicts.readings import Readings

Direction = Literal["out", "in"]
DIRECTIONS: tuple[Direction, ...] = ("out", "in")
GOOD_SHARE = 0.5
"""In a fleet of more than four, this share of a node's pairs with non-suspects must be good."""
GOOD_PAIRS = 2


class Unit(NamedTuple):
    """One direction of one node's network: the smallest thing besides a link that can be at fault."""

    node: str
    direction: Direction


def ends(pair: Directed) -> tuple[Unit, Unit]:
    return Unit(pair[0], "out"), Unit(pair[1], "in")


def pair_of(unit: Unit, partner: str) -> Directed:
    return (unit.node, partner) if unit.direction == "out" else (partner, unit.node)


def partners_of(unit: Unit, readings: Readings) -> list[str]:
    """Partners with which this direction was measured, alphabetically."""
    own, other = (0, 1) if unit.direction == "out" else (1, 0)
    return sorted({pair[other] for pair in readings.pairs if pair[own] == unit.node})


def suspects(readings: Readings, cleared: Iterable[Unit] = ()) -> frozenset[Unit]:
    """The units that no reading has cleared."""
    units = {unit for pair in readings.pairs for unit in ends(pair)} - set(cleared)
    if readings.small:
        good = {unit for pair in readings.pairs if readings.good(pair) for unit in ends(pair)}
        return frozenset(units - good)
    return _peel(readings, units)


def _peel(readings: Readings, units: set[Unit]) -> frozenset[Unit]:
    """Take out the worst unit and count again without it, until all that is left is good with what is left."""
    good = {pair: readings.good(pair) for pair in readings.pairs if readings.level(pair) is not None}
    pairs: dict[Unit, list[Directed]] = {unit: [] for unit in units}
    for pair in good:
        for unit in ends(pair):
            if unit in pairs:
                pairs[unit].append(pair)
    out: set[Unit] = set()

    def standing(unit: Unit) -> tuple[float, int]:
        seen = [pair for pair in pairs[unit] if not out.intersection(ends(pair))]
        count = sum(good[pair] for pair in seen)
        return (count / len(seen) if seen else 0.0), count

    while True:
        ranks = {unit: standing(unit) for unit in sorted(units - out)}
        bad = {
            unit: share for unit, (share, count) in ranks.items() if share < GOOD_SHARE or count < _needed(pairs[unit])
        }
        if not bad:
            return frozenset(out)
        least = min(bad.values())
        worst = [unit for unit in sorted(bad) if bad[unit] == least]
        out.update(worst if least == 0.0 else worst[:1])


def _needed(pairs: list[Directed]) -> int:
    return min(GOOD_PAIRS, len(pairs))
