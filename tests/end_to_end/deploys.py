"""Run deploys on a lab as a person does, and read what pyinfra says about them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass

from tests.lab.handle import ROOT, Lab, run

PYINFRA = str(ROOT / ".venv" / "bin" / "pyinfra")
DEPLOY_TIMEOUT_S = 1500.0


@dataclass(frozen=True)
class Deployed:
    """The grand total of a run that ended well."""

    changed: int
    unchanged: int
    output: str


def deploy(lab: Lab, file: str = "deploys/site.py", *more: str) -> Deployed:
    """Run a deploy to its end; AssertionError with its last words if it fails."""
    done = run([PYINFRA, lab.inventory, file, "-y", *more], timeout_s=DEPLOY_TIMEOUT_S)
    return _total(done.stdout + done.stderr)


def _total(output: str) -> Deployed:
    total = next(line for line in reversed(output.splitlines()) if "Grand total" in line)
    _, changed, errors, unchanged = (0 if word == "-" else int(word) for word in total.split()[2:])
    assert errors == 0, output[-4000:]
    return Deployed(changed, unchanged, output)


def deploy_killed_after(lab: Lab, seconds: float) -> bool:
    """Start site.py and SIGKILL it after so many seconds; whether it was still running then."""
    process = subprocess.Popen(
        [PYINFRA, lab.inventory, "deploys/site.py", "-y"],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    running = process.poll() is None
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return running
