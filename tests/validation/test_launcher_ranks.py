"""What comes out of a worker, alone or through srun, becomes messages, log lines and endings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from inventory.model import Node
from validation.launch_ranks import Board, Worker
from validation.launch_ssh import Launcher
from validation.launcher import Fleet


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board([Worker(rank, f"n{rank + 1}", "10.0.0.1", 0, tmp_path / f"n{rank + 1}.log") for rank in (0, 1)])


def frame(rank: int, message: dict[str, object]) -> str:
    return f"@{rank}={json.dumps(message)}"


def test_message_in_parts_is_put_together(board: Board) -> None:
    """Long messages arrive in short lines; parts of two ranks may alternate."""
    board.output((0, 1), '@0+{"id":1,"ok"')
    board.output((0, 1), '@1+{"id":1,"o')
    board.output((0, 1), "@0=:true}")
    board.output((0, 1), '@1=k":false}')
    assert board.workers[0].answers == {1: {"id": 1, "ok": True}}
    assert board.workers[1].answers == {1: {"id": 1, "ok": False}}


def test_srun_labels_say_whose_stderr_it_is(board: Board) -> None:
    """Slurm's task numbers are not our ranks: the label in front of a rank's own words joins them."""
    board.output((0, 1), "1: " + frame(0, {"hello": True, "pid": 7, "job": "42"}))
    board.error((0, 1), "1: warning: something")
    assert list(board.workers[0].last_lines) == ["warning: something"]
    assert list(board.workers[1].last_lines) == []
    assert board.workers[0].pid == 7


def test_srun_tells_the_end_of_one_task(board: Board) -> None:
    """srun goes on when one task dies: its error line ends that rank only."""
    board.output((0, 1), " 0: " + frame(1, {"hello": True, "pid": 7, "job": "42"}))
    board.output((0, 1), " 1: " + frame(0, {"hello": True, "pid": 8, "job": "42"}))
    board.error((0, 1), "srun: error: n2: task 0: Killed")
    assert (board.workers[1].ended, board.workers[1].ending) == (True, "Killed")
    assert not board.workers[0].ended


def test_srun_names_the_node_of_a_task_that_never_spoke(board: Board) -> None:
    """A program that could not even start has told no rank: the node's name in srun's line does."""
    node = board.workers[1].node
    board.error((0, 1), f"srun: error: {node}: task 1: Exited with exit code 127")
    assert board.workers[1].ended
    assert not board.workers[0].ended


def test_noise_goes_to_the_log(board: Board, tmp_path: Path) -> None:
    """What is no frame, or a garbled one, is kept for a person to read and changes nothing else."""
    board.output((0,), "Fatal Python error")
    board.output((0,), "@0={broken")
    board.output((0,), "@9=" + json.dumps({"id": 1}))
    board.close()
    text = (tmp_path / "n1.log").read_text(encoding="utf-8")
    assert "Fatal Python error" in text
    assert "garbled" in text
    assert board.workers[0].answers == {}


def test_heartbeat_moves_only_when_the_count_does(board: Board) -> None:
    """A heartbeat says the rank lives; only a new count says that it gets on."""
    beat = {"beat": 1, "step": "step 1", "phase": "forward", "count": 5}
    board.output((0,), frame(0, beat))
    moved = board.workers[0].moved_at
    board.output((0,), frame(0, {**beat, "beat": 2}))
    assert board.workers[0].moved_at == moved
    assert board.workers[0].heard_at > moved
    assert board.workers[0].where == "step 1, phase forward"


def test_ranks_meet_in_the_network_that_carries_compute(tmp_path: Path) -> None:
    """A node with an address there is met at it, another one at its first."""
    nodes = [Node(name="head", address="10.0.0.1"), Node(name="n1", address="10.0.0.2")]
    fleet = Fleet(cast(Launcher, None), nodes, logs=tmp_path, emit=lambda record: None, addresses={"n1": "10.88.0.2"})
    with fleet:
        assert [worker.address for worker in fleet._new_workers()] == ["10.0.0.1", "10.88.0.2"]
