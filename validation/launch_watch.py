"""Who stopped: from heartbeats, process states and answers to the ranks to blame, and those that only waited."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from validation.launch_ranks import Worker

What = Literal["hang", "signal", "exit", "exception", "unreachable", "no-start", "slurm-step"]

LOOK_S = 5.0
"""Silent for so long (heartbeats come each second): look at the process."""
SILENT_S = 15.0
"""Silent for so long although the process is there: it hangs. Shorter would blame a busy machine."""
STUCK_S = 20.0
"""Alive, but nothing moved for so long: somebody waits for something that never comes."""

WAITING_PHASES = ("all-reduce", "connect", "barrier", "leave")
"""Phases in which a rank waits for others."""
_COMMUNICATION = re.compile(r"gloo|nccl|connect|timed? ?out|socket|broken pipe|reset by peer|store", re.IGNORECASE)

_MISMATCH = re.compile(r"preamble\.length|nbytes|mismatch between collectives|different (sizes|collectives)", re.I)
"""What gloo and torch say when two ranks are in different collectives."""
DIFFERENT = "ranks are in different collectives"


@dataclass(frozen=True)
class Look:
    """A process as its node shows it, through another channel."""

    reachable: bool
    state: str = ""
    """Letter of /proc/PID/stat (T stopped, D disk, R running, S asleep, Z dead), or gone."""
    memory_kills: int = 0
    """Processes that the node's kernel killed for memory since the fleet started."""


@dataclass(frozen=True)
class Finding:
    """A rank to blame."""

    rank: int
    what: What
    detail: str
    silent_s: float | None = None
    process_state: str = ""
    memory_kill: bool = False


def of_end(worker: Worker, look: Look) -> Finding:
    """Why a rank that ended ended; the words are srun's where srun started it."""
    if worker.failed_start:
        return Finding(worker.rank, "no-start", worker.failed_start)
    status = worker.status
    if worker.ending:
        status = _status_of_words(worker.ending, status)
    if not look.reachable and status in (None, 255):
        return Finding(worker.rank, "unreachable", "the connection to the node was lost and it does not answer ssh")
    memory = look.memory_kills > 0 or "memory" in worker.ending.lower()
    if status is not None and status > 128:
        name = _signal_name(status - 128)
        why = f"{name}, by the kernel because memory ran out" if memory and name == "SIGKILL" else name
        return Finding(worker.rank, "signal", why, process_state="gone", memory_kill=memory and name == "SIGKILL")
    if memory and worker.ending:
        return Finding(worker.rank, "signal", worker.ending, process_state="gone", memory_kill=True)
    if status is None:
        return Finding(worker.rank, "exit", worker.ending or "ended without an exit status", process_state=look.state)
    return Finding(worker.rank, "exit", f"exit status {status}", process_state="gone")


def _status_of_words(words: str, status: int | None) -> int | None:
    if found := re.search(r"exit code (\d+)", words):
        return int(found[1])
    by_words = {"Killed": signal.SIGKILL, "Terminated": signal.SIGTERM, "Segmentation": signal.SIGSEGV}
    by_words |= {"Aborted": signal.SIGABRT, "Bus error": signal.SIGBUS}
    return next((128 + number for word, number in by_words.items() if word in words), status)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def of_start(worker: Worker, look: Look) -> Finding:
    """A rank that ended before it was ready, with the last thing it said."""
    found = of_end(worker, look if worker.pid else Look(reachable=True))
    last = next((line.strip() for line in reversed(worker.last_lines) if line.strip()), "")
    detail = " – ".join(part for part in (found.detail, last[:300]) if part)
    return Finding(worker.rank, "unreachable" if found.what == "unreachable" else "no-start", detail)


def of_silence(worker: Worker, look: Look, silent_s: float, *, patient: bool = False) -> Finding | None:
    """Whether a silent rank is to blame already; None: wait on. `patient`: not for silence alone."""
    silent = round(silent_s, 1)
    if not look.reachable:
        return Finding(worker.rank, "unreachable", "no heartbeat, and the node does not answer ssh", silent)
    if look.state in ("T", "t"):
        return Finding(worker.rank, "hang", "the process is stopped", silent, look.state)
    if look.state in ("gone", "Z", "X"):
        memory = look.memory_kills > 0
        return Finding(worker.rank, "exit", "the process is gone", silent, "gone", memory_kill=memory)
    if silent_s > SILENT_S and not patient:
        words = {"D": "it waits for a disk or a file server", "R": "it computes", "S": "it sleeps"}
        return Finding(
            worker.rank, "hang", f"no heartbeat; {words.get(look.state, 'process is there')}", silent, look.state
        )
    return None


def of_standstill(pending: Sequence[Worker], done: Sequence[Worker]) -> list[Finding]:
    """All are alive and none moves: the ranks that are not where the others wait; none if all wait alike."""
    places = {worker.rank: (worker.step, worker.phase) for worker in pending}
    places |= {worker.rank: ("", "finished") for worker in done}
    counts = Counter(places.values())
    busy = [worker for worker in pending if worker.phase not in WAITING_PHASES]
    if busy and len(busy) < len(places):
        odd = [worker.rank for worker in busy]
    elif len(counts) > 1:
        (common, most), *_ = counts.most_common()
        odd = [rank for rank, place in places.items() if place != common] if most > len(places) / 2 else []
    else:
        return []
    common = Counter(place for rank, place in places.items() if rank not in odd).most_common(1)[0][0]
    there = ", phase ".join(part for part in common if part)
    return [
        Finding(rank, "hang", f"it is at {', phase '.join(p for p in places[rank] if p)} while others are at {there}")
        for rank in odd
    ]


def of_errors(errors: Mapping[int, tuple[str, str]]) -> list[Finding]:
    """Ranks whose own code raised; errors of communication are what the victims of another see.

    Messages of a size that nobody expected are told as what they mean: whose program differs, they can't say.
    """
    odd = {rank: text for rank, text in errors.items() if _MISMATCH.search(" ".join(text))}
    if odd:
        return [
            Finding(rank, "exception", f"{DIFFERENT}: {kind}: {text}") for rank, (kind, text) in sorted(odd.items())
        ]
    own = {rank: text for rank, text in errors.items() if not _COMMUNICATION.search(" ".join(text))}
    return [Finding(rank, "exception", f"{kind}: {text}") for rank, (kind, text) in sorted(own.items())]
