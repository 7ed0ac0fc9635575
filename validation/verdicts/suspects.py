"""Which node is not cleared in which direction: a good pair clears both of its ends in that direction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def partners_of(unit: Unit, readings: Readings) -> Sequence[str]:
    """Partners with which this direction was measured, alphabetically."""
    return readings.partners(unit.node, unit.direction == "out")


def suspects(readings: Readings, cleared: Iterable[Unit] = ()) -> frozenset[Unit]:
    """The units that no reading has cleared; a pair that is only good for its shared uplink says nothing of them."""
    units = {unit for pair in readings.pairs for unit in ends(pair)} - set(cleared)
    telling = [pair for pair in readings.pairs if not readings.weak(pair)]
    if readings.small:
        good = {unit for pair in telling if readings.good(pair) for unit in ends(pair)}
        return frozenset(units.intersection(unit for pair in telling for unit in ends(pair)) - good)
    return _Peeling(readings, units, telling).suspects()


class _Peeling:
    """Take out the worst unit and count again without it, until all that is left is good with what is left."""

    def __init__(self, readings: Readings, units: set[Unit], telling: Sequence[Directed]) -> None:
        self.good = {pair: readings.good(pair) for pair in telling if readings.level(pair) is not None}
        self.pairs: dict[Unit, list[Directed]] = {unit: [] for unit in sorted(units)}
        for pair in self.good:
            for unit in ends(pair):
                if unit in self.pairs:
                    self.pairs[unit].append(pair)
        told = {unit for pair in telling for unit in ends(pair)}
        self.left = {unit: pairs for unit, pairs in self.pairs.items() if unit in told}
        self.seen = {unit: len(pairs) for unit, pairs in self.pairs.items()}
        self.count = {unit: sum(self.good[pair] for pair in pairs) for unit, pairs in self.pairs.items()}
        self.gone: set[Directed] = set()

    def suspects(self) -> frozenset[Unit]:
        out: set[Unit] = set()
        while bad := {unit: share for unit in self.left if (share := self._bad_share(unit)) is not None}:
            least = min(bad.values())
            worst = [unit for unit in bad if bad[unit] == least]
            for unit in worst if least == 0.0 else worst[:1]:
                out.add(unit)
                self._take_out(unit)
        return frozenset(out)

    def _bad_share(self, unit: Unit) -> float | None:
        """Share of good pairs with units that are left, where it is too low; None where it is enough."""
        seen, count = self.seen[unit], self.count[unit]
        share = count / seen if seen else 0.0
        return share if share < GOOD_SHARE or count < min(GOOD_PAIRS, len(self.pairs[unit])) else None

    def _take_out(self, unit: Unit) -> None:
        """Its pairs no longer count for the units at their other ends."""
        for pair in self.left.pop(unit):
            if pair not in self.gone:
                self.gone.add(pair)
                for other in ends(pair):
                    if other in self.seen:
                        self.seen[other] -= 1
                        self.count[other] -= self.good[pair]
