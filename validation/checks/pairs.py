"""Stage pairs: reach every node from every node, then measure every pair, and more pairs while a judge asks."""

from __future__ import annotations

from collections.abc import Callable

from validation.launcher import Emit, Fleet
from validation.model import Judgement, Level


def run_pairs(fleet: Fleet, level: Level, emit: Emit, judge_now: Callable[[], Judgement]) -> None:
    """Emit ReachRecords, CellRecords and FanInRecords; go on as long as `judge_now().wanted` is not empty."""
    raise NotImplementedError
