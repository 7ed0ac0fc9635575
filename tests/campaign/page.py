"""docs/fault-campaign.md from the results of a campaign."""

from __future__ import annotations

from collections.abc import Sequence

from tests.campaign.expectations import EXPECTED, LATER
from tests.campaign.turns import Turn

KINDS = {"pair": "pairs of faults at once", "healthy": "healthy runs"}
HEAD = """\
# The fault campaign

Written by `python -m tests.campaign`; the expectations are data in `tests/campaign/expectations.py`, and the faults are
those of `bin/lab fault`. Every fault was put into a lab of a head and four compute nodes, found (or not) by
`validate-cluster` at level quick with the stages that are told, and healed. Right: the verdict is the expected one, the
part at fault is named, nobody else is, and nobody else is drained.
"""


def render(turns: Sequence[Turn]) -> str:
    singles = [turn for turn in turns if turn.kind == "single"]
    pairs = [turn for turn in turns if turn.kind == "pair"]
    healthy = [turn for turn in turns if turn.kind == "healthy"]
    parts = [HEAD, "## Totals\n", _totals(singles, pairs, healthy)]
    parts += ["## One fault at a time\n", _table(singles)]
    if pairs:
        parts += ["## Two faults at once\n", _table(pairs)]
    parts += ["## Not put in\n", _not_in(turns)]
    return "\n".join(parts)


def _totals(singles: Sequence[Turn], pairs: Sequence[Turn], healthy: Sequence[Turn]) -> str:
    rows = [
        "| what | of | detected | right | somebody else blamed | wrongly drained |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for what, turns in (("single faults", _done(singles)), ("pairs of faults", _done(pairs))):
        if turns:
            counts = (
                sum(turn.detected for turn in turns),
                sum(not turn.wrong for turn in turns),
                sum(turn.blames_wrongly for turn in turns),
                sum(turn.drains_wrongly for turn in turns),
            )
            rows.append(f"| {what} | {len(turns)} | " + " | ".join(map(str, counts)) + " |")
    if healthy:
        blamed = sum(turn.blames_wrongly or turn.drains_wrongly for turn in healthy)
        passed = sum(turn.verdict == "PASS" for turn in healthy)
        rows.append("")
        undecided = len(healthy) - passed - blamed
        rows.append(f"Healthy runs: {len(healthy)}, {passed} passed, {blamed} false alarms, {undecided} undecided.")
    times = sorted(turn.seconds for turn in _done([*singles, *pairs]))
    if times:
        middle = times[len(times) // 2]
        rows += [
            "",
            f"Time to the verdict: {times[0]:.0f} to {times[-1]:.0f} s, median {middle:.0f} s, on two shared cores.",
        ]
    return "\n".join(rows) + "\n"


def _done(turns: Sequence[Turn]) -> list[Turn]:
    return [turn for turn in turns if not turn.not_here]


def _table(turns: Sequence[Turn]) -> str:
    rows = [
        "| no. | fault | on | stages | verdict | named | drained | s | right? |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for turn in _done(turns):
        cells = (
            " + ".join(filter(None, turn.numbers)) or "–",
            " + ".join(turn.faults),
            " + ".join(turn.nodes),
            turn.stages,
            turn.verdict,
            "; ".join(turn.named) or "nobody",
            ", ".join(turn.drained) or "–",
            f"{turn.seconds:.0f}",
            "right" if not turn.wrong else "**wrong**: " + "; ".join(turn.wrong),
        )
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def kinds_of(turns: Sequence[Turn]) -> set[str]:
    return {turn.kind for turn in turns}


def _not_in(turns: Sequence[Turn]) -> str:
    lines = [f"- {turn.not_here}" for turn in turns if turn.not_here and turn.kind == "single"]
    lines += [f"- {name}: {why}" for name, why in LATER.items()]
    done = {turn.faults[0] for turn in turns if turn.kind == "single"}
    if missing := [expected.fault for expected in EXPECTED if expected.fault not in done]:
        lines.append(f"- not run in this campaign, which was not finished: {', '.join(missing)}")
    lines += [f"- {what}: not run in this campaign" for kind, what in KINDS.items() if kind not in kinds_of(turns)]
    return "\n".join(lines) + "\n"
