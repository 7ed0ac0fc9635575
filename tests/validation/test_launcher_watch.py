"""Who is to blame, from what is known of a rank: endings, silence, standstill, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from validation.launch_ranks import Worker
from validation.launch_watch import SILENT_S, Look, of_end, of_errors, of_silence, of_standstill, of_start

HERE = Look(reachable=True, state="S")


def worker(rank: int = 0, *, step: str = "", phase: str = "", **more: Any) -> Worker:
    one = Worker(rank, f"n{rank + 1}", f"10.0.0.{rank + 1}", 0, Path(f"n{rank + 1}-rank{rank}.log"))
    one.step, one.phase, one.pid = step, phase, 100 + rank
    for name, value in more.items():
        setattr(one, name, value)
    return one


@pytest.mark.parametrize(
    ("ended", "look", "what", "detail", "memory_kill"),
    [
        ({"status": 137}, HERE, "signal", "SIGKILL", False),
        ({"status": 139}, HERE, "signal", "SIGSEGV", False),
        ({"status": 1}, HERE, "exit", "exit status 1", False),
        ({"status": 137}, Look(True, "gone", 1), "signal", "SIGKILL, by the kernel because memory ran out", True),
        ({"ending": "Killed"}, HERE, "signal", "SIGKILL", False),
        ({"ending": "Exited with exit code 3"}, HERE, "exit", "exit status 3", False),
        ({"ending": "Out Of Memory"}, HERE, "signal", "Out Of Memory", True),
        ({"ending": "Segmentation fault (core dumped)"}, HERE, "signal", "SIGSEGV", False),
        ({"failed_start": "ImportError: numpy"}, HERE, "no-start", "ImportError: numpy", False),
    ],
)
def test_how_a_rank_ended(ended: dict[str, Any], look: Look, what: str, detail: str, memory_kill: bool) -> None:
    """Signals, exit statuses and lack of memory are told apart, over ssh and in srun's words."""
    found = of_end(worker(ended=True, **ended), look)
    assert (found.what, found.detail, found.memory_kill) == (what, detail, memory_kill)


def test_lost_connection_to_a_dead_node_is_unreachable() -> None:
    """A channel that ends without a status on a node that does not answer is the node, not the program."""
    assert of_end(worker(ended=True), Look(reachable=False)).what == "unreachable"
    assert of_end(worker(ended=True), HERE).what == "exit"


@pytest.mark.parametrize(
    ("look", "silent_s", "what"),
    [
        (Look(True, "T"), 6.0, "hang"),
        (Look(True, "gone"), 6.0, "exit"),
        (Look(False), 6.0, "unreachable"),
        (Look(True, "R"), 6.0, None),
        (Look(True, "D"), SILENT_S + 1, "hang"),
    ],
)
def test_silence(look: Look, silent_s: float, what: str | None) -> None:
    """A stopped or dead process is told at once; one that is only slow to speak gets its time."""
    found = of_silence(worker(), look, silent_s)
    assert (found.what if found else None) == what


def test_silence_while_torch_is_imported_is_no_hang() -> None:
    """The import of torch holds the interpreter: silence alone is no reason then, a stopped process is."""
    assert of_silence(worker(), Look(True, "D"), 60.0, patient=True) is None
    assert of_silence(worker(), Look(True, "T"), 6.0, patient=True) is not None


def test_standstill_names_who_is_elsewhere() -> None:
    """Who computes while the others wait is odd; so is who waits in another step than most."""
    waiting = [worker(rank, step="step 5", phase="all-reduce") for rank in (0, 1)]
    busy = worker(2, step="step 5", phase="forward")
    ahead = worker(2, step="step 6", phase="all-reduce")
    assert [found.rank for found in of_standstill([*waiting, busy], [])] == [2]
    assert [found.rank for found in of_standstill([*waiting, ahead], [])] == [2]
    assert [found.rank for found in of_standstill(waiting, [worker(2)])] == [2]


def test_standstill_of_all_alike_blames_nobody() -> None:
    """When all wait in the same place, or two in different ones, no rank can be named."""
    alike = [worker(rank, step="step 5", phase="all-reduce") for rank in range(3)]
    assert of_standstill(alike, []) == []
    assert of_standstill([alike[0], worker(1, step="step 6", phase="all-reduce")], []) == []


def test_victims_of_broken_communication_are_not_blamed() -> None:
    """Only a rank whose own code raised is named among errors."""
    errors = {
        0: ("RuntimeError", "[pair.cc:534] Connection closed by peer [10.0.0.3]:4242"),
        1: ("DistNetworkError", "The client socket has timed out after 8000ms"),
        2: ("ZeroDivisionError", "division by zero"),
    }
    assert [(found.rank, found.detail) for found in of_errors(errors)] == [(2, "ZeroDivisionError: division by zero")]


def test_start_failure_shows_the_last_words() -> None:
    """A rank that could not start shows what its program said last."""
    one = worker(ended=True, status=127)
    one.last_lines.extend(["bash: line 1: /opt/x/bin/python: No such file or directory", ""])
    found = of_start(one, HERE)
    assert found.what == "no-start"
    assert "exit status 127" in found.detail
    assert "No such file" in found.detail


def test_a_message_of_an_unexpected_size_is_told_as_different_collectives() -> None:
    """gloo's own words on a rank that met another's collective; a lost connection beside it is a victim's."""
    errors = {
        0: ("RuntimeError", "[gloo/transport/tcp/pair.cc:534] op.preamble.length <= op.nbytes. 262144 vs 4"),
        2: ("RuntimeError", "Connection closed by peer"),
    }
    found = of_errors(errors)
    assert [one.rank for one in found] == [0]
    assert found[0].detail.startswith("ranks are in different collectives: RuntimeError")
