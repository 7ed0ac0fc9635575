"""Start one long-lived worker a rank, talk to all of them, notice who stops, and leave nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from inventory.model import Cluster, Node
from validation.model import FailureRecord, Record
from validation.remote import Remote

LauncherName = Literal["ssh", "slurm"]
Emit = Callable[[Record], None]


class FleetError(Exception):
    """The workers could not do what a stage needs, and no single rank is to blame; the text is one sentence."""


class Fleet:
    """The workers of a run; a context manager whose end leaves no process and no file on any node."""

    nodes: tuple[Node, ...]
    """The nodes that still take part; a node whose rank failed is taken out."""
    lost: dict[str, FailureRecord]
    """Nodes that were taken out, with the failure that was emitted for each."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every worker and remove what was put on the nodes; safe to call twice."""
        raise NotImplementedError


def start_fleet(
    cluster: Cluster,
    remotes: Mapping[str, Remote],
    nodes: Sequence[Node],
    *,
    launcher: LauncherName,
    run_id: str,
    logs: Path,
    emit: Emit,
    clock: Callable[[], float] = time.monotonic,
    run_started: float | None = None,
) -> Fleet:
    """Start a worker a rank on `nodes`; a rank that cannot start is emitted as a FailureRecord and left out.

    `clock` counts seconds, `run_started` is its value at the run's start: records' `at_s` are differences to it.
    With launcher "slurm" nodes without the role compute (the head as a partner) are still started over ssh.
    Raises FleetError when no worker could be started at all.
    """
    raise NotImplementedError
