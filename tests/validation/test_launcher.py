"""The fleet with real worker processes on this machine (no torch, no ssh)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from inventory.model import Node
from tests.validation.local_launcher import LocalLauncher, state
from validation import launch_session
from validation.launcher import Fleet, FleetError, RanksLost
from validation.model import FailureRecord, Record

# an inventory does not take loopback addresses: here all nodes are this machine
NODES = tuple(Node.model_construct(name=name, address="127.0.0.1") for name in ("n1", "n2", "n3"))
ROOT = Path(__file__).resolve().parents[2]
IDLE = {"op": "idle", "seconds": 60.0}


class Trial:
    """A fleet on this machine and what it emitted."""

    def __init__(self, folder: Path) -> None:
        self.launcher = LocalLauncher(folder / "nodes")
        self.records: list[Record] = []
        self.logs = folder / "logs"
        self.fleet = Fleet(self.launcher, NODES, logs=self.logs, emit=self.records.append, torch=False)

    @property
    def failures(self) -> list[FailureRecord]:
        return [record for record in self.records if isinstance(record, FailureRecord)]

    def pid(self, node: str) -> int:
        return self.fleet.lead(node).pid

    def pids(self) -> list[int]:
        return [worker.pid for worker in self.fleet.ranks_of(self.fleet.nodes)]

    def all(self, command: dict[str, object]) -> dict[int, dict[str, object]]:
        return {worker.rank: command for worker in self.fleet.ranks_of(self.fleet.nodes)}


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    one = Trial(tmp_path)
    with one.fleet:
        yield one


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines of seconds instead of a quarter of a minute."""
    monkeypatch.setattr(launch_session, "STUCK_S", 2.5)
    monkeypatch.setattr(launch_session, "LOOK_S", 2.5)
    monkeypatch.setattr(launch_session, "AFTER_ERROR_S", 1.0)


def later(action: Callable[[], object], delay_s: float = 0.5) -> None:
    threading.Timer(delay_s, action).start()


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_answers_come_from_every_rank_and_nothing_is_left(tmp_path: Path) -> None:
    """Every rank answers its own command, and after the end there is no process and no folder."""
    trial = Trial(tmp_path)
    with trial.fleet:
        trial.fleet.up("pairs")
        pids = trial.pids()
        answers = trial.fleet.ask("pairs", trial.all({"op": "idle", "seconds": 0.0}), timeout_s=20)
        assert [answers[rank]["ok"] for rank in (0, 1, 2)] == [True, True, True]
        assert len({*pids}) == 3
    assert all(state(pid) in ("gone", "Z") for pid in pids)
    assert not any(trial.launcher.folder(node.name).exists() for node in NODES)
    assert trial.records == []


def test_killed_rank_is_named_with_its_signal(trial: Trial) -> None:
    """A rank that is killed is the failure; the others only waited, and the fleet goes on without its node."""
    trial.fleet.up("training")
    later(lambda: os.kill(trial.pid("n2"), signal.SIGKILL))
    with pytest.raises(RanksLost):
        trial.fleet.ask("training", trial.all({**IDLE, "step": "step 5", "phase": "forward"}), timeout_s=50)
    (failure,) = trial.failures
    assert (failure.node, failure.what, failure.detail) == ("n2", "signal", "SIGKILL")
    assert failure.waiting == ("n1", "n3")
    assert failure.step == "step 5, phase forward"
    trial.fleet.up("training")
    assert [worker.node for worker in trial.fleet.ranks_of(trial.fleet.nodes)] == ["n1", "n3"]


@pytest.mark.usefixtures("quick")
def test_stopped_rank_is_a_hang_within_seconds(trial: Trial) -> None:
    """SIGSTOP is found by the missing heartbeat and the state T, and the stopped process does not stay."""
    trial.fleet.up("pairs")
    stopped = trial.pid("n3")
    later(lambda: os.kill(stopped, signal.SIGSTOP))
    began = time.monotonic()
    with pytest.raises(RanksLost):
        trial.fleet.ask("pairs", trial.all(IDLE), timeout_s=50)
    (failure,) = trial.failures
    assert (failure.node, failure.what, failure.process_state) == ("n3", "hang", "T")
    assert time.monotonic() - began < 15
    assert state(stopped) in ("gone", "Z")


