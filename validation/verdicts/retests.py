"""What retests have decided, and which rounds the next retests are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from statistics import median
from typing import Literal, NamedTuple

from validation.model import WantedRound
from validation.verdicts import limits
from validation.verdicts.evidence import Directed
from validation.verdicts.readings import Readings

Decision = Literal["low", "good", "mixed", "void", "more"]
CONTROLS_A_ROUND = 2


def decide(shares: Sequence[float], voids: int) -> Decision:
    """Three LOW name, two good clear; five that disagree are `mixed`, too many voided rounds `void`."""
    if sum(share >= limits.CLEAR for share in shares) >= limits.GOOD_RETESTS:
        return "good"
    if len(shares) >= limits.RETESTS and all_low(shares):
        return "low"
    if len(shares) >= limits.RETESTS_AT_MOST:
        return "mixed"
    return "void" if voids >= limits.VOIDS_AT_MOST else "more"


def decide_link(shares: Sequence[float], voids: int) -> Decision:
    """Noise on either end makes a link look slow for a while: LOW retests must be alike, and one more of them."""
    said = decide(shares, voids)
    if said not in ("low", "mixed") or not all_low(shares):
        return said
    alike = sum(share * limits.ALIKE >= max(shares) for share in shares)
    if alike >= limits.LINK_RETESTS:
        return "low"
    return "mixed" if len(shares) >= limits.ALIKE_AT_MOST else "more"


def all_low(shares: Sequence[float]) -> bool:
    return max(shares) < limits.LOW and median(shares) < limits.NAME_BELOW


def undirected(pair: Directed) -> Directed:
    a, b = sorted(pair)
    return a, b


class Need(NamedTuple):
    """A suspect: the pairs that would tell, best first, and how many retests it has had."""

    options: Sequence[Directed]
    tries: int

    @property
    def spacing_s(self) -> float:
        return min(limits.SPACING_AT_MOST_S, limits.SPACING_S * (1 + self.tries // 2))


class RoundBuilder:
    """Packs the pairs to be retested into rounds, each with a control pair inside it or, failing that, around it."""

    def __init__(self, readings: Readings, clear: Callable[[str], bool]) -> None:
        self._readings, self._clear = readings, clear

    @cached_property
    def _good(self) -> list[Directed]:
        """Pairs that may be controls, those between clear nodes first."""
        readings, clear = self._readings, self._clear
        both = {undirected(pair) for pair in readings.pairs}
        good = [
            pair
            for pair in sorted(both)
            if any(readings.good(d) and (readings.plan_level(d) or 0) >= limits.CLEAR for d in (pair, pair[::-1]))
        ]
        calm = [pair for pair in good if clear(pair[0]) and clear(pair[1])]
        return list(dict.fromkeys([*calm, *good]))

    def next_rounds(self, needs: Iterable[Need]) -> list[WantedRound]:
        """As many suspects as fit beside a control pair; the others wait for the next judgement."""
        busy: set[str] = set()
        chosen: list[Directed] = []
        spacing_s = 0.0
        for need in needs:
            fitting = [undirected(pair) for pair in need.options if not busy.intersection(pair)]
            with_control = [pair for pair in fitting if self._controls(busy | set(pair))]
            if with_control:
                pick = with_control[0]
            elif fitting and not chosen:
                return self._around(fitting[0], need.spacing_s)
            else:
                continue
            chosen.append(pick)
            busy |= set(pick)
            spacing_s = max(spacing_s, need.spacing_s)
        if not chosen:
            return []
        controls = self._controls(busy)
        return [_round([*chosen, *controls], controls, spacing_s)]

    def _controls(self, busy: set[str]) -> list[Directed]:
        """A few good pairs that are free beside `busy`, disjoint."""
        taken = set(busy)
        found: list[Directed] = []
        for pair in self._good:
            if len(found) == CONTROLS_A_ROUND:
                break
            if not taken.intersection(pair):
                found.append(pair)
                taken |= set(pair)
        return found

    def _around(self, pair: Directed, spacing_s: float) -> list[WantedRound]:
        """No control fits beside this pair: measure one before and one after it, or nothing if no pair is good."""
        good = [control for control in self._good if control != pair]
        if not good:
            return [_round([pair], [], spacing_s)]
        control = good[0]
        return [
            _round([control], [control], spacing_s),
            _round([pair], [], 0.0),
            _round([control], [control], 0.0),
        ]


def _round(pairs: list[Directed], controls: list[Directed], spacing_s: float) -> WantedRound:
    purpose: Literal["retest", "control"] = "control" if pairs == controls else "retest"
    return WantedRound(purpose=purpose, pairs=tuple(pairs), controls=tuple(controls), spacing_s=spacing_s)
