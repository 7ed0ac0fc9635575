"""The command line: what it accepts, how it complains, and that it contacts nobody before it is sure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inventory.model import Cluster
from validation import cli
from validation.run_options import RunOptions

ROOT = Path(__file__).parents[2]
LAB = str(ROOT / "inventory" / "lab.py")


@pytest.fixture(autouse=True)
def key_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab's key is only there while the lab is up."""
    monkeypatch.setattr("inventory.guard.check_key", lambda cluster: None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """Runs that would have been started."""
    runs: list[RunOptions] = []

    def validate(options: RunOptions) -> int:
        runs.append(options)
        return 0

    monkeypatch.setattr("validation.run.validate", validate)
    return runs


def test_arguments_become_a_run(asked: list[RunOptions]) -> None:
    """Every option reaches the run, stages in their own order."""
    words = [LAB, "--level", "standard", "--only", "training,node", "--nodes", "n1,n2", "--launcher", "ssh"]
    assert cli.main([*words, "--out", "elsewhere", "--json", "--wait", "5"]) == 0
    assert asked == [
        RunOptions(
            inventory=LAB,
            level="standard",
            stages=("node", "training"),
            nodes=("n1", "n2"),
            launcher="ssh",
            out=Path("elsewhere"),
            json=True,
            wait_minutes=5.0,
        )
    ]
    assert asked[0].partial


def test_the_default_run_is_whole(asked: list[RunOptions]) -> None:
    """Without options all stages of all nodes run at level quick, and such a run may certify the cluster."""
    assert cli.main([LAB]) == 0
    assert asked[0].level == "quick"
    assert asked[0].all_stages
    assert not asked[0].partial


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no inventory given"),
        ([LAB, "--levle", "quick"], 'did you mean "--level"?'),
        ([LAB, "--level", "quik"], 'did you mean "quick"?'),
        ([LAB, "--launcher", "slrum"], 'did you mean "slurm"?'),
        ([LAB, "--only", "node,pars"], 'did you mean "pairs"?'),
        ([LAB, "--only", ","], "--only names nothing"),
        ([LAB, "--nodes", "haed"], 'did you mean "head"?'),
        ([LAB, "--wait", "soon"], "invalid float value"),
        ([LAB, "--wait", "-1"], "minutes from 0"),
        ([LAB, "--level"], "expected one argument"),
        (["nosuch.py"], "no inventory file nosuch.py"),
        (["--rejudge", "nosuch"], "no results.jsonl in nosuch"),
    ],
)
def test_a_mistake_is_one_line_and_exit_3(
    words: list[str], said: str, asked: list[RunOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong argument or inventory gives one line with the remedy on stderr, exit status 3, and no run."""
    assert cli.main(words) == 3
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not asked


def test_a_wrong_inventory_is_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with an inventory is told with its place, before anything is contacted."""
    file = tmp_path / "bad.py"
    file.write_text('from inventory.model import Network\nNetwork(name="lan", cidr="10.0.0.0/24", speed_gbps="fast")\n')
    assert cli.main([str(file)]) == 3
    captured = capsys.readouterr()
    assert "bad.py:2" in captured.err
    assert captured.err.count("\n") == 1


def test_a_missing_key_is_not_the_nodes_fault(
    tmp_path: Path, asked: list[RunOptions], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the inventory's key file no run begins: every node would look unreachable."""
    monkeypatch.undo()
    monkeypatch.setattr("validation.run.validate", asked.append)
    text = Path(LAB).read_text(encoding="utf-8")
    file = tmp_path / "lab.py"
    file.write_text(text.replace('_STATE = "/var/lib/klaster-lab"', f'_STATE = "{tmp_path}"'), encoding="utf-8")
    assert cli.main([str(file)]) == 3
    assert f"{tmp_path}/id_ed25519 is not there" in capsys.readouterr().err
    assert not asked


def test_a_broken_validator_is_exit_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An exception of ours is never taken for a failed cluster."""

    def validate(options: RunOptions) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("validation.run.validate", validate)
    assert cli.main([LAB]) == 2
    assert "fault of the validator" in capsys.readouterr().err


def test_ctrl_c_before_the_run_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C while the inventory is read, say, ends with 130 and no traceback."""

    def load_cluster(file: str) -> Cluster:
        raise KeyboardInterrupt

    monkeypatch.setattr("inventory.loading.load_cluster", load_cluster)
    assert cli.main([LAB]) == 130
    assert capsys.readouterr().err == "validate-cluster: interrupted; nothing was touched\n"


def test_list_contacts_nobody(asked: list[RunOptions], capsys: pytest.CaptureFixture[str]) -> None:
    """--list prints every check, without an inventory."""
    assert cli.main(["--list"]) == 0
    assert "clock-offset" in capsys.readouterr().out
    assert cli.main(["--list", "--json"]) == 0
    assert {check["stage"] for check in json.loads(capsys.readouterr().out)} == {"node", "pairs", "cluster", "training"}
    assert not asked


def test_help_needs_no_heavy_import() -> None:
    """--help and a usage error start neither paramiko nor pytest, let alone torch."""
    code = (
        "import sys; from validation import cli; status = cli.main(['--level', 'x']); "
        "print(status, sorted({'paramiko', 'pytest', 'torch', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3 []"
