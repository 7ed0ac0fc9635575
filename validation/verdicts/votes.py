"""A vote on results that must be the same bit by bit: which voters erred, how often, and what can't be decided."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Passes = tuple[str, ...]
Decided = Literal["peers", "golden", "own repeats"]


@dataclass
class Errors:
    """One voter's wrong results."""

    voter: str
    wrong: int = 0
    tried: int = 0
    first_episode: int = -1
    first_kind: str = ""
    decided: set[Decided] = field(default_factory=set)

    @property
    def lasting(self) -> bool:
        """Every single result was wrong: a fault that doesn't come and go."""
        return self.wrong == self.tried


@dataclass
class Count:
    """The outcome of a vote."""

    errors: dict[str, Errors]
    undecided: list[int]
    """Episodes in which no value has a majority and nothing else says which is right."""
    against_golden: list[int]
    """Episodes in which all voters agree on another value than the golden one: then the golden one is out of date."""


def count_votes(voters: Mapping[str, Sequence[Passes]], golden: Sequence[str], kinds: Sequence[str]) -> Count:
    """`voters`: name → episode → its passes. `golden`: the right value of each episode, as far as it is known."""
    found: dict[str, Errors] = defaultdict(lambda: Errors(""))
    undecided, against = [], []
    episodes = min((len(passes) for passes in voters.values()), default=0)
    for episode in range(episodes):
        here = {voter: passes[episode] for voter, passes in voters.items()}
        known = golden[episode] if episode < len(golden) else None
        truth, decided = _truth(here, known)
        if truth is None:
            undecided.append(episode)
        elif known is not None and truth != known:
            against.append(episode)
        _note(found, here, truth, decided, episode, kinds)
    total = {voter: sum(len(one) for one in passes[:episodes]) for voter, passes in voters.items()}
    for voter, errors in found.items():
        errors.tried = total[voter]
    return Count({voter: one for voter, one in sorted(found.items()) if one.wrong}, undecided, against)


def _truth(here: Mapping[str, Passes], known: str | None) -> tuple[str | None, Decided]:
    """The right value of an episode: of more than half of all passes, by two voters or more; else the golden one."""
    counts = Counter(value for passes in here.values() for value in passes)
    value, count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[0]
    behind = sum(value in passes for passes in here.values())
    if 2 * count > sum(counts.values()) and behind >= 2:
        alone = len(here) == 2 and len(counts) > 1
        return value, "own repeats" if alone else "peers"
    if known is not None and any(known in passes for passes in here.values()):
        return known, "golden"
    return (value, "peers") if len(counts) == 1 else (None, "peers")


def _note(
    found: dict[str, Errors], here: Mapping[str, Passes], truth: str | None, decided: Decided, episode: int,
    kinds: Sequence[str],
) -> None:  # fmt: skip
    for voter, passes in here.items():
        wrong = [value for value in passes if truth is not None and value != truth]
        if not wrong or truth is None:
            continue
        one = found[voter]
        if not one.wrong:
            one.voter, one.first_episode, one.first_kind = voter, episode, first_difference(wrong[0], truth, kinds)
        one.wrong += len(wrong)
        one.decided.add(decided)


def first_difference(value: str, truth: str, kinds: Sequence[str]) -> str:
    """The first kind of result that differs, in the order of the work: where the error came in."""
    parts = zip(kinds, value.split("."), truth.split("."), strict=False)
    return next((kind for kind, own, right in parts if own != right), "results")
