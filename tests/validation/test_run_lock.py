"""The run lock, with this machine in the controller's place: one holder, named, and never a stale lock."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from validation import run_lock as module
from validation.remote import Completed, RemoteError
from validation.run_lock import ClusterLocked, run_lock


class LocalStream:
    """A program of this machine in place of one at the other end of a channel."""

    def __init__(self, command: str) -> None:
        self.process = subprocess.Popen(
            ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.decode().rstrip("\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def status(self, timeout_s: float = 2.0) -> int | None:
        return self.process.wait(timeout=timeout_s)

    def close(self) -> None:
        self.process.communicate()


class LocalController:
    name = "head"

    def __init__(self) -> None:
        self.streams: list[LocalStream] = []

    def sudo(self, command: str) -> str:
        return command

    def run(self, command: str, *, timeout_s: float, stdin: bytes | None = None) -> Completed:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        return Completed(done.returncode, done.stdout, done.stderr)

    def stream(self, command: str) -> LocalStream:
        self.streams.append(LocalStream(command))
        return self.streams[-1]


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalController:
    monkeypatch.setattr(module, "FOLDER", str(tmp_path / "run"))
    return LocalController()


def free_within(controller: LocalController, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with run_lock(controller, "next"):  # type: ignore[arg-type]
                return True
        except ClusterLocked:
            time.sleep(0.1)
    return False


def test_a_second_run_is_told_who_holds_the_cluster(controller: LocalController) -> None:
    """The refusal names user, machine, time and run of the holder."""
    with (
        run_lock(controller, "first-run"),  # type: ignore[arg-type]
        pytest.raises(ClusterLocked, match=r".+@.+ since \d{4}-.* UTC, run first-run"),
        run_lock(controller, "second-run"),  # type: ignore[arg-type]
    ):
        pass


def test_the_lock_is_free_after_the_run(controller: LocalController) -> None:
    """Nothing of it is left but an empty lock file."""
    with run_lock(controller, "first-run"):  # type: ignore[arg-type]
        pass
    assert free_within(controller, 2)
    assert [path.name for path in Path(module.FOLDER).iterdir()] == ["validate.lock"]


def test_the_lock_is_free_after_an_exception(controller: LocalController) -> None:
    """Whatever ends a run frees the cluster."""
    with pytest.raises(KeyboardInterrupt), run_lock(controller, "first-run"):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert free_within(controller, 2)


def test_a_killed_holder_holds_nothing(controller: LocalController) -> None:
    """When the connection breaks, the controller's end goes, and the lock with it."""
    with run_lock(controller, "first-run"):  # type: ignore[arg-type]
        stream = controller.streams[0]
        assert stream.process.stdin is not None
        stream.process.stdin.close()
        stream.process.stdin = None
        assert free_within(controller, 3)


def test_a_silent_holder_holds_nothing(controller: LocalController, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control machine that lost its power is given up after the time of silence."""
    monkeypatch.setattr(module, "SILENCE_S", 1)
    with run_lock(controller, "first-run"):  # type: ignore[arg-type]
        assert free_within(controller, 4)


def test_a_folder_that_cannot_be_made_is_told(controller: LocalController, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller where the lock can't be taken is an error with its place, not a free cluster."""
    monkeypatch.setattr(module, "FOLDER", "/proc/nowhere")
    with pytest.raises(RemoteError, match="/proc/nowhere"), run_lock(controller, "run"):  # type: ignore[arg-type]
        pass
