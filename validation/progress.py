"""What a person sees while a run goes on: a line at every step, and never more than five seconds of silence."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self, TextIO

from validation.model import (
    AcceptanceRecord,
    CellRecord,
    CollectiveRecord,
    FailureRecord,
    FanInRecord,
    FingerprintRecord,
    Record,
    SpeedRecord,
    TrainingRecord,
)

SILENCE_S = 5.0


class Progress:
    """Lines on stderr with seconds since the start; a thread repeats the current step when nothing else is said."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._began = self._last = time.monotonic()
        self._doing = "starting"
        self._round = -1
        self._rounds = 0
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def step(self, stage: str, text: str) -> None:
        """Say what is being done now."""
        self._doing = f"{stage:<9}{text}"
        self._say(self._doing)

    def expect_rounds(self, count: int) -> None:
        """The planned rounds of stage pairs; more are measured when a suspicion has to be decided."""
        self._rounds, self._round = count, -1

    def note(self, record: Record) -> None:
        """Say what a record that was just written means for somebody who waits."""
        if isinstance(record, CellRecord) and record.round != self._round:
            self._round = record.round
            words = (
                f"round {record.round + 1} of {self._rounds}" if record.purpose == "plan" else f"{record.purpose} round"
            )
            self.step("pairs", words)
        elif isinstance(record, FanInRecord):
            self.step("pairs", f"fan-in at {record.target}: one link or the node?")
        elif isinstance(record, CollectiveRecord):
            self.step("cluster", f"all-reduce of {record.bytes:,} bytes on {len(record.nodes)} nodes")
        elif isinstance(record, TrainingRecord):
            count = len(record.nodes)
            who = record.nodes[0] if record.mode == "solo" else f"{count} node{'s' * (count > 1)}"
            self._say(f"{'training':<9}{record.mode} on {who} done")  # no step: the wait after it isn't "done …"
        elif isinstance(record, FingerprintRecord):
            self._say(f"{'training':<9}{record.steps_done} steps on {record.node} hashed")
        elif isinstance(record, SpeedRecord):
            self._say(f"{'training':<9}{record.what} on {record.node}{' for long' * record.sustained}")
        elif isinstance(record, AcceptanceRecord):
            end = "broke" if record.error else "done"
            self._say(f"{'training':<9}{record.name} on {len(record.nodes)} nodes {end}")
        elif isinstance(record, FailureRecord):
            self.step(record.stage, f"{record.node}: {record.what}: {record.detail}")

    def _tick(self) -> None:
        while not self._ended.wait(0.5):
            if time.monotonic() - self._last > SILENCE_S - 0.5:
                self._say(f"{self._doing} …")

    def _say(self, text: str) -> None:
        with self._lock, suppress(OSError):  # nobody reads any more: no reason to leave a run half done
            self._last = time.monotonic()
            print(f"{self._last - self._began:6.1f} s  {text}", file=self._stream, flush=True)
