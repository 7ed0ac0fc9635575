"""bin/drift: what on the nodes is not as the inventory says, exactly, and nothing is changed."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from inventory.errors import InventoryError
from inventory.loading import load_cluster
from roles.operations.notes import DRIFT_REPORT
from roles.operations.summary import short

ROOT = Path(__file__).resolve().parents[2]
LAST_LINES = 20
NONE, COULD_NOT_TELL, DRIFT = 0, 1, 2
EXIT_STATUS = """exit status: 0 no drift; 2 drift (whatever else there is); 1 could not tell: a node did not answer,
             or the inventory is wrong"""


@dataclass
class Report:
    """What a drift run wrote down."""

    asked: list[str] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)
    differences: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> int:
        if self.differences:
            return DRIFT
        return COULD_NOT_TELL if self.not_asked or not self.asked else NONE


class _Parser(argparse.ArgumentParser):
    """argparse ends with 2 for a wrong argument, which here would mean drift."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; try: {self.prog} --help", file=sys.stderr)
        raise SystemExit(COULD_NOT_TELL)


def parser() -> argparse.ArgumentParser:
    found = _Parser(
        prog="bin/drift",
        description="Show what on the nodes is not as the inventory says: what, where, from, to. Changes nothing.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    found.add_argument("inventory", metavar="INVENTORY", help="inventory file, e.g. inventory/home.py")
    found.add_argument("--limit", metavar="NODES", help="only these nodes or groups, as pyinfra's --limit")
    found.add_argument("--json", action="store_true", help="print everything that was found as JSON on stdout")
    return found


def page(report: Report, inventory: str) -> str:
    """The same difference on many nodes is one entry."""
    alike: dict[tuple[str, str, str, str, tuple[str, ...]], list[str]] = {}
    for one in report.differences:
        key = (one["role"], one["what"], one["was"], one["wanted"], tuple(one["lines"]))
        alike.setdefault(key, []).append(one["node"])
    lines = []
    for (role, what, was, wanted, changed), nodes in alike.items():
        lines.append(f"{short(nodes)}  {role}  {what}: {was} → {wanted}")
        lines += [f"    {line}" for line in changed]
    if lines:
        count = len({one["node"] for one in report.differences})
        lines.append(
            f"drift on {count} of {len(report.asked)} nodes; to repair it: pyinfra {inventory} deploys/site.py -y"
        )
    elif report.asked:
        lines.append(f"no drift on {short(report.asked)}")
    if report.not_asked:
        lines.append(f"could not be asked: {short(report.not_asked)}; try: pyinfra {inventory} deploys/doctor.py -y")
    return "\n".join(lines)


def read_report(path: Path) -> Report:
    """An empty report where the run died before it could write one."""
    try:
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Report()
    return Report(document["asked"], document["not_asked"], document["differences"])


def said(words: str) -> list[str]:
    """What pyinfra said of the trouble, without the lines about its own progress."""
    lines = [line.strip() for line in words.splitlines()]
    return [line for line in lines if line and (not line.startswith("-->") or "error" in line)][-LAST_LINES:]


def ask(inventory: str, limit: str | None) -> tuple[Report, str]:
    """Prepare site.py without running it (without -y: pyinfra then looks for no change); the report and its words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drift.json"
        argv = [str(Path(sys.executable).parent / "pyinfra"), inventory, "deploys/site.py", "--dry", "--json"]
        argv += ["--data", f"{DRIFT_REPORT}={path}", *(["--limit", limit] if limit else [])]
        done = subprocess.run(
            argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, check=False,
        )  # fmt: skip
        return read_report(path), done.stderr


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        load_cluster(arguments.inventory)
    except InventoryError as error:
        print(error.message, file=sys.stderr)
        return COULD_NOT_TELL
    report, words = ask(arguments.inventory, arguments.limit)
    if not report.asked:
        print("\n".join(said(words)) or "bin/drift: no node could be asked", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"asked": report.asked, "not_asked": report.not_asked, "differences": report.differences}))
    elif report.asked or report.not_asked:
        print(page(report, arguments.inventory))
    return report.status


if __name__ == "__main__":
    sys.exit(main())
