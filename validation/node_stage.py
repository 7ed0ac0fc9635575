"""Stage node: gather, then judge by pytest, so that anybody can add a test; each test of a node becomes a record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from validation.checks.node import Gathered
from validation.model import NodeCheckRecord
from validation.node_file import save

TESTS = Path(__file__).parent / "node"
TIMEOUT_S = 300.0
"""For tests that people add; the product's own need no second each."""


class NodeStageError(Exception):
    """pytest could not do its work; the text is one sentence."""


def judge_nodes(
    gathered: Gathered, nodes: Sequence[str], folder: Path, emit: Callable[[NodeCheckRecord], None]
) -> None:
    """Run the tests of validation/node/ over `nodes` and emit a record a test and node; files go to `folder`.

    NodeStageError if pytest itself broke (a test file that cannot be imported, say).
    """
    seen, records, log = folder / "node-stage.json", folder / "node-stage.jsonl", folder / "node-stage.log"
    save(gathered, seen)
    records.write_text("", encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pytest", str(TESTS), "-c", str(TESTS / "pytest.ini"), "--rootdir", str(TESTS)),
        *("--klaster-gathered", str(seen), "--klaster-records", str(records), "--klaster-nodes", ",".join(nodes)),
    ]
    root = str(TESTS.parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *_path()]), "PYTEST_ADDOPTS": ""}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins that happen to be installed cost a second
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=root)
        try:
            status = process.wait(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise NodeStageError(f"the tests of the node stage did not end in {TIMEOUT_S:g} s; see {log}") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    for line in records.read_bytes().splitlines():  # a text has more ends of lines than JSON knows
        emit(NodeCheckRecord.model_validate(json.loads(line)))
    if status not in (0, 1):  # pytest: 1 is "some failed", which the records say better
        raise NodeStageError(f"pytest ended with status {status}: {_last_line(log)}; see {log}")


def _path() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    wrong = [line for line in lines if line.startswith(("ERROR", "E  "))]
    return (wrong or lines or ["no output"])[-1].strip()
