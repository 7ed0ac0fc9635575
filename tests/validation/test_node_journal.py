"""The lines of kernel and Slurm beside a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.validation.sample_run import healthy
from validation.model import FailureRecord, JournalRecord, NodeCheckRecord, Outcome, Record
from validation.node_journal import collect_journals, failed_nodes, journal_command
from validation.remote import RemoteError


def run_record() -> Record:
    return healthy().records[0]


def _failure(node: str) -> FailureRecord:
    return FailureRecord(stage="training", node=node, rank=1, what="signal", detail="SIGKILL")


class _Remote:
    def __init__(self, answer: str | RemoteError) -> None:
        self.answer, self.asked = answer, ""

    def sudo(self, command: str) -> str:
        return f"sudo {command}"

    def run(self, command: str, *, timeout_s: float) -> Any:
        self.asked = command
        if isinstance(self.answer, RemoteError):
            raise self.answer

        class Done:
            stdout, stderr = self.answer, ""

        return Done()


def test_each_failed_node_is_asked_once(tmp_path: Path) -> None:
    """Its lines lie in the run's logs; a node that can't be asked any more is named, and the others are still asked."""
    fine, broken = _Remote("kernel: Out of memory\n"), _Remote(RemoteError("gone"))
    remotes: Any = {"n1": fine, "n2": broken, "n4": _Remote("nobody asks me")}
    records: list[Record] = [run_record(), *(_failure(name) for name in ("n1", "n2", "n1", "n3"))]
    told: list[Record] = []
    collect_journals(tmp_path, records, remotes, 0.0, told.append)
    assert (tmp_path / "n1.journal.txt").read_text() == "kernel: Out of memory\n"
    assert "gone" in (tmp_path / "n2.journal.txt").read_text()
    assert "not reached" in (tmp_path / "n3.journal.txt").read_text()
    assert not (tmp_path / "n4.journal.txt").exists()
    assert fine.asked.startswith("sudo journalctl")
    assert [one.node for one in told if isinstance(one, JournalRecord)] == ["n1", "n2", "n3"]
    assert told[0] == JournalRecord(node="n1", lines=("kernel: Out of memory",))


def test_a_failed_check_and_a_named_node_are_failures_too() -> None:
    """Whose disk is full, or whose network the judge names, is asked as one whose rank died is; a good node is not."""
    full = NodeCheckRecord(node="n2", check="disk-space", outcome=Outcome.FAIL, cause="disk-full")
    good = NodeCheckRecord(node="n3", check="disk-space", outcome=Outcome.PASS)
    assert failed_nodes([run_record(), full, good]) == ("n2",)


def test_no_failure_asks_nobody(tmp_path: Path) -> None:
    """A run in which all ranks finished collects nothing."""
    assert failed_nodes([run_record()]) == ()
    collect_journals(tmp_path, [run_record()], {}, 0.0, lambda record: None)
    assert list(tmp_path.iterdir()) == []


def test_the_window_is_the_runs() -> None:
    """The run's own time and a minute before it, of the kernel and of Slurm's daemons."""
    command = journal_command(100.4)
    assert "--since=-160s" in command
    assert "_TRANSPORT=kernel" in command
    assert "_SYSTEMD_UNIT=slurmd.service" in command
