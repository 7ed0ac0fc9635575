"""What one part of the verdict found: culprits, results, open wishes and doubts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from validation.model import CheckResult, Culprit, WantedFanIn, WantedRound


@dataclass
class Findings:
    culprits: list[Culprit] = field(default_factory=list)
    results: list[CheckResult] = field(default_factory=list)
    wanted: list[WantedRound | WantedFanIn] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)
    """Nodes under a suspicion that was not decided, or whose own tests could not be done."""

    def add(self, other: Findings) -> None:
        self.culprits += other.culprits
        self.results += other.results
        self.wanted += other.wanted
        self.undecided += [text for text in other.undecided if text not in self.undecided]
        self.doubtful |= other.doubtful

    def blamed_nodes(self, causes: Iterable[str] = ()) -> set[str]:
        """Nodes named so far, for any of `causes` (all if none is given)."""
        wanted = set(causes)
        return {c.node for c in self.culprits if c.node is not None and (not wanted or c.cause in wanted)}
