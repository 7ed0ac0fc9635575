"""The TCP probe and the worker's own parts, on this machine's loopback."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from inventory.model import Node
from tests.validation.local_launcher import LocalLauncher
from validation.checks.reach import probe_reach
from validation.launch_ssh import PAYLOADS
from validation.launcher import Fleet

NODES = tuple(Node.model_construct(name=name, address="127.0.0.1") for name in ("n1", "n2"))


def payload(name: str) -> ModuleType:
    """A payload module as a worker sees it, without its folder on our path."""
    spec = importlib.util.spec_from_file_location(f"payload_{name}", PAYLOADS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    launcher = LocalLauncher(tmp_path / "nodes")
    with Fleet(launcher, NODES, logs=tmp_path / "logs", emit=lambda record: None, torch=False) as one:
        one.up("pairs")
        yield one


def test_all_pairs_reach_each_other(fleet: Fleet) -> None:
    """Every ordered pair connects to several high ports and is greeted by the right node, in milliseconds."""
    records = probe_reach(fleet, NODES, stage="pairs")
    assert {(one.src, one.dst, one.ok) for one in records} == {("n1", "n2", True), ("n2", "n1", True)}
    assert all(one.connect_ms is not None and one.connect_ms < 1000 and one.port >= 1024 for one in records)


def test_answers_of_a_probe_are_told_apart(fleet: Fleet) -> None:
    """A closed port is refused, another node's answer is not taken for the right one, a silent one is silent."""
    (first, second) = fleet.ranks_of(NODES)
    ports = fleet.ask("pairs", {second.rank: {"op": "listen"}}, timeout_s=10)[second.rank]["ports"]
    assert len(ports) == 4
    with socket.socket() as closed, socket.socket() as silent:
        closed.bind(("127.0.0.1", 0))
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        targets = [
            ("n2", "127.0.0.1", ports[0]),
            ("other", "127.0.0.1", ports[1]),
            ("n2", "127.0.0.1", closed.getsockname()[1]),
            ("n2", "127.0.0.1", silent.getsockname()[1]),
        ]
        command = {"op": "reach", "targets": targets, "timeout_s": 1.0}
        answers = fleet.ask("pairs", {first.rank: command}, timeout_s=10)[first.rank]["answers"]
    assert [answer["error"] for answer in answers] == ["", "answered by n2", "refused", "silent"]
    assert [answer["ok"] for answer in answers] == [True, False, False, False]


def test_a_greeting_that_stops_after_its_name_means_large_packets(fleet: Fleet) -> None:
    """A node that connects and says its name, but whose full frames never arrive, is told from a silent one."""
    (first, _) = fleet.ranks_of(NODES)
    with socket.socket() as narrow:
        narrow.bind(("127.0.0.1", 0))
        narrow.listen()
        targets = [("n2", "127.0.0.1", narrow.getsockname()[1])]

        def greet() -> None:
            peer, _ = narrow.accept()
            peer.sendall(b"n2".ljust(64) + bytes(1000))
            time.sleep(2)
            peer.close()

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        command = {"op": "reach", "targets": targets, "timeout_s": 1.0}
        answers = fleet.ask("pairs", {first.rank: command}, timeout_s=10)[first.rank]["answers"]
    assert [(answer["ok"], answer["error"]) for answer in answers] == [(False, "large-packets")]


def test_interface_is_found_by_its_address() -> None:
    """The interface is the one that holds the declared address; an address nobody holds is an error that says so."""
    worker = payload("worker")
    assert worker.interface_of("127.0.0.1") == "lo"
    with pytest.raises(LookupError, match=r"holds 203\.0\.113\.9, only .*127\.0\.0\.1"):
        worker.interface_of("203.0.113.9")


def test_long_messages_leave_in_short_lines() -> None:
    """srun cuts lines of more than a kibibyte: a worker never writes one, and the parts give the message again."""
    worker = payload("worker")
    reading, writing = os.pipe()
    message = {"id": 1, "text": "é" * 3000}
    worker.Voice(5, writing).say(message)
    os.close(writing)
    with os.fdopen(reading, encoding="ascii") as stream:
        lines = stream.read().splitlines()
    assert max(map(len, lines)) < 1000
    assert [line[:3] for line in lines] == ["@5+"] * (len(lines) - 1) + ["@5="]
    assert json.loads("".join(line[3:] for line in lines)) == message


def test_rank_is_chosen_by_slurm_or_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under srun a process is the rank of its node and local number, whatever Slurm numbered it."""
    worker = payload("worker")
    ranks = [{"rank": 0, "node": "n1", "local_rank": 0}, {"rank": 1, "node": "n2", "local_rank": 0}]
    ranks.append({"rank": 2, "node": "n2", "local_rank": 1})
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    monkeypatch.setenv("SLURM_LOCALID", "1")
    assert worker.choose_rank({"ranks": ranks}, True, None)["rank"] == 2
    assert worker.choose_rank({"ranks": ranks}, False, 1)["node"] == "n2"


def test_payloads_need_no_package_at_import_of_the_worker() -> None:
    """The worker starts with the standard library alone: torch comes later, with its own error message."""
    before = set(sys.modules)
    payload("worker")
    payload("reach")
    assert not {name.split(".")[0] for name in set(sys.modules) - before} & {"torch", "numpy"}