def test_unreachable_node_is_told_from_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent rank whose node does not answer ssh either is unreachable."""
    monkeypatch.setattr(launch_session, "LOOK_S", 2.5)
    trial = Trial(tmp_path)
    with trial.fleet:
        trial.fleet.up("pairs")
        trial.launcher.unreachable = frozenset({"n1"})
        later(lambda: os.kill(trial.pid("n1"), signal.SIGSTOP))
        with pytest.raises(RanksLost):
            trial.fleet.ask("pairs", trial.all(IDLE), timeout_s=50)
        trial.launcher.unreachable = frozenset()
    assert [(failure.node, failure.what) for failure in trial.failures] == [("n1", "unreachable")]


@pytest.mark.usefixtures("quick")
def test_exception_of_one_rank_is_its_own(trial: Trial) -> None:
    """When one rank raises something of its own, it is named, and ranks that only wait are not."""
    trial.fleet.up("training")
    commands = trial.all({**IDLE, "phase": "all-reduce", "moving": True})
    commands[1] = {**IDLE, "fail": "division by zero"}
    with pytest.raises(RanksLost):
        trial.fleet.ask("training", commands, timeout_s=50, together=True)
    (failure,) = trial.failures
    assert (failure.node, failure.what) == ("n2", "exception")
    assert failure.detail == "RuntimeError: division by zero"
    assert any("Traceback" in line or "division by zero" in line for line in failure.last_lines)


@pytest.mark.usefixtures("quick")
def test_broken_communication_blames_nobody(trial: Trial) -> None:
    """An error of communication while every rank lives is no rank's fault."""
    trial.fleet.up("training")
    commands = trial.all({**IDLE, "phase": "all-reduce", "moving": True})
    commands[0] = {**IDLE, "fail": "gloo: Connection closed by peer"}
    with pytest.raises(FleetError, match="communication failed on n1"):
        trial.fleet.ask("training", commands, timeout_s=50, together=True)
    assert trial.failures == []
    assert len(trial.fleet.nodes) == 3


@pytest.mark.usefixtures("quick")
def test_rank_that_skips_a_collective_is_the_odd_one(trial: Trial) -> None:
    """All alive and nothing moves: the rank that is elsewhere than the waiting ones is named with its place."""
    trial.fleet.up("training")
    commands = trial.all({**IDLE, "step": "step 7", "phase": "all-reduce"})
    commands[2] = {**IDLE, "step": "step 7", "phase": "forward"}
    with pytest.raises(RanksLost):
        trial.fleet.ask("training", commands, timeout_s=50, together=True)
    (failure,) = trial.failures
    assert (failure.node, failure.what) == ("n3", "hang")
    assert "step 7, phase forward while others are at step 7, phase all-reduce" in failure.detail
    log = (trial.logs / "n3-rank2.log").read_text(encoding="utf-8")
    assert "in idle" in log, "the log shows the Python line that the rank stands at"


@pytest.mark.usefixtures("quick")
def test_slow_but_moving_ranks_are_left_alone(trial: Trial) -> None:
    """A rank that takes longer than the deadline of a standstill, but moves, is not blamed."""
    trial.fleet.up("training")
    answers = trial.fleet.ask(
        "training", trial.all({"op": "idle", "seconds": 4.0, "moving": True}), timeout_s=50, together=True
    )
    assert [answer["ok"] for answer in answers.values()] == [True, True, True]


