"""What earlier runs of this cluster measured: read from its reports folder, at a bounded cost, into the run record."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from validation.model import RunRecord
from validation.run_folder import RunFolder, RunFolderError

SUMMARY = "history.json"
RUNS_KEPT = 30
READ_AT_MOST = 10
"""Results read anew each time; the rest stands in the summary. Ten runs of four nodes take about a second."""
LARGEST_BYTES = 64 * 2**20
"""Larger results (hundreds of nodes) are read, too, but not more than one a time."""


def collect(folder: RunFolder, run: RunRecord, *, fresh: bool = False) -> dict[str, Any]:
    """The run's `baselines`: values of earlier runs of this level and version; nothing where none can be read.

    `fresh`: from now on earlier runs do not count any more. Never raises: a broken folder only means no history.
    """
    parent = folder.path.parent
    try:
        summary = _summary(parent, folder.path.name)
        if fresh:
            summary["since"] = run.started_at
        _write(parent / SUMMARY, summary)
    except OSError:
        return {}
    usable = [
        found
        for name, found in sorted(summary["runs"].items())
        if found.get("level") == run.level
        and found.get("version") == run.version
        and found.get("substrate") == run.substrate
        and found["started_at"] >= summary.get("since", "")
    ]
    return {"history": _values([] if fresh else usable, hardware(run))} if usable and not fresh else {}


def _values(runs: list[dict[str, Any]], own: dict[str, str]) -> dict[str, Any]:
    """Oldest first; a node's values count from runs in which it passed with the hardware that it has now."""
    values: dict[str, list[float]] = defaultdict(list)
    last: dict[str, float] = {}
    for found in runs:
        for key, value in found["measures"].items():
            subject = key.rpartition(" ")[2]
            if found["hardware"].get(subject) != own.get(subject):
                continue
            if found["nodes"].get(subject, found["verdict"]) == "PASS":
                values[key].append(value)
                last.pop(key, None)
            else:
                last[key] = value
    return {"runs": len(runs), "measures": dict(values), "last": last}


def hardware(run: RunRecord) -> dict[str, str]:
    """Node → hash of what the lock says of it."""
    nodes = (run.lock or {}).get("nodes") or {}
    return {name: hashlib.sha256(json.dumps(node, sort_keys=True).encode()).hexdigest() for name, node in nodes.items()}


def _summary(parent: Path, current: str) -> dict[str, Any]:
    """The summary as it stands in the folder, without runs that are gone and with the newest that it lacks."""
    known = _read(parent / SUMMARY)
    names = [path.name for path in parent.iterdir() if path.is_dir() and not path.is_symlink() and path.name != current]
    runs: dict[str, Any] = {}
    left, large = READ_AT_MOST, 1
    for name in sorted(names, reverse=True)[:RUNS_KEPT]:
        if name in known["runs"]:
            runs[name] = known["runs"][name]
        elif left:
            found = RunFolder(parent / name)
            big = found.results.is_file() and found.results.stat().st_size > LARGEST_BYTES
            if not big or large:
                left, large = left - 1, large - big
                runs[name] = summarise(found)
    return {**known, "runs": runs}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and isinstance(found.get("runs"), dict):
            return found
    except (OSError, ValueError):
        pass
    return {"runs": {}}


def _write(path: Path, summary: dict[str, Any]) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    new.replace(path)


def summarise(folder: RunFolder) -> dict[str, Any]:
    """One run in a few numbers; a folder without a whole run gives one that never counts."""
    from validation.verdict import judge
    from validation.verdicts.evidence import Evidence, NoRunRecordError
    from validation.verdicts.history import measures

    try:
        records = folder.records()
        evidence = Evidence(records)
        judgement = judge(records)
    except (OSError, RunFolderError, NoRunRecordError):
        return {"level": None, "started_at": "", "measures": {}}
    run = evidence.run
    return {
        "started_at": run.started_at,
        "level": run.level,
        "version": run.version,
        "substrate": run.substrate,
        "verdict": judgement.verdict.value,
        "nodes": {name: outcome.value for name, outcome in judgement.nodes.items()},
        "hardware": hardware(run),
        "measures": {measure.key: value for measure, value in measures(evidence).items()},
    }
