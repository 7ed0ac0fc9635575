"""The probe itself, run on this machine: one JSON document, in time, whatever hangs or is missing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

PROBE = Path(__file__).parents[2] / "validation" / "payloads" / "probe.py"
ASKED = {
    "names": ["localhost", "no-such-name.invalid"],
    "peers": {"me": "127.0.0.1"},
    "paths": ["/", "/nonexistent"],
    "services": ["ssh.service"],
    "accounts": ["root", "nosuchaccount"],
    "venv": "",
}


@pytest.fixture
def probe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("probe_under_test", PROBE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_document_from_standard_input() -> None:
    """Piped to a bare interpreter it answers every question or says why not, and ends with status 0."""
    done = subprocess.run(
        [sys.executable, "-I", "-", json.dumps(ASKED)],
        input=PROBE.read_text(encoding="utf-8"),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    found = json.loads(done.stdout)
    assert all(set(answer) in ({"ok"}, {"error"}) for answer in found.values())
    assert found["system"]["ok"]["cpus"] >= 1
    assert found["names"]["ok"]["localhost"] == ["127.0.0.1"]
    assert found["names"]["ok"]["no-such-name.invalid"][0].startswith("error")
    assert found["sources"]["ok"] == {"me": "127.0.0.1"}
    assert found["filesystem:/"]["ok"]["total_bytes"] > 0
    assert found["filesystem:/nonexistent"]["error"].startswith("not there")
    assert found["accounts"]["ok"] == {"root": [0, 0, "root"], "nosuchaccount": None}


def test_a_hanging_question_costs_only_itself(probe: ModuleType) -> None:
    """The others are answered, all are back after the deadline, and the hanging child is gone."""
    began = time.monotonic()
    found = probe.ask_all({"hangs": lambda: time.sleep(60), "quick": lambda: 1, "breaks": lambda: 1 / 0}, 0.5)
    assert time.monotonic() - began < 3
    assert found["quick"] == {"ok": 1}
    assert found["hangs"] == {"error": "no answer in 0.5 s"}
    assert found["breaks"]["error"].startswith("ZeroDivisionError")


def test_a_hanging_program_is_killed_with_its_children(probe: ModuleType) -> None:
    """A command that hangs does not stay behind on the node."""
    mark = "867.5309"
    probe.ask_all({"hangs": lambda: probe.command("sh", "-c", f"sleep {mark}; true")}, 0.5)
    time.sleep(0.2)
    cmdlines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in cmdlines if line == f"sleep\0{mark}\0".encode()]


def test_a_large_answer_comes_whole(probe: ModuleType) -> None:
    """Answers longer than a pipe holds are read while they are written."""
    assert len(probe.ask_all({"long": lambda: "x" * 1_000_000}, 5.0)["long"]["ok"]) == 1_000_000


def test_a_missing_program_is_told(probe: ModuleType) -> None:
    """A tool that is not installed is named, not a crash."""
    found = probe.ask_all({"tool": lambda: probe.command("no-such-program")}, 2.0)
    assert found["tool"] == {"error": "not there: no-such-program"}


def test_cards_are_asked_for_where_there_are_any(tmp_path: Path) -> None:
    """With its GPU part the probe has a longer deadline for nvidia-smi, and says what is not there."""
    from validation.node_gather import probe_program

    done = subprocess.run(
        [sys.executable, "-I", "-", json.dumps({**ASKED, "gpus": True})],
        input=probe_program(True),
        capture_output=True,
        check=True,
        timeout=40,
    )
    found = json.loads(done.stdout)
    assert found["gpu_smi"]["error"].startswith("not there: nvidia-smi")
    assert found["gpu_driver"] == {"ok": {"module": "", "library": ""}}
    assert found["gpu_simulation"] == {"ok": ""}
    assert found["gpu_numa"]["ok"]["cards"] == {}
    assert b"gpu_questions()" not in probe_program(False).split(b"def main")[0]


def test_networks_are_asked_about_by_their_own_part() -> None:
    """With it the probe says what is written down, and from where it would send; there is no adapter here."""
    from validation.node_gather import probe_program

    done = subprocess.run(
        [sys.executable, "-I", "-", json.dumps({**ASKED, "networks": {"fast": {"n1": "127.0.0.1"}}})],
        input=probe_program(False),
        capture_output=True,
        check=True,
        timeout=40,
    )
    found = json.loads(done.stdout)
    assert found["fabric"]["ok"]["sources"] == {"fast": {"n1": "127.0.0.1"}}
    assert found["rdma"] == {"ok": {}}