def test_deadline_returns_what_is_there(trial: Trial) -> None:
    """At the deadline the answers that came are returned and nobody is blamed."""
    trial.fleet.up("pairs")
    commands = trial.all({"op": "idle", "seconds": 0.0})
    commands[1] = IDLE
    assert sorted(trial.fleet.ask("pairs", commands, timeout_s=1.5)) == [0, 2]
    assert trial.failures == []


def test_node_that_cannot_start_is_left_out(tmp_path: Path) -> None:
    """A node without room for the programs is a no-start with the reason; the others start."""
    trial = Trial(tmp_path)
    trial.launcher.broken_nodes = {"n2": "No space left on device"}
    with trial.fleet:
        trial.fleet.up("pairs")
        assert [node.name for node in trial.fleet.nodes] == ["n1", "n3"]
    (failure,) = trial.failures
    assert (failure.node, failure.what, failure.detail) == ("n2", "no-start", "No space left on device")


def test_no_node_left_is_one_sentence(tmp_path: Path) -> None:
    """When nothing can be started, the error says so instead of going round for ever."""
    trial = Trial(tmp_path)
    trial.launcher.broken_nodes = dict.fromkeys(("n1", "n2", "n3"), "No space left on device")
    with trial.fleet, pytest.raises(FleetError, match="no worker could be started"):
        trial.fleet.up("pairs")
    assert len(trial.failures) == 3


def test_shared_program_that_ends_blames_nobody(tmp_path: Path) -> None:
    """When the one srun of all ranks ends, the job ended: no rank is to blame."""
    trial = Trial(tmp_path)
    trial.launcher.shared = True
    with trial.fleet:
        trial.fleet.up("pairs")
        for pid in trial.pids():
            later(partial(os.kill, pid, signal.SIGKILL))
        with pytest.raises(FleetError, match="the Slurm job ended"):
            trial.fleet.ask("pairs", trial.all(IDLE), timeout_s=50)
    assert trial.failures == []


def test_node_where_slurm_starts_nothing_goes_on_over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is told, and the node is not lost: what is wrong with it can still be measured."""
    monkeypatch.setattr(launch_session, "SLURM_SPREAD_S", 1.0)
    trial = Trial(tmp_path)
    trial.launcher.shared, trial.launcher.without_slurm = True, set()
    with trial.fleet:
        trial.fleet.up("pairs")
        assert [node.name for node in trial.fleet.nodes] == ["n1", "n2", "n3"]
        assert trial.pid("n2")
    (failure,) = trial.failures
    assert (failure.node, failure.what) == ("n2", "slurm-step")
    assert trial.fleet.lost == {}


def test_interruption_cleans_up(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a stage leaves no process."""
    trial = Trial(tmp_path)
    pids: list[int] = []

    def stage() -> None:
        with trial.fleet:
            trial.fleet.up("pairs")
            pids.extend(trial.pids())
            later(lambda: os.kill(os.getpid(), signal.SIGINT))
            trial.fleet.ask("pairs", trial.all(IDLE), timeout_s=50)

    with pytest.raises(KeyboardInterrupt):
        stage()
    assert len(pids) == 3
    assert all(state(pid) in ("gone", "Z") for pid in pids)


def test_workers_go_when_the_control_program_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the control program closes their stdin, and they end by themselves with their folder."""
    program = (
        "import sys, time; from pathlib import Path; from tests.validation.test_launcher import Trial\n"
        "trial = Trial(Path(sys.argv[1])); trial.fleet.up('pairs')\n"
        "print(*trial.pids(), flush=True)\n"
        "trial.fleet.ask('pairs', trial.all({'op': 'idle', 'seconds': 60}), timeout_s=60)"
    )
    control = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert control.stdout
    pids = [int(word) for word in control.stdout.readline().split()]
    assert len(pids) == 3
    assert all(state(pid) not in ("gone", "Z") for pid in pids)
    control.kill()
    control.wait()
    control.stdout.close()
    assert wait_until(lambda: all(state(pid) in ("gone", "Z") for pid in pids))
    assert wait_until(lambda: not (tmp_path / "nodes" / "n1").exists())
