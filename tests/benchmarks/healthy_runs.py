"""Healthy runs of the stages pairs and training in the lab, with and without spinning processes: the limits' origin.

    python -m tests.benchmarks.healthy_runs inventory/lab.py --runs 50 --spinners 0 --keep DIR
    python -m tests.benchmarks.healthy_runs inventory/lab.py --again DIR      judge kept runs by the limits of now

Nothing is wrong in these runs: whoever is blamed is a false alarm. The lab must be up and deployed. One fleet of
workers serves all runs, as the start of torch is not what is measured.
"""

from __future__ import annotations

import argparse
import collections
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, load_cluster
from inventory.model import Cluster
from validation.checks.pairs import run_pairs
from validation.checks.training import run_training
from validation.launcher import Fleet, start_fleet
from validation.model import CellRecord, Judgement, Record, RunRecord, StageRecord, TrainingRecord
from validation.remote import connect_all
from validation.run_folder import RunFolder
from validation.verdict import judge


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("inventory")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--spinners", type=int, default=0, help="processes that spin beside the runs")
    parser.add_argument("--keep", type=Path, help="folder for the records of each run, results.jsonl in a folder a run")
    parser.add_argument("--again", type=Path, help="measure nothing: read the runs kept there")
    options = parser.parse_args(arguments)
    if options.keep and options.keep.exists():
        parser.error(f"{options.keep} is there already; name a new folder")
    if options.again:
        runs = [(records, judge(records)) for records in kept(options.again)]
    else:
        with spinning(options.spinners):
            runs = measure(options.inventory, options.runs, options.keep)
    print(table(runs, load_cluster(options.inventory), options.spinners))
    return 0


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """That many processes that keep a processor busy, ended afterwards."""
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def kept(folder: Path) -> Iterator[list[Record]]:
    """The records of each run that --keep wrote below this folder."""
    for results in sorted(folder.glob("*/results.jsonl")):
        yield RunFolder(results.parent).records()


def measure(inventory: str, count: int, keep: Path | None = None) -> list[tuple[list[Record], Judgement]]:
    """The records and the judgement of each run."""
    cluster = load_cluster(inventory)
    lock = HardwareLock.load(hardware_lock_path(inventory))
    remotes, reasons = connect_all(cluster, cluster.nodes)
    if reasons:
        raise SystemExit(f"not reached: {reasons}")
    current: list[list[Record]] = [[]]
    runs = []

    def to_current(record: Record) -> None:
        current[-1].append(record)

    with tempfile.TemporaryDirectory() as logs:
        fleet = start_fleet(
            cluster, remotes, cluster.nodes, launcher="ssh", run_id="healthy", logs=Path(logs),
            emit=to_current, run_started=time.monotonic(),
        )  # fmt: skip
        with fleet:
            for number in range(count):
                current.append([_head(cluster, lock, number)])
                runs.append((current[-1], run_once(fleet, current[-1])))
                if keep:
                    folder = RunFolder(keep / f"{number:03}")
                    folder.path.mkdir(parents=True)
                    for record in current[-1]:
                        folder.append(record)
                said = ", ".join(f"{c.subject} {c.cause}" for c in runs[-1][1].culprits) or "nobody blamed"
                print(f"run {number + 1} of {count}: {said}", file=sys.stderr, flush=True)
    for remote in remotes.values():
        remote.close()
    return runs


def run_once(fleet: Fleet, records: list[Record]) -> Judgement:
    """Both stages once; their records are added to `records`."""
    started = time.monotonic()
    run_pairs(fleet, "quick", records.append, lambda: judge(records))
    records.append(StageRecord(stage="pairs", status="done", seconds=time.monotonic() - started))
    started = time.monotonic()
    run_training(fleet, "quick", records.append)
    records.append(StageRecord(stage="training", status="done", seconds=time.monotonic() - started))
    return judge(records)


def _head(cluster: Cluster, lock: HardwareLock, number: int) -> RunRecord:
    return RunRecord(
        run_id=f"healthy-{number}",
        version="0",
        level="quick",
        stages=("pairs", "training"),
        nodes=tuple(node.name for node in cluster.nodes),
        partial=True,
        launcher="ssh",
        started_at="2000-01-01T00:00:00Z",
        inventory=cluster.model_dump(mode="json"),
        lock=lock.model_dump(mode="json"),
        substrate=cluster.substrate,
    )


def table(runs: Sequence[tuple[list[Record], Judgement]], cluster: Cluster, spinners: int) -> str:
    """The spread of what the limits are about, as a Markdown table."""
    declared = {node.name: cluster.link(node).speed_gbps or 1.0 for node in cluster.nodes}
    cells = [record for records, _ in runs for record in records if isinstance(record, CellRecord)]
    planned = [cell for cell in cells if cell.purpose == "plan" and cell.repetitions_gbps]
    shares = [median(c.repetitions_gbps) / min(declared[c.src], declared[c.dst]) for c in planned]
    rows = [
        ("pair bandwidth ÷ declared, a cell", shares),
        ("latency p50, µs", [cell.latency_us[0] for cell in planned if cell.latency_us]),
        ("latency p99, µs", [cell.latency_us[1] for cell in planned if cell.latency_us]),
        ("solo rate ÷ median of the run's", [share for records, _ in runs for share in _solo_shares(records)]),
        ("loss difference to the reference, relative", [d for records, _ in runs for d in _loss_differences(records)]),
    ]
    lines = [
        f"{len(runs)} runs, {spinners} spinning processes; false alarms (somebody blamed): "
        f"{sum(bool(judgement.culprits) for _, judgement in runs)}; retest rounds asked for: "
        f"{len({(id(records), c.round) for records, _ in runs for c in _cells(records) if c.purpose != 'plan'})}",
        "",
        "| what | least | 1 % | median | 99 % | most |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, values in rows:
        cut = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
        shown = (min(values), cut[0], median(values), cut[98], max(values))
        lines.append(f"| {name} | " + " | ".join(f"{value:.4g}" for value in shown) + " |")
    undecided = collections.Counter(text.split(":")[0] for _, judgement in runs for text in judgement.undecided)
    lines += ["", f"Undecided: {dict(undecided) or 'nothing'}"]
    return "\n".join(lines)


def _cells(records: Sequence[Record]) -> list[CellRecord]:
    return [record for record in records if isinstance(record, CellRecord)]


def _solo_shares(records: Sequence[Record]) -> list[float]:
    solos = [record for record in records if isinstance(record, TrainingRecord) and record.mode == "solo"]
    rates = [record.global_batch * len(t) / sum(t) for record in solos for t in record.step_seconds.values()]
    return [rate / median(rates) for rate in rates]


def _loss_differences(records: Sequence[Record]) -> list[float]:
    trainings = [record for record in records if isinstance(record, TrainingRecord)]
    reference = next((record for record in trainings if record.mode == "reference"), None)
    widest = max((r for r in trainings if r.mode == "ddp"), key=lambda record: len(record.nodes), default=None)
    if reference is None or widest is None:
        return []
    return [abs(a - b) / abs(a) for a, b in zip(reference.losses, widest.losses, strict=False)]


if __name__ == "__main__":
    raise SystemExit(main())
