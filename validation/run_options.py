"""What a run was asked to do: the command line's arguments, checked and typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from validation.model import STAGES, Level, Stage


class UsageError(Exception):
    """The command line or the inventory asks for something that can't be done; exit status 3."""


@dataclass(frozen=True)
class RunOptions:
    """One call of validate-cluster."""

    inventory: str
    level: Level = "quick"
    stages: tuple[Stage, ...] = STAGES
    nodes: tuple[str, ...] = ()
    """Empty: all nodes."""
    launcher: Literal["auto", "ssh", "slurm"] = "auto"
    out: Path = Path("reports")
    json: bool = False
    wait_minutes: float = 0.0
    """How long to wait for a busy cluster before the run is refused."""
    new_baseline: bool = False
    """Earlier runs no longer count as this cluster's history."""

    @property
    def all_stages(self) -> bool:
        return self.stages == STAGES

    @property
    def partial(self) -> bool:
        """Then the cluster is never certified."""
        return bool(self.nodes) or not self.all_stages
