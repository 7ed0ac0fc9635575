"""A stored run is judged again: after a restart, with another hash seed, in another folder, to the same bytes."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.validation.stored_run import FILE
from validation.cli import main
from validation.model import Outcome, RunRecord
from validation.printing import wants_color
from validation.run_folder import RunFolder
from validation.verdict import judge

ROOT = Path(__file__).parents[2]
WRITTEN = ("certificate.json", "report.html", "metrics.prom")


def stored(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(FILE, folder / "results.jsonl")
    return folder


def rejudged(folder: Path, hash_seed: str) -> tuple[int, bytes, list[bytes]]:
    """Status, what was printed and the files of a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "validation.cli", "--rejudge", str(folder), "--json"],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout, [(folder / name).read_bytes() for name in WRITTEN]


def test_another_process_with_another_hash_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    """Nothing of clock, chance, order of sets or folder gets into certificate, report and metrics."""
    first = rejudged(stored(tmp_path / "one"), "1")
    assert first[0] == 1
    assert rejudged(tmp_path / "one", "2") == first
    assert rejudged(stored(tmp_path / "two"), "4242") == first


@pytest.mark.parametrize("text", ["", "{}\n", '{"kind": "half'], ids=["empty", "no record", "half a line"])
def test_results_of_no_run_are_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results without a run to judge are wrong usage, told in one line; nothing is written beside them."""
    (tmp_path / "results.jsonl").write_text(text, encoding="utf-8")
    assert main(["--rejudge", str(tmp_path)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]


@pytest.mark.parametrize("more", ["", "--json"])
def test_a_reader_that_is_gone_changes_no_status(more: str, tmp_path: Path) -> None:
    """`validate-cluster … | head -1` ends as without head, and without a traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "validation.cli", "--rejudge", str(stored(tmp_path / "run")), *more.split()]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(writing)
    assert done.returncode == 1
    assert "Broken" not in done.stderr


def test_a_full_disk_under_the_output_is_one_line(tmp_path: Path) -> None:
    """Output that could not be written is told, with a status that nobody takes for a certificate."""
    command = [sys.executable, "-m", "validation.cli", "--rejudge", str(stored(tmp_path / "run"))]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "No space left on device" in done.stderr


def test_a_terminal_of_another_encoding_breaks_nothing_off(tmp_path: Path) -> None:
    """What it can't show becomes a question mark; the status stays."""
    command = [sys.executable, "-m", "validation.cli", "--rejudge", str(stored(tmp_path / "run"))]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=ROOT, env=ascii_only, capture_output=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    assert b"report.html" in done.stdout


@pytest.mark.parametrize(
    ("variables", "colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_color_is_for_terminals_that_want_it(
    variables: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR with any value but an empty one, and a dumb terminal, get plain text."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    assert wants_color(terminal) is colored
    assert not wants_color(io.StringIO())


def test_the_stored_run_names_every_fault_once(tmp_path: Path) -> None:
    """A service that all nodes miss is one culprit; beside it an uplink, a node and, on real machines, a doubt."""
    records = RunFolder(stored(tmp_path / "run")).records()
    assert judge(records).nodes["n7"] is Outcome.PASS  # the stored run is a simulation: its history is only shown
    real = [r.model_copy(update={"substrate": "hardware"}) if isinstance(r, RunRecord) else r for r in records]
    judgement = judge(real)
    assert [(c.kind, c.subject, c.cause) for c in judgement.culprits] == [
        ("service", "slapd on head", "directory-down"),
        ("switch", "leaf3", "uplink"),
        ("node", "n2", "network"),
    ]
    assert {node for node, outcome in judgement.nodes.items() if outcome is Outcome.FAIL} == {"n2"}
    assert judgement.nodes["n7"] is Outcome.INCONCLUSIVE
    assert [text for text in judgement.undecided if text.startswith("n7 sends")]


def test_the_baseline_is_part_of_the_results(tmp_path: Path) -> None:
    """Earlier runs beside the folder change nothing: what was compared with stands in the run record."""
    alone = rejudged(stored(tmp_path / "a"), "1")
    with_others = tmp_path / "b"
    for name in ("2025-01-01T00-00-00Z", "2025-01-02T00-00-00Z"):
        with_others.mkdir(exist_ok=True)
        stored(with_others / name)
    assert rejudged(with_others / "2025-01-02T00-00-00Z", "1") == alone
    assert not (with_others / "history.json").exists()
