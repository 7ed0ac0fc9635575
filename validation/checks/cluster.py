"""Stage cluster: all-reduce over several sizes on all compute nodes at once, verified on every rank."""

from __future__ import annotations

from validation.launcher import Emit, Fleet
from validation.model import Level


def run_cluster(fleet: Fleet, level: Level, emit: Emit) -> None:
    """Emit a CollectiveRecord a size; only to be called when all pairs of compute nodes reach each other."""
    raise NotImplementedError
