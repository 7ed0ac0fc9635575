"""Run validate-cluster on a lab as a person does, whole or stopped in the middle, and read its certificate."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.handle import ROOT, Lab

VALIDATE = str(ROOT / ".venv" / "bin" / "validate-cluster")
TIMEOUT_S = 420.0


@dataclass(frozen=True)
class Certified:
    """What a run left."""

    status: int
    said: str
    certificate: dict[str, Any]
    folder: Path

    @property
    def culprits(self) -> list[tuple[str, str, str]]:
        return [(c["kind"], c["subject"], c["cause"]) for c in self.certificate["culprits"]]


def validate(lab: Lab, out: Path, *more: str) -> Certified:
    """A run to its end."""
    done = subprocess.run(
        [VALIDATE, lab.inventory, "--out", str(out), "--json", "--wait", "5", *more],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return Certified(
        done.returncode, done.stderr, json.loads(done.stdout), (out / lab.cluster.name / "latest").resolve()
    )


def decide(lab: Lab, out: Path, *more: str) -> Certified:
    """A run, again where it said that the host was too busy to judge: at most twice, as its remedy says."""
    found = validate(lab, out, *more)
    for _ in range(2):
        if found.status != 2 or not any("idle" in text for text in found.certificate["undecided"]):
            break
        found = validate(lab, out, *more)
    return found


class Going:
    """A run that is going on; its words are in a file."""

    def __init__(self, lab: Lab, out: Path, *more: str) -> None:
        self._lab, self._out, self.log = lab, out, out / "progress.txt"
        out.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                [VALIDATE, lab.inventory, "--out", str(out), "--wait", "5", *more],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, words: str, timeout_s: float = 180.0) -> None:
        """Until it has said this; AssertionError if it ends before."""
        deadline = time.monotonic() + timeout_s
        while words not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, f"{words!r} was not said in {timeout_s:g} s:\n{self.said}"
            time.sleep(0.1)

    def end(self) -> Certified:
        status = self.process.wait(timeout=TIMEOUT_S)
        folder = (self._out / self._lab.cluster.name / "latest").resolve()
        return Certified(status, self.said, json.loads((folder / "certificate.json").read_text("utf-8")), folder)


@contextmanager
def going(lab: Lab, out: Path, *more: str) -> Iterator[Going]:
    """A run in the background, interrupted at the end if a test did not get so far."""
    run = Going(lab, out, *more)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGINT)
            run.process.wait(timeout=60)


def children_peak_mib() -> float:
    """Largest resident memory of any child process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def left_behind(lab: Lab, found: Certified) -> dict[str, str]:
    """Node → processes and files of that run that are still there; empty if there are none."""
    run_id = found.certificate["run_id"]
    pattern = f"[{run_id[0]}]{run_id[1:]}"  # which does not match the command line that holds it
    look = f"ps -eo args | grep -E '{pattern}'; find /run/klaster /tmp -mindepth 1 -maxdepth 1 -name '*{pattern}*'"
    there = {node.name: lab.ssh(node.name, look, check=False).stdout.strip() for node in lab.cluster.nodes}
    return {name: text for name, text in there.items() if text}


def slurm_state(lab: Lab, node: str) -> str:
    """`STATE|REASON` of a node."""
    return lab.ssh("head", f"sinfo -N -h -n {node} -o '%T|%E'").stdout.strip()
