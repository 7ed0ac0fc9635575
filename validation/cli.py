"""The command validate-cluster: maps its arguments to a run, and a run's end to an exit status."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from inventory.errors import InventoryError, nearest
from validation.model import STAGES, Stage
from validation.printing import take_any_encoding, tell
from validation.run_options import RunOptions, UsageError

EXIT_BROKEN = 2
EXIT_USAGE = 3
EXIT_INTERRUPTED = 130
EXIT_STATUS = """exit status: 0 certified; 1 something failed; 2 could not be judged; 3 wrong usage or inventory;
             130 interrupted"""
LEVELS = ("quick", "standard", "burn-in")
LAUNCHERS = ("auto", "slurm", "ssh")


class _Parser(argparse.ArgumentParser):
    """argparse with one line an error, and the exit status of this command."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parser() -> argparse.ArgumentParser:
    found = _Parser(
        prog="validate-cluster",
        description="Prove by checks, measurements and trainings that every node, every link and the whole of a "
        "cluster can be trusted, or say which part cannot.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = found.add_argument
    add("inventory", nargs="?", metavar="INVENTORY", help="inventory file, e.g. inventory/home.py")
    add("--level", default="quick", metavar="LEVEL", help="quick (default), standard or burn-in")
    add("--only", metavar="STAGE,…", help="only these of node, pairs, cluster, training; never certifies")
    add("--nodes", metavar="A,…", help="only these nodes; certifies them, never the cluster")
    add("--launcher", default="auto", metavar="HOW", help="auto (default), slurm or ssh")
    add(
        "--wait",
        type=float,
        default=0.0,
        metavar="MINUTES",
        help="wait so long for jobs or another run (default 0)",
    )
    add("--new-baseline", action="store_true", help="a change was meant: compare with no earlier run any more")
    add("--out", type=Path, default=Path("reports"), metavar="DIR", help="folder for reports (default reports)")
    add("--json", action="store_true", help="print the certificate on stdout and everything else on stderr")
    add("--list", action="store_true", help="print all checks with their limits; contacts nobody")
    add(
        "--verify",
        type=Path,
        metavar="FILE",
        help="check a certificate: signature, expiry; with INVENTORY: whether it still holds",
    )
    add("--key", type=Path, metavar="FILE", help="the cluster's public key for --verify, without INVENTORY")
    add("--rejudge", type=Path, metavar="DIR", help="judge the results in DIR again; contacts nobody")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status and never shows a traceback for a mistake in the arguments."""
    take_any_encoding()
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except UsageError as error:
        print(f"validate-cluster: {error}", file=sys.stderr)
    except InventoryError as error:
        print(error.message, file=sys.stderr)
    except KeyboardInterrupt:  # before the run began, which has its own words for it
        print("validate-cluster: interrupted; nothing was touched", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception:
        traceback.print_exc()
        print(
            "validate-cluster: this is a fault of the validator, not of the cluster; please report it", file=sys.stderr
        )
        return EXIT_BROKEN
    return EXIT_USAGE


def _main(words: list[str]) -> int:
    arguments = _parse(words)
    if arguments.list:
        from validation.registry import CHECKS, render_list

        text = json.dumps([asdict(check) for check in CHECKS], indent=1) + "\n" if arguments.json else render_list()
        tell(text, sys.stdout)
        return 0
    if arguments.rejudge:
        from validation.outcome import rejudge

        return rejudge(arguments.rejudge, as_json=arguments.json)
    if arguments.verify:
        from validation.verify import verify

        status, sentence = verify(arguments.verify, arguments.inventory, arguments.key)
        tell(f"{sentence}\n", sys.stdout)
        return status
    from validation.run import validate

    return validate(_options(arguments))


def _parse(words: list[str]) -> argparse.Namespace:
    found = parser()
    arguments, unknown = found.parse_known_args(words)
    if unknown:
        options = sorted(option for action in found._actions for option in action.option_strings)
        raise UsageError(f"unknown argument {unknown[0]!r} {nearest(unknown[0], options)}")
    if arguments.key and not arguments.verify:
        raise UsageError("--key belongs to --verify FILE")
    if not (arguments.inventory or arguments.list or arguments.rejudge or arguments.verify):
        raise UsageError("no inventory given; say: validate-cluster inventory/home.py")
    _known("--level", arguments.level, LEVELS)
    _known("--launcher", arguments.launcher, LAUNCHERS)
    if not 0 <= arguments.wait <= 7 * 24 * 60:
        raise UsageError(f"--wait {arguments.wait:g}: minutes from 0 to 10080 (a week)")
    return arguments


def _known(option: str, value: str, valid: Sequence[str]) -> None:
    if value not in valid:
        raise UsageError(f'{option} "{value}" is not known {nearest(value, valid)}')


def _options(arguments: argparse.Namespace) -> RunOptions:
    from inventory.guard import check_key
    from inventory.loading import load_cluster

    cluster = load_cluster(arguments.inventory)
    check_key(cluster)
    nodes = tuple(cluster.node(name).name for name in _listed(arguments.nodes, "--nodes"))
    return RunOptions(
        inventory=arguments.inventory,
        level=arguments.level,
        stages=_stages(_listed(arguments.only, "--only")),
        nodes=nodes,
        launcher=arguments.launcher,
        out=arguments.out,
        json=arguments.json,
        wait_minutes=arguments.wait,
        new_baseline=arguments.new_baseline,
    )


def _stages(names: list[str]) -> tuple[Stage, ...]:
    """The stages asked for, in their order; none asked for means all."""
    for name in names:
        _known("--only", name, STAGES)
    return tuple(stage for stage in STAGES if stage in names or not names)


def _listed(text: str | None, option: str) -> list[str]:
    if text is None:
        return []
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise UsageError(f"{option} names nothing; leave it away for all")
    return found


if __name__ == "__main__":
    sys.exit(main())
