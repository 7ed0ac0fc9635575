"""bin/upgrade: node by node drained, changed, rebooted if that is due, certified and taken back into service."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from inventory.errors import InventoryError, nearest
from inventory.guard import check_key
from inventory.loading import beside, load_cluster
from inventory.model import Cluster
from roles.operations.summary import short

ROOT = Path(__file__).resolve().parents[2]
DONE, FAILED, USAGE = 0, 1, 3
EXIT_STATUS = (
    """exit status: 0 every node is upgraded and certified; 1 a node is not, and stays drained; 3 wrong usage"""
)
CHANGE = ("deploys/upgrade.py", "deploys/site.py")
MOST_WAIT_MINUTES = 7 * 24 * 60
Run = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Plan:
    """What to do: `change` are the deploys that make the change on a drained node."""

    inventory: str
    nodes: tuple[str, ...]
    controller: str
    batch: int = 1
    keep_going: bool = False
    wait_minutes: float = 60.0
    change: tuple[str, ...] = CHANGE


@dataclass
class Progress:
    """Kept in a file beside the inventory, so that the same command goes on where a killed one was."""

    path: Path
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Progress:
        if not path.exists():
            return cls(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, [str(name) for name in document["done"]])  # what failed is tried again
        except (OSError, ValueError, LookupError, TypeError):
            raise InventoryError(f"{path} is damaged: to begin anew, say --again") from None

    def save(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"done": self.done, "failed": self.failed}, indent=1) + "\n", encoding="utf-8")
        new.replace(self.path)


def parser() -> argparse.ArgumentParser:
    found = _Parser(
        prog="bin/upgrade",
        description="Upgrade a living cluster in turns: drain, wait for jobs, change, reboot if that is due, certify, "
        "back into service. Killed, the same command goes on where it was.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = found.add_argument
    add("inventory", metavar="INVENTORY", help="inventory file, e.g. inventory/home.py")
    add("--nodes", metavar="A,…", help="only these (default: the controller, then every compute node)")
    add("--batch", type=int, default=1, metavar="N", help="so many nodes at once (default 1)")
    add("--keep-going", action="store_true", help="go on with the others after a node that fails (default: stop)")
    add("--wait", type=float, default=60.0, metavar="MINUTES", help="wait so long for a turn's jobs (default 60)")
    add(
        "--change",
        metavar="DEPLOY,…",
        default=",".join(CHANGE),
        help=f"what changes a node (default {','.join(CHANGE)})",
    )
    add("--again", action="store_true", help="forget what an earlier, unfinished run has done")
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; try: {self.prog} --help", file=sys.stderr)
        raise SystemExit(USAGE)


def plan(arguments: argparse.Namespace, cluster: Cluster) -> Plan:
    """The controller comes first: Slurm wants its own daemons to be the newest."""
    order = [cluster.controller.name, *(n.name for n in cluster.compute_nodes if n is not cluster.controller)]
    named = [name.strip() for name in (arguments.nodes or "").split(",") if name.strip()]
    for name in named:
        if name not in order:
            raise InventoryError(f'--nodes: no node "{name}" {nearest(name, order)}')
    if arguments.batch < 1:
        raise InventoryError(f"--batch {arguments.batch}: at least 1")
    if not 0 <= arguments.wait <= MOST_WAIT_MINUTES:
        raise InventoryError(f"--wait {arguments.wait:g}: minutes from 0 to {MOST_WAIT_MINUTES} (a week)")
    change = tuple(file for file in arguments.change.split(",") if file)
    if not change:
        raise InventoryError(f"--change names no deploy; leave it away for {','.join(CHANGE)}")
    for file in change:
        if not (ROOT / file).is_file():
            raise InventoryError(f"--change: no file {file}")
    nodes = tuple(name for name in order if not named or name in named)
    return Plan(
        arguments.inventory,
        nodes,
        cluster.controller.name,
        arguments.batch,
        arguments.keep_going,
        arguments.wait,
        change,
    )


def turns(wanted: Plan, done: Sequence[str]) -> list[tuple[str, ...]]:
    """Batches of what is left; the controller has a turn of its own."""
    left = [name for name in wanted.nodes if name not in done]
    alone = [(name,) for name in left if name == wanted.controller]
    others = [name for name in left if name != wanted.controller]
    return [*alone, *(tuple(others[at : at + wanted.batch]) for at in range(0, len(others), wanted.batch))]


def turn(wanted: Plan, nodes: Sequence[str], computes: bool, run: Run) -> str:
    """One batch; an empty text if it is back in service, else the step that failed."""
    names, pyinfra = ",".join(nodes), [str(Path(sys.executable).parent / "pyinfra"), wanted.inventory]
    limit = [word for name in nodes for word in ("--limit", name)]
    drain = ["deploys/drain.py", "-y", "--limit", wanted.controller, "--data", f"drain={names}"]
    steps: list[tuple[str, list[str]]] = []
    if computes:
        steps.append(("drain", [*pyinfra, *drain, "--data", f"wait_minutes={wanted.wait_minutes:g}"]))
    steps.append(("change", [*pyinfra, *wanted.change, "-y", *limit]))
    steps.append(("reboot", [*pyinfra, "deploys/reboot.py", "-y", *limit]))
    if computes:
        certify = str(Path(sys.executable).parent / "validate-cluster")
        steps.append(("certify", [certify, wanted.inventory, "--nodes", names, "--wait", "30"]))
    for step, argv in steps:
        print(f"── {short(nodes)}: {step}", flush=True)
        if run(argv) != 0:
            return step
    return ""


def roll(wanted: Plan, cluster: Cluster, progress: Progress, run: Run) -> int:
    """Every turn; after a failure the rest waits, or goes on if asked; never more than one batch is out by us."""
    compute = {node.name for node in cluster.compute_nodes}
    for nodes in turns(wanted, progress.done):
        step = turn(wanted, nodes, bool(compute & set(nodes)), run)
        if step:
            progress.failed |= dict.fromkeys(nodes, step)
        else:
            progress.done += nodes
        progress.save()
        if step and (not wanted.keep_going or nodes == (wanted.controller,)):
            break
    return tell(wanted, progress)


def tell(wanted: Plan, progress: Progress) -> int:
    """What became of every node, and what to do."""
    waiting = [name for name in wanted.nodes if name not in progress.done and name not in progress.failed]
    print("Upgrade:")
    if progress.done:
        print(f"  upgraded      {short(progress.done)}")
    for step in dict.fromkeys(progress.failed.values()):
        print(f"  failed        {short(n for n, s in progress.failed.items() if s == step)} ({step}); out of service")
    if waiting:
        print(f"  not touched   {short(waiting)}")
    if progress.failed or waiting:
        print("  mend what failed, then the same command goes on with what is left")
        return FAILED
    progress.path.unlink(missing_ok=True)
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        cluster = load_cluster(arguments.inventory)
        wanted = plan(arguments, cluster)
        check_key(cluster)
        path = beside(arguments.inventory, "upgrade.json")
        progress = Progress(path) if arguments.again else Progress.load(path)
    except InventoryError as error:
        print(error.message, file=sys.stderr)
        return USAGE
    if progress.done:
        print(f"an earlier run has done {short(progress.done)}: going on with the rest")
    return roll(wanted, cluster, progress, lambda argv: subprocess.run(argv, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    sys.exit(main())
