"""Which nodes can be in one world: around a cut link there are two, so that neither of its ends stays untested."""

from __future__ import annotations

from collections.abc import Sequence

from validation.model import ReachRecord, Record

MOST_WORLDS = 4
"""So many cut links apart are still tried around; with more, the network is what must be mended first."""


def worlds(records: Sequence[Record], names: Sequence[str]) -> tuple[list[list[str]], str]:
    """Groups of nodes in which all reach each other and that together hold all nodes, or why there are none.

    With one pair cut, making a world group fails on every node after minutes (tried). So each end of a cut link is
    tested in a world without the other: the link is at fault, and neither node is left undecided.
    """
    if not names:
        return [], "no compute node is left"
    reached = {(record.src, record.dst): record.ok for record in records if isinstance(record, ReachRecord)}
    dead = {(src, dst) for (src, dst), ok in reached.items() if not ok and src in names and dst in names}

    def apart(a: str, b: str) -> bool:
        return (a, b) in dead or (b, a) in dead

    groups: list[list[str]] = []
    left = list(names)
    while left:
        group = [left[0]]
        group += [name for name in [*left[1:], *names] if name not in group and not any(apart(name, g) for g in group)]
        groups.append([name for name in names if name in group])
        left = [name for name in left if name not in group]
    if dead and (len(groups) > MOST_WORLDS or any(len(group) < 2 for group in groups)):
        shown = ", ".join(f"{src} → {dst}" for src, dst in sorted(dead)[:4])
        return [], f"not all nodes reach each other: {shown}"
    return groups, ""
