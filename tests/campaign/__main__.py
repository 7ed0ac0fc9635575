"""The fault campaign on a lab that is up and deployed; stopped at any moment, the same command goes on.

    python -m tests.campaign inventory/lab.py                 what is missing of: each fault, 30 pairs, 20 healthy runs
    python -m tests.campaign inventory/lab.py --faults cut,loss --again     these once more
    python -m tests.campaign inventory/lab.py --page          only write docs/fault-campaign.md from what there is

The lab's name comes from KLASTER_LAB_NAME, as for bin/lab. Results go to reports/campaign/results.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.campaign.expectations import EXPECTED, Placed, by_fault
from tests.campaign.page import render
from tests.campaign.turns import Results, Turn, one_turn, settle
from tests.lab.handle import ROOT, Lab

PAGE = ROOT / "docs" / "fault-campaign.md"
SEED = 20
Job = tuple[str, str, list[Placed]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    lab = Lab(str(Path(options.inventory).resolve()), os.environ.get("KLASTER_LAB_NAME", "lab"))
    results = Results(options.results)
    jobs = list(plan(lab, options.faults, options.pairs, options.healthy))
    if not options.page:
        lab.lab("heal")
        settle(lab)
        run_all(lab, jobs, results, again=options.again, brief=options.brief)
    order = {key: number for number, (key, _, _) in enumerate(plan(lab, [], 1000, 1000))}
    turns = sorted(results.read().values(), key=lambda turn: order.get(turn.key, len(order)))
    options.write.write_text(render(turns), encoding="utf-8")
    wrong = [turn.key for turn in turns if turn.wrong]
    print(f"{len(turns)} turns, {len(wrong)} wrong: {', '.join(wrong) or 'none'}; {options.write.name} written")
    return 1 if wrong else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="The fault campaign.")
    add = parser.add_argument
    add("inventory")
    add("--faults", type=lambda text: text.split(","), default=[], help="only these single faults, separated by commas")
    add("--pairs", type=int, default=30, help="pairs of faults at once (default 30)")
    add("--healthy", type=int, default=20, help="runs with nothing wrong (default 20)")
    add("--again", action="store_true", help="do again what has a result already")
    add("--brief", action="store_true", help="run only the stages that show a fault")
    add("--page", action="store_true", help="run nothing, only write the page")
    add("--results", type=Path, default=ROOT / "reports" / "campaign" / "results.jsonl")
    add("--write", type=Path, default=PAGE, help="the page (default docs/fault-campaign.md)")
    return parser.parse_args(arguments)


def run_all(lab: Lab, jobs: Sequence[Job], results: Results, *, again: bool, brief: bool) -> None:
    """Each job once; its result is on disk before the next begins."""
    known = {} if again else results.read()
    for number, (key, kind, placed) in enumerate(jobs):
        if key in known:
            continue
        stages = shown_by(placed) if brief else ""
        turn = one_turn(lab, key, kind, placed, results.path.parent, stages)
        results.add(turn)
        print(f"{number + 1}/{len(jobs)} {key}: {_said(turn)}", file=sys.stderr, flush=True)


def shown_by(placed: Sequence[Placed]) -> str:
    """The stages that show all of these faults; nothing stands for all stages."""
    every = [one.expected.stages for one in placed] or [""]
    return "" if "" in every else ",".join(dict.fromkeys(stage for text in every for stage in text.split(",")))


def _said(turn: Turn) -> str:
    if turn.not_here:
        return f"not here: {turn.not_here}"
    state = "right" if not turn.wrong else "WRONG: " + "; ".join(turn.wrong)
    return f"{turn.verdict} [{'; '.join(turn.named) or 'nobody'}] in {turn.seconds:.0f} s, {state}"


def plan(lab: Lab, faults: Sequence[str], pairs: int, healthy: int) -> Iterator[Job]:
    """The jobs in their order; with `faults` only those."""
    compute = [node.name for node in lab.cluster.nodes if "compute" in node.roles]
    first, second = (compute[-2], compute[-1]), (compute[1], compute[0])
    for expected in [by_fault(name) for name in faults] or EXPECTED:
        yield f"single {expected.fault}", "single", [Placed(expected, *first)]
    if faults:
        return
    for a, b in sampled_pairs(pairs):
        yield f"pair {a}+{b}", "pair", [Placed(by_fault(a), *first), Placed(by_fault(b), *second)]
    for number in range(healthy):
        yield f"healthy {number + 1}", "healthy", []


def sampled_pairs(count: int) -> list[tuple[str, str]]:
    """The same sample for the same count; faults that change a verdict and are a node's or a link's own."""
    names = [one.fault for one in EXPECTED if one.on.startswith("V") and one.verdicts == ("FAIL",)]
    every = list(itertools.permutations(names, 2))
    random.Random(SEED).shuffle(every)  # noqa: S311 - a sample, no secret
    return every[:count]


if __name__ == "__main__":
    raise SystemExit(main())
