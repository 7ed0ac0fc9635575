"""Readings of directed pairs as shares of what is due, and which of them may speak against anybody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from validation.model import CellRecord
from validation.schedule import SMALL_FLEET
from validation.verdicts import limits
from validation.verdicts.evidence import Directed

NEAR_ROUNDS = 2
"""A control this many rounds away still stands beside a retest: with three nodes it can't run in the same round."""
MEDIAN_READINGS = 3
"""From so many readings on the median is taken; of fewer the best, since noise only lowers."""


@dataclass(frozen=True)
class Reading:
    """One cell: `share` 1.0 is what was declared; `idle_ok` is None where idle time was not measured."""

    round: int
    purpose: str
    src: str
    dst: str
    share: float
    idle_ok: bool | None

    @property
    def pair(self) -> Directed:
        return self.src, self.dst


def to_reading(cell: CellRecord, share: float) -> Reading:
    idle_ok = None if cell.idle_share is None else cell.idle_share >= limits.BUSY_IDLE_SHARE
    return Reading(cell.round, cell.purpose, cell.src, cell.dst, share, idle_ok)


class Readings:
    """All readings of one metric, by pair and by round; plan, fleet and good control readings describe a pair."""

    def __init__(self, readings: Iterable[Reading], thinner: Mapping[Directed, float] | None = None) -> None:
        """`thinner`: pairs of which no more is due than the declared speed over this, as uplinks are shared."""
        self.all: Sequence[Reading] = tuple(readings)
        self._thinner = dict(thinner or {})
        self.nodes = tuple(sorted({name for reading in self.all for name in reading.pair}))
        self.by_pair: dict[Directed, list[Reading]] = defaultdict(list)
        self.by_round: dict[int, list[Reading]] = defaultdict(list)
        for reading in self.all:
            self.by_pair[reading.pair].append(reading)
            self.by_round[reading.round].append(reading)
        self.pairs = tuple(sorted(self.by_pair))
        self._receivers: dict[str, list[str]] = defaultdict(list)
        self._senders: dict[str, list[str]] = defaultdict(list)
        for src, dst in self.pairs:
            self._receivers[src].append(dst)
            self._senders[dst].append(src)
        self._good: dict[Directed, bool] = {}
        self.small = len(self.nodes) <= SMALL_FLEET
        self.void_plan = frozenset() if self.small else self._void_plan()
        self._plan = {pair: self._plan_level(pair) for pair in self.pairs}
        self._controls = self._control_rounds()
        self._withstood = frozenset(
            r.round for r in self.all if r.purpose == "control" and r.share >= limits.CLEAR and r.idle_ok is False
        )

    def scaled(self, factor: float) -> Readings:
        """The same readings relative to another level: 1.0 is then the fleet's own median."""
        return Readings((replace(reading, share=reading.share * factor) for reading in self.all), self._thinner)

    def partners(self, node: str, outgoing: bool) -> Sequence[str]:
        """Partners with which this direction of a node was measured, alphabetically."""
        return (self._receivers if outgoing else self._senders).get(node, ())

    def thin(self, pair: Directed) -> bool:
        """Less is due of it than of its ends: a reading of it can't prove much of them."""
        return self._thinner.get(pair, 1.0) > 1.0

    def weak(self, pair: Directed) -> bool:
        """Good for its shared uplink, but no proof that its ends can do all that is declared of them."""
        return self.thin(pair) and self.good(pair) and self.capability(pair) < limits.CLEAR * self._thinner[pair]

    def plan_level(self, pair: Directed) -> float | None:
        """What the plan says of a pair; None if its only readings are void."""
        return self._plan.get(pair)

    def retests(self, pair: Directed) -> list[float]:
        """Shares of the retests (and fleet rounds) that count: controlled, or measured on an idle host."""
        return [r.share for r in self.by_pair[pair] if self._speaks(r)]

    def voids(self, pairs: Iterable[Directed]) -> int:
        """How many retest rounds of these pairs were void."""
        chosen = [r for pair in pairs for r in self.by_pair[pair] if r.purpose in ("retest", "fleet")]
        return len({r.round for r in chosen} - {r.round for r in chosen if self._speaks(r)})

    def good(self, pair: Directed) -> bool:
        """A good level, or two good retests: a lasting fault gives neither."""
        if pair not in self._good:
            self._good[pair] = self._is_good(pair)
        return self._good[pair]

    def _is_good(self, pair: Directed) -> bool:
        level = self.plan_level(pair)
        if level is not None and level >= limits.CLEAR:
            return True
        return sum(share >= limits.CLEAR for share in self.retests(pair)) >= limits.GOOD_RETESTS

    def level(self, pair: Directed) -> float | None:
        """Best estimate of a pair: its retests' median if there are three, else the plan's level."""
        shares = self.retests(pair)
        return median(shares) if len(shares) >= MEDIAN_READINGS else self.plan_level(pair)

    def capability(self, pair: Directed) -> float:
        """What the pair can do at least: the upper quartile of all its readings, since noise only takes away."""
        shares = sorted(r.share for r in self.by_pair[pair])
        return shares[(3 * len(shares)) // 4] if shares else 0.0

    def fleet_rounds(self) -> list[list[Reading]]:
        rounds = {r.round for r in self.all if r.purpose == "fleet"}
        return [self.by_round[number] for number in sorted(rounds)]

    def unrepeated(self) -> list[Directed]:
        """Pairs whose every plan reading was low in a void round and that were not read again, at most twice."""
        return [
            pair
            for pair in self.pairs
            if self._plan[pair] is None and sum(r.purpose == "fleet" for r in self.by_pair[pair]) < 2
        ]

    def _plan_level(self, pair: Directed) -> float | None:
        readings = self.by_pair[pair]
        repeated = sum(r.purpose == "fleet" for r in readings) >= 2
        shares = [
            r.share
            for r in readings
            if r.share >= limits.CLEAR
            or r.purpose == "fleet"
            or (r.purpose == "plan" and (repeated or r.round not in self.void_plan))
        ]
        if not shares:
            return None
        return median(shares) if len(shares) >= MEDIAN_READINGS else max(shares)

    def _void_plan(self) -> frozenset[int]:
        low = {
            number: sum(r.share < limits.LOW for r in readings) / len(readings)
            for number, readings in self.by_round.items()
            if any(r.purpose == "plan" for r in readings)
        }
        usual = median(low.values()) if low else 0.0
        return frozenset(n for n, share in low.items() if share > limits.VOID_SHARE + max(0.0, usual))

    def _control_rounds(self) -> dict[int, bool]:
        """Round → at least one control pair was as good as in the plan: then not the whole host was disturbed."""
        found: dict[int, dict[frozenset[str], list[float]]] = defaultdict(lambda: defaultdict(list))
        for r in self.all:
            if r.purpose == "control" and (self._plan[r.pair] or 0.0) >= limits.CLEAR:
                found[r.round][frozenset(r.pair)].append(r.share)
        return {
            number: any(median(shares) >= limits.CLEAR for shares in by_pair.values())
            for number, by_pair in found.items()
        }

    def _speaks(self, reading: Reading) -> bool:
        if reading.purpose == "fleet":
            return reading.share >= limits.CLEAR or reading.idle_ok is True
        if reading.purpose != "retest":
            return False
        if reading.share >= limits.CLEAR:
            return True
        control = self._control(reading.round)
        if control is None:
            return reading.idle_ok is True
        return control and (reading.idle_ok is not False or self._withstood_around(reading.round))

    def _withstood_around(self, number: int) -> bool:
        """A control was good on processors just as busy: then it is not that which makes the reading low."""
        return any(number + k in self._withstood for k in range(-NEAR_ROUNDS, NEAR_ROUNDS + 1))

    def _control(self, number: int) -> bool | None:
        """Whether the controls in or around a round were good; None without any."""
        if number in self._controls:
            return self._controls[number]
        around = range(1, NEAR_ROUNDS + 1)
        before = next((self._controls[number - k] for k in around if number - k in self._controls), None)
        after = next((self._controls[number + k] for k in around if number + k in self._controls), None)
        if before is None and after is None:
            return None
        return bool(before) and bool(after)
