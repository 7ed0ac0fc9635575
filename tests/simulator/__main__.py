"""Print the verdict's false alarms, precision and recall by fleet size: python -m tests.simulator [--runs N]."""

from __future__ import annotations

import argparse
from statistics import mean

from tests.simulator.campaign import HEAVY, USUAL, campaign
from tests.simulator.fleets import table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--sizes", default="3,4,8,16", help="fleet sizes, e.g. 3,4,8,16,64 (64 takes minutes)")
    parser.add_argument("--runs", type=int, default=200, help="healthy runs a size; a fifth of it for each fault")
    parser.add_argument("--family", choices=("lognormal", "dips"), default="lognormal", help="how readings scatter")
    parser.add_argument("--noise", choices=("usual", "heavy"), default="usual", help="how much of the time is noisy")
    parser.add_argument("--level", choices=("quick", "standard", "burn-in"), default="standard")
    parser.add_argument("--kinds", action="store_true", help="also the counts for each kind of fault")
    parser.add_argument("--fleets", action="store_true", help="fleets on leaf switches, several random faults at once")
    parser.add_argument("--thin", type=float, default=1.0, help="with --fleets: oversubscription of every leaf")
    args = parser.parse_args()
    if args.fleets:
        sizes = [int(text) for text in args.sizes.split(",")]
        for line in table(sizes, args.runs, args.level, ("lognormal", "dips"), args.thin):
            print(line, flush=True)
        return
    print("| N | rounds, healthy | false alarms | healthy and PASS | precision | recall |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count in (int(text) for text in args.sizes.split(",")):
        score = campaign(
            count,
            args.runs,
            max(1, args.runs // 5) if count > 2 else 0,
            family=args.family,
            level=args.level,
            heaviness=USUAL if args.noise == "usual" else HEAVY,
        )
        rounds = mean(score.rounds_healthy)
        alarms = f"{score.false_alarms} of {score.healthy}"
        passed = f"{score.healthy_passed / score.healthy:.3f}"
        print(f"| {count} | {rounds:.1f} | {alarms} | {passed} | {score.precision:.3f} | {score.recall:.3f} |")
        for kind, (guilty, hits, wrong) in score.by_kind.items() if args.kinds else ():
            print(f"|  | {kind} | wrong {wrong} | | | {hits} of {guilty} |")


if __name__ == "__main__":
    main()
