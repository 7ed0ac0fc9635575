"""What tests know of a lab that is up: its inventory, and a way into its nodes."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from inventory.loading import load_cluster
from inventory.model import Cluster

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Lab:
    """A rehearsal lab; `inventory` is the path of its inventory, `name` the one this machine calls it by."""

    inventory: str
    name: str = "lab"
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        return load_cluster(self.inventory)

    def lab(self, *verb: str, timeout_s: float = 300, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run bin/lab with these words, without its set-up, which has been done."""
        return run([str(ROOT / ".venv/bin/python"), "-m", "lab", *verb], self._environment(), timeout_s, check=check)

    def ssh(
        self, node: str, command: str, *, timeout_s: float = 60, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root in a node."""
        return self.lab("ssh", node, command, timeout_s=timeout_s, check=check)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KLASTER_LAB_NAME": self.name, **self.environment}


def run(
    argv: list[str], environment: dict[str, str] | None = None, timeout_s: float = 300, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a program from the repository's root; with `check`, a failure shows all that it said."""
    done = subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if check and done.returncode:
        raise AssertionError(
            f"{shlex.join(argv)}: status {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done
