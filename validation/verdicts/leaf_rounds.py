"""Rounds that load the uplinks of suspected leaves fully, with good pairs of other leaves beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from validation.model import WantedRound
from validation.verdicts import limits
from validation.verdicts.evidence import Directed
from validation.verdicts.readings import Readings
from validation.verdicts.retests import undirected

CONTROLS = 2


def leaf_round(
    suspects: Sequence[str], healthy: Sequence[str], of: Mapping[str, str], readings: Readings, done: int
) -> list[WantedRound]:
    """All nodes of as many suspects as fit, each with a node of a healthy leaf; other partners than last time."""
    own = {leaf: [node for node in readings.nodes if of.get(node) == leaf] for leaf in (*suspects, *healthy)}
    pool = _interleaved([own[leaf] for leaf in healthy])
    pool = pool[done % len(pool) :] + pool[: done % len(pool)] if pool else []
    controls = _controls(pool, readings)
    free = [node for node in pool if not any(node in pair for pair in controls)]
    pairs: list[Directed] = []
    for leaf in suspects:
        if pairs and len(own[leaf]) > len(free):
            continue
        for node in own[leaf][: len(free)]:
            pairs.append((node, free.pop(0)))  # the first sends first: so all load their uplinks at the same time
    if not pairs:
        return []
    spacing_s = min(limits.SPACING_AT_MOST_S, limits.SPACING_S * (1 + done // 2))
    both = (*pairs, *controls)
    return [WantedRound(purpose="leaf", pairs=both, controls=tuple(controls), spacing_s=spacing_s)]


def _interleaved(groups: Sequence[Sequence[str]]) -> list[str]:
    """One node of each leaf in turn, so that no other uplink is loaded more than it must be."""
    return [node for node in chain.from_iterable(zip_longest(*groups)) if node is not None]


def _controls(pool: Sequence[str], readings: Readings) -> list[Directed]:
    """A few pairs that are good in the plan, disjoint; they leave at least half of the nodes free."""
    free, found = set(pool), list[Directed]()
    for a, b in readings.pairs:
        if len(found) == CONTROLS or 4 * (len(found) + 1) > len(pool):
            break
        if a in free and b in free and readings.good((a, b)) and (readings.plan_level((a, b)) or 0) >= limits.CLEAR:
            found.append(undirected((a, b)))
            free -= {a, b}
    return found
