"""Stage training: the same small model trained alone, on every node in turn, and by all nodes together."""

from __future__ import annotations

from validation.launcher import Emit, Fleet
from validation.model import Level


def run_training(fleet: Fleet, level: Level, emit: Emit) -> None:
    """Emit TrainingRecords: the reference, DDP on 1 … N nodes, and a solo turn a node."""
    raise NotImplementedError
