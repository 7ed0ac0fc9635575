"""Only processes that the lab started are ever ended."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lab.errors import CommandFailed
from lab.process import end, launch, recorded, run, start_time, with_argument


def test_a_launched_program_is_recorded_and_ended(tmp_path: Path) -> None:
    """A program that was launched is known by its record until it's ended."""
    record = tmp_path / "record.json"
    with (tmp_path / "log").open("wb") as log:
        pid = launch(["sleep", "60"], record, log)
    assert recorded(record) == pid
    end([pid])
    assert recorded(record) is None
    assert start_time(pid) is None


def test_a_pid_that_went_to_somebody_else_is_not_ours(tmp_path: Path) -> None:
    """A record whose start time doesn't match stands for a dead program, though its pid is in use again."""
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        start = start_time(stranger.pid)
        assert start is not None
        record = tmp_path / "record.json"
        record.write_text(json.dumps({"pid": stranger.pid, "start": start - 1}))
        assert recorded(record) is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_half_written_record_is_no_program(tmp_path: Path, text: str) -> None:
    """A record that a kill cut short counts as none."""
    (tmp_path / "record.json").write_text(text)
    assert recorded(tmp_path / "record.json") is None


def test_programs_are_found_by_a_whole_argument(tmp_path: Path) -> None:
    """Looking for /x/n1 finds the program with exactly that argument, not the one of /x/n10."""
    programs = [subprocess.Popen(["sh", "-c", "sleep 60; :", f"--directory={tmp_path}/n{i}"]) for i in (1, 10)]
    try:
        assert with_argument(f"--directory={tmp_path}/n1") == [programs[0].pid]
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_a_failed_command_says_its_last_words() -> None:
    """The error has the command line, its status and what it said."""
    with pytest.raises(CommandFailed, match=r"sh -c 'echo no >&2; exit 3': status 3: no"):
        run(["sh", "-c", "echo no >&2; exit 3"])


def test_a_missing_program_is_named() -> None:
    """A program that isn't installed is named, with the remedy."""
    with pytest.raises(CommandFailed, match="no-such-program is not installed"):
        run(["no-such-program"])


def test_a_command_without_end_is_an_error() -> None:
    """A command that hangs is given up after its deadline."""
    with pytest.raises(CommandFailed, match="no end after"):
        run(["sleep", "5"], timeout_s=0.1)
