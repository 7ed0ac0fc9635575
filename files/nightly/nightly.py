"""Certify idle nodes by night, on the controller: choose them, run the validator, say that it was done.

Runs as klaster-nightly.service, started by its timer. It never disturbs a job: only nodes without any take part, and
the validator itself refuses a node that got one meanwhile. Nodes in service are certified through Slurm.
Usage: nightly.py INVENTORY LEVEL REPORTS STAMP
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

KEEP = 60
"""Reports; a small cluster's takes about 1 MiB."""
OURS = "klaster:"
JUDGED = (0, 1)
"""Exit statuses of validate-cluster that are an answer; 2 and 3 are none."""


def idle_nodes(text: str) -> tuple[list[str], bool]:
    """From `scontrol -o show nodes`: nodes in service without a job, and whether the whole cluster may take part.

    It may if every other node is drained by klaster itself and idle: that node's own certificate may take it back.
    """
    idle, whole = [], True
    for line in text.splitlines():
        name = re.match(r"NodeName=(\S+)", line)
        state = re.search(r" State=(\S+)", line)
        if not name or not state:
            continue
        words = set(re.split(r"[+*]", state[1]))
        reason = re.search(r" Reason=(.*)$", line)
        if state[1] == "IDLE":
            idle.append(name[1])
        elif not (words == {"IDLE", "DRAIN"} and reason and reason[1].startswith(OURS)):
            whole = False
    return idle, whole


def arguments(inventory: str, level: str, reports: str, idle: list[str], whole: bool) -> list[str] | None:
    """The validator's arguments; None when there is nothing to certify."""
    base = [inventory, "--level", level, "--out", reports, "--wait", "10"]
    if whole:
        return base
    return [*base, "--nodes", ",".join(idle)] if idle else None


def prune(reports: Path) -> None:
    """Remove the oldest runs; their names are times."""
    runs = sorted(run for run in reports.glob("*/*") if run.is_dir() and not run.is_symlink())
    for run in runs[:-KEEP]:
        shutil.rmtree(run, ignore_errors=True)


def main(words: list[str]) -> int:
    inventory, level, reports, stamp = words
    asked = subprocess.run(["scontrol", "-o", "show", "nodes"], capture_output=True, text=True, timeout=30, check=False)
    if asked.returncode:
        print(f"Slurm does not answer: {asked.stderr.strip()}", file=sys.stderr)
        return 2
    idle, whole = idle_nodes(asked.stdout)
    chosen = arguments(inventory, level, reports, idle, whole)
    if chosen is None:
        print("no node is idle: nothing was certified tonight")
        return 0
    print("validate-cluster", *chosen, flush=True)
    status = subprocess.run([sys.executable, "-B", "-m", "validation.cli", *chosen], check=False).returncode
    prune(Path(reports))
    if status in JUDGED:
        Path(stamp).touch()
    return 0 if status in JUDGED else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
