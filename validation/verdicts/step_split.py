"""Where the time of a distributed step goes: computing, waiting for the slowest to compute, communicating, data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from validation.model import TrainingRecord


@dataclass(frozen=True)
class Split:
    """Medians over the timed steps, seconds."""

    step_s: float
    compute_s: float
    """Mean over the ranks: what one of them needs by itself."""
    spread_s: float
    """The slowest rank's computing beyond the mean: the others wait for it inside the collective."""
    comm_s: float
    """The collective as the last rank to come sees it: the others' time in it holds their waiting, too."""
    data_s: float

    @property
    def lost(self) -> tuple[tuple[str, float], ...]:
        """What a step takes beyond computing, the largest first."""
        parts = (("compute spread", self.spread_s), ("communication", self.comm_s), ("data wait", self.data_s))
        return tuple(sorted(parts, key=lambda part: -part[1]))

    @property
    def words(self) -> str:
        return "lost: " + ", ".join(f"{name} {seconds * 1e3:.3g} ms" for name, seconds in self.lost)


def split_step(record: TrainingRecord) -> Split | None:
    """None if a node has no times."""
    steps = _by_step(record, record.step_seconds)
    computing = _by_step(record, record.compute_seconds)
    if not steps or not computing:
        return None
    waiting, data = _by_step(record, record.comm_seconds), _by_step(record, record.data_seconds)
    return Split(
        step_s=median(max(times) for times in steps),
        compute_s=median(mean(times) for times in computing),
        spread_s=median(max(times) - mean(times) for times in computing),
        comm_s=median(min(times) for times in waiting) if waiting else 0.0,
        data_s=median(max(times) for times in data) if data else 0.0,
    )


def _by_step(record: TrainingRecord, part: Mapping[str, Sequence[float]]) -> list[tuple[float, ...]]:
    """Step → the times of all nodes; empty unless every node has them."""
    rows = [part.get(node, ()) for node in record.nodes]
    return list(zip(*rows, strict=False)) if all(rows) else []
