"""Leaf switches: a leaf whose nodes are all low across is suspected before they are, and confirmed by whole rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, NamedTuple

from validation.model import WantedRound
from validation.verdicts import limits
from validation.verdicts.evidence import LEAF_NODES, Directed, Evidence
from validation.verdicts.leaf_rounds import leaf_round
from validation.verdicts.readings import Reading, Readings
from validation.verdicts.retests import undirected

Way = Literal["out", "in"]
WAYS: tuple[Way, ...] = ("out", "in")


class Port(NamedTuple):
    """One direction of a leaf's uplinks."""

    leaf: str
    way: Way


@dataclass
class Leaves:
    """What the pairs across say of the switches; pairs that are `withheld` say nothing of nodes and links."""

    named: dict[str, set[Way]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    """Suspects that are slow inside, too."""
    spine: bool = False
    trunk: tuple[str, str] | None = None
    open: dict[str, str] = field(default_factory=dict)
    wanted: list[WantedRound] = field(default_factory=list)
    ports: set[Port] = field(default_factory=set)
    """Named or still open."""
    of: dict[str, str] = field(default_factory=dict)

    def withheld(self, pair: Directed) -> str:
        """The leaf (or `spine`) because of which this pair is not judged; empty if it is."""
        a, b = self.of.get(pair[0], ""), self.of.get(pair[1], "")
        if found := next((leaf for leaf in (a, b) if leaf in self.whole), ""):
            return found
        if a == b:
            return ""
        if self.spine or self.trunk:
            return "spine" if self.spine else "–".join(self.trunk or ())
        return a if Port(a, "out") in self.ports else b if Port(b, "in") in self.ports else ""


def judge_leaves(readings: Readings, leaf_readings: Sequence[Reading], evidence: Evidence) -> Leaves:
    """Rule 7: low across with most of its nodes; two spaced whole-leaf rounds beside good controls confirm it."""
    found = Leaves(of=evidence.leaves)
    names = sorted({leaf for node, leaf in evidence.leaves.items() if node in readings.nodes})
    if len(names) < 2:
        return found
    finder = _Finder(readings, leaf_readings, evidence, names)
    finder.find(found)
    return found


class _Finder:
    def __init__(
        self, readings: Readings, leaf_readings: Sequence[Reading], evidence: Evidence, names: Sequence[str]
    ) -> None:
        self.readings, self.of, self.names = readings, evidence.leaves, names
        self.rounds: dict[int, list[Reading]] = defaultdict(list)
        for reading in leaf_readings:
            self.rounds[reading.round].append(reading)
        self.across: dict[Port, list[Directed]] = defaultdict(list)
        self.inside: dict[str, list[Directed]] = defaultdict(list)
        for pair in readings.pairs:
            if readings.level(pair) is None:
                continue  # read in a void round only
            a, b = self.of.get(pair[0], ""), self.of.get(pair[1], "")
            if a == b:
                self.inside[a].append(pair)
            else:
                self.across[Port(a, "out")].append(pair)
                self.across[Port(b, "in")].append(pair)

    def find(self, found: Leaves) -> None:
        ports = self._suspects()
        leaves = sorted({port.leaf for port in ports})
        slow_inside = {leaf for leaf in self.names if self._low_nodes(self.inside[leaf], both=True)}
        if not leaves or 2 * len(slow_inside) > len(self.names):
            return  # nobody, or everybody: the fleet's matter
        if 2 * len(leaves) > len(self.names) or (len(self.names) == 2 and not slow_inside):
            self._core(found)
            return
        if len(self.names) == 2:
            leaves = sorted(slow_inside)
            ports = {Port(leaf, way) for leaf in leaves for way in WAYS}
        undecided = []
        for leaf in leaves:
            said = {way: self._decided(leaf, way) for way in WAYS if Port(leaf, way) in ports}
            low: set[Way] = {way for way, word in said.items() if word == "low"}
            waiting = [way for way, word in said.items() if word not in ("low", "good")]
            found.ports |= {Port(leaf, way) for way in (*low, *waiting)}
            found.whole |= {leaf} & slow_inside if low or waiting else set()
            if waiting:
                found.open[leaf] = said[waiting[0]]
                undecided += [leaf] if "more" in said.values() else []
            elif low:
                found.named[leaf] = low
        self._want(undecided, [name for name in self.names if name not in leaves], found)

    def _core(self, found: Leaves) -> None:
        """More than half of the leaves are low across and good inside: what they share, or either end of the trunk.

        Noise while the plan went across looks the same: its rounds across are repeated first.
        """
        again = self._unrepeated()
        said = "more" if again else self._decided(None, None)
        if said == "good":
            return
        found.spine = len(self.names) > 2
        found.trunk = None if found.spine else (self.names[0], self.names[1])
        if said == "low" and found.spine:
            found.named["spine"] = set(WAYS)
        else:
            found.open["spine" if found.spine else "–".join(self.names)] = "trunk" if said == "low" else said
        found.wanted += again
        if said == "more" and not again:
            self._want([self.names[0]], list(self.names[1:]), found)

    def _unrepeated(self) -> list[WantedRound]:
        """The plan's rounds across (as many as a sparse plan has), where they were measured once only."""
        rounds = [
            [r.pair for r in found if r.purpose == "plan" and self.of.get(r.src) != self.of.get(r.dst)]
            for found in self.readings.by_round.values()
        ]
        across = [sorted({undirected(pair) for pair in pairs}) for pairs in rounds if pairs]
        step = max(1, len(across) // limits.LEAF_REPEATS)
        seen = {r.pair for found in self.readings.by_round.values() for r in found if r.purpose == "fleet"}
        return [
            WantedRound(purpose="fleet", pairs=tuple(pairs), spacing_s=limits.SPACING_S)
            for pairs in across[::step][: limits.LEAF_REPEATS]
            if not seen.intersection([*pairs, *(pair[::-1] for pair in pairs)])
        ]

    def _want(self, suspects: Sequence[str], healthy: Sequence[str], found: Leaves) -> None:
        if suspects:
            found.wanted += leaf_round(suspects, healthy, self.of, self.readings, len(self.rounds))

    # --- suspicion -----------------------------------------------------------------------------------------------

    def _suspects(self) -> set[Port]:
        """The worst direction of a leaf first; its pairs then say nothing of the leaves at their other ends."""
        ports: set[Port] = set()
        gone: set[Directed] = set()
        while True:
            left = {
                port: pairs
                for port in sorted(self.across)
                if port not in ports and (pairs := [pair for pair in self.across[port] if pair not in gone])
            }
            low = {port: self._good_share(pairs) for port, pairs in left.items() if self._low_side(port, pairs)}
            if not low:
                return ports
            worst = min(sorted(low), key=lambda port: low[port])
            ports.add(worst)
            gone.update(self.across[worst])

    def _low_side(self, port: Port, pairs: Sequence[Directed]) -> bool:
        own = 0 if port.way == "out" else 1
        by_node: dict[str, list[Directed]] = defaultdict(list)
        for pair in pairs:
            by_node[pair[own]].append(pair)
        alone = len({pair[1 - own] for pair in pairs}) < LEAF_NODES
        return not alone and self._most_are_low(list(by_node.values()))

    def _low_nodes(self, pairs: Sequence[Directed], *, both: bool) -> bool:
        by_node: dict[str, list[Directed]] = defaultdict(list)
        for pair in pairs:
            for node in pair if both else pair[:1]:
                by_node[node].append(pair)
        return self._most_are_low(list(by_node.values()))

    def _most_are_low(self, by_node: Sequence[Sequence[Directed]]) -> bool:
        low = sum(self._good_share(pairs) < limits.LEAF_GOOD for pairs in by_node)
        return len(by_node) >= LEAF_NODES and low > limits.LEAF_NODES_LOW * len(by_node)

    def _good_share(self, pairs: Sequence[Directed]) -> float:
        return sum(self.readings.good(pair) for pair in pairs) / len(pairs)

    # --- confirmation --------------------------------------------------------------------------------------------

    def _decided(self, leaf: str | None, way: Way | None) -> str:
        """`low`, `good`, `mixed`, `void` or `more`, from the whole-leaf rounds; without a leaf: of all across."""
        low = good = valid = voids = 0
        for number, readings in sorted(self.rounds.items()):
            mine = [reading for reading in readings if self._concerns(reading, leaf, way)]
            if len(mine) < self._enough(leaf):
                continue
            share = sum(reading.share < limits.LOW for reading in mine) / len(mine)
            if share > limits.LEAF_GOOD and not self._valid(number, mine):
                voids += 1
                continue
            valid += 1
            low += share >= limits.LEAF_LOW
            good += share <= limits.LEAF_GOOD
        if good >= limits.LEAF_ROUNDS:
            return "good"
        if low >= limits.LEAF_ROUNDS and not good:
            return "low"
        if valid >= limits.RETESTS_AT_MOST:
            return "mixed"
        return "void" if voids >= limits.VOIDS_AT_MOST else "more"

    def _enough(self, leaf: str | None) -> float:
        """A round tells of a leaf if at least half of its nodes were in it."""
        return max(LEAF_NODES, sum(self.of.get(node) == leaf for node in self.readings.nodes) / 2) if leaf else 1

    def _concerns(self, reading: Reading, leaf: str | None, way: Way | None) -> bool:
        a, b = self.of.get(reading.src, ""), self.of.get(reading.dst, "")
        return a != b and (leaf is None or (a if way == "out" else b) == leaf)

    def _valid(self, number: int, mine: Sequence[Reading]) -> bool:
        """A control was good in the same round, on processors as busy; without controls the processors were idle."""
        controls: dict[frozenset[str], list[Reading]] = defaultdict(list)
        for reading in self.readings.by_round.get(number, ()):
            if reading.purpose == "control":
                controls[frozenset(reading.pair)].append(reading)
        busy = any(reading.idle_ok is False for reading in mine if reading.share < limits.LOW)
        good = [found for found in controls.values() if median(r.share for r in found) >= limits.CLEAR]
        if not controls:
            return all(reading.idle_ok is True for reading in mine)
        return bool(good) and (not busy or any(r.idle_ok is False for found in good for r in found))
