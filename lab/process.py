"""Programs that the lab runs: short ones to their end, long ones recorded so that only our own are ever killed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from lab.errors import CommandFailed


def run(argv: Sequence[str], *, text_in: str | None = None, timeout_s: float = 60) -> str:
    """Run a program to its end and return its stdout; CommandFailed with its last words otherwise."""
    shown = shlex.join(argv)
    try:
        done = subprocess.run(argv, input=text_in or "", capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        raise CommandFailed(f"{argv[0]} is not installed: run bin/lab, which installs what the lab needs") from None
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"{shown}: no end after {timeout_s:.0f} s") from None
    if done.returncode:
        raise CommandFailed(f"{shown}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def start_time(pid: int) -> int | None:
    """The kernel's start time of a process (clock ticks since boot); None if it's gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def launch(argv: Sequence[str], record: Path, log: IO[bytes]) -> int:
    """Start a long-lived program in a session of its own and record its pid and start time in `record`."""
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    record.write_text(json.dumps({"pid": process.pid, "start": start_time(process.pid)}))
    process.returncode = 0  # It outlives us: Popen must not warn about it.
    return process.pid


def recorded(record: Path) -> int | None:
    """The pid in a record if that very process still runs."""
    try:
        found = json.loads(record.read_text())
        pid, start = int(found["pid"]), int(found["start"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return pid if start_time(pid) == start else None


def with_argument(argument: str) -> list[int]:
    """Pids whose command line has exactly this argument: finds what a killed `up` had no time to record.

    A program that shows a title instead (nginx) has its whole command line in one word with the argument last.
    """
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if argument.encode() in words or words[0].endswith(b" " + argument.encode()):
                pids.append(int(entry.name))
    return pids


def end(pids: Iterable[int], *, timeout_s: float = 10) -> None:
    """Kill these processes and wait until they are gone."""
    alive = {pid: start for pid in pids if (start := start_time(pid)) is not None}
    for pid in alive:
        kill(pid)
    deadline = time.monotonic() + timeout_s
    while any(start_time(pid) == start for pid, start in alive.items()):
        if time.monotonic() > deadline:
            raise CommandFailed(f"processes {sorted(alive)} don't end after SIGKILL; look at them with ps")
        time.sleep(0.02)
    for pid in alive:  # ours when this very program started them
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue


def kill(pid: int) -> None:
    """SIGKILL; a process that is gone is fine."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
