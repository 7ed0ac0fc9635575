"""When nearly every node is low: the cluster, several nodes, or a host that is too busy to tell."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from validation.model import WantedRound
from validation.schedule import MEDIUM_FLEET, circle_rounds
from validation.verdicts import limits
from validation.verdicts.evidence import Directed
from validation.verdicts.readings import Reading, Readings
from validation.verdicts.retests import Decision, decide, undirected
from validation.verdicts.suspects import Unit, pair_of, partners_of

if TYPE_CHECKING:
    from validation.verdicts.localise import Locator

FEW_NODES = 4
"""Up to here two slow nodes look like a slow cluster; fan-ins tell them apart."""


def judge_fleet(locator: Locator) -> None:
    """Spaced rounds over all nodes come first; on a busy host nothing is named."""
    rounds = locator.readings.fleet_rounds()
    if any(r.idle_ok is not True for readings in rounds for r in readings if r.share < limits.CLEAR):
        locator.found.unclear_cluster = "busy"
    elif missing := _missing_rounds(locator, len(rounds)):
        locator.found.unclear_cluster = "more"
        locator.found.wanted += missing
    elif _few(locator):
        _judge_few(locator)
    else:
        _judge_many(locator, rounds)


def _missing_rounds(locator: Locator, done: int) -> list[WantedRound]:
    """What is missing of three circles (few nodes) or three rounds (many); at most one circle at a time."""
    circle = _circle(locator.readings)
    needed = limits.FLEET_ROUNDS * (len(circle) if _few(locator) else 1)
    return [_fleet_round(circle, number) for number in range(done, min(needed, done + len(circle)))]


def _fleet_round(circle: list[tuple[Directed, ...]], number: int) -> WantedRound:
    return WantedRound(purpose="fleet", pairs=circle[number % len(circle)], spacing_s=limits.SPACING_S)


def _circle(readings: Readings) -> list[tuple[Directed, ...]]:
    """Rounds in which all nodes meet: of the circle, or in a fleet that measured a part of it, of the plan."""
    known = {undirected(pair) for pair in readings.pairs}
    if len(readings.nodes) <= MEDIUM_FLEET:
        rounds = [tuple(p for p in pairs if undirected(p) in known) for pairs in circle_rounds(readings.nodes)]
    else:
        planned = [{undirected(r.pair) for r in found if r.purpose == "plan"} for found in readings.by_round.values()]
        rounds = [tuple(sorted(pairs)) for pairs in planned]
    return [pairs for pairs in rounds if pairs]


def _few(locator: Locator) -> bool:
    return len(locator.readings.nodes) <= FEW_NODES and locator.fan_ins


# --- three or four nodes -----------------------------------------------------------------------------------------


def _judge_few(locator: Locator) -> None:
    """Fan-ins measure each node by itself; then only links are left, or it is everybody."""
    found, readings = locator.found, locator.readings
    locator.judge_units(sorted(locator.first), lambda unit: _unit_fleet(locator, unit))
    if any(said in ("more", "fan-in") for said in found.open_units.values()):
        found.unclear_cluster, found.named = "fan-in", {}  # until all are known it may still be everybody
        return
    everybody = found.named_nodes() == set(readings.nodes)
    nobody = not found.named and not found.open_units
    if everybody or _most_and_no_good_one(locator):
        _everybody_named(locator)
    elif nobody and _equal([readings.level(pair) or 0 for pair in readings.pairs]):
        found.cluster = True
    else:
        locator.judge_links()


def _unit_fleet(locator: Locator, unit: Unit) -> Decision:
    pairs = [pair_of(unit, partner) for partner in partners_of(unit, locator.readings)]
    said = decide([share for pair in pairs for share in locator.readings.retests(pair)], 0)
    return "mixed" if said == "more" else said


def _most_and_no_good_one(locator: Locator) -> bool:
    """More than half of the nodes are limited and no other is proved good: the cluster, or it stays open."""
    named = locator.found.named_nodes()
    return bool(locator.found.open_units) and not locator.cleared and 2 * len(named) > len(locator.readings.nodes)


def _everybody_named(locator: Locator) -> None:
    """All nodes are limited; a node's capacity is at least its best pair's, whatever disturbed a fan-in."""
    readings, found = locator.readings, locator.found
    capacities = {
        unit: max(fan_in.capacity, *(readings.level(pair) or 0.0 for pair in locator.telling_pairs(unit)))
        for unit, fan_in in found.named.items()
        if fan_in is not None and fan_in.capacity
    }
    usual = median(capacities.values()) if capacities else 0.0
    worse = {unit for unit, capacity in capacities.items() if capacity * limits.FLEET_EQUAL < usual}
    if _equal([capacity for unit, capacity in capacities.items() if unit not in worse]) or not capacities:
        found.cluster = True
        found.named = {unit: fan_in for unit, fan_in in found.named.items() if unit in worse}
    else:
        found.unclear_cluster, found.named = "unequal", {}


# --- more than four ----------------------------------------------------------------------------------------------


def _judge_many(locator: Locator, rounds: list[list[Reading]]) -> None:
    """Steady and equal is the cluster; then each against the fleet, to find who is worse still."""
    found, readings = locator.found, locator.readings
    medians = sorted(median(r.share for r in one) for one in rounds)
    steady = medians[-1] <= limits.STEADY * median(medians)
    if not steady and len(rounds) < limits.FLEET_ROUNDS_AT_MOST:
        found.unclear_cluster = "more"
        found.wanted.append(_fleet_round(_circle(readings), len(rounds)))
        return
    if not steady or not _most_are_equal(locator):
        found.unclear_cluster = "unsteady" if not steady else "unequal"
        return
    found.cluster = True
    usual = median(readings.level(pair) or 0.0 for pair in readings.pairs)
    if usual == 0.0:
        return
    relative = locator.relative(1.0 / usual).locate()
    if not relative.cluster and not relative.unclear_cluster:
        found.named = relative.named
        found.links = {pair for pair in relative.links if _worse(readings.level(pair), usual)}
        found.wanted += relative.wanted
        found.open_units, found.open_pairs = relative.open_units, relative.open_pairs


def _worse(level: float | None, usual: float) -> bool:
    """In a slow fleet only a link that is far below the others is named besides."""
    return level is not None and level * limits.FLEET_EQUAL < usual


def _most_are_equal(locator: Locator) -> bool:
    """But for less than a third of the nodes, which may be worse still, all can do the same."""
    best: dict[str, float] = dict.fromkeys(locator.readings.nodes, 0.0)
    for pair in locator.readings.pairs:
        for node in pair:
            best[node] = max(best[node], locator.readings.level(pair) or 0.0)
    usual = median(best.values())
    equal = [share for share in best.values() if share * limits.FLEET_EQUAL >= usual]
    return 3 * (len(best) - len(equal)) < len(best) and _equal(equal)


def _equal(shares: list[float]) -> bool:
    return bool(shares) and max(shares) <= limits.FLEET_EQUAL * min(shares)
