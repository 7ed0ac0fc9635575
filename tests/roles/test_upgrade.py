"""bin/upgrade: the order of its turns, what follows a failure, and how it goes on after it was killed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploys.commands import drift, upgrade
from deploys.commands.upgrade import Plan, Progress, roll, turns
from inventory.errors import InventoryError
from roles.operations.upgrade import parse_upgradable
from tests.roles.sample import cluster

PLAN = Plan("inventory/x.py", ("head", "n1", "n2"), "head")


class Script:
    """Plays the programs that a turn starts; `fails` are words whose command ends with 1."""

    def __init__(self, fails: Sequence[str] = ()) -> None:
        self.fails, self.said = fails, []  # type: tuple[Sequence[str], list[str]]

    def __call__(self, argv: Sequence[str]) -> int:
        self.said.append(" ".join(argv))
        return int(any(all(word in argv for word in one.split()) for one in self.fails))


def test_the_controller_is_first_and_alone() -> None:
    """Then the others, so many at once; what is done has no turn any more."""
    assert turns(PLAN, []) == [("head",), ("n1",), ("n2",)]
    assert turns(Plan("i", ("head", "n1", "n2", "n3"), "head", batch=2), ["n1"]) == [("head",), ("n2", "n3")]


def test_a_turn_drains_changes_reboots_and_certifies(tmp_path: Path) -> None:
    """In that order; a controller that does not compute is neither drained nor certified."""
    script = Script()
    assert roll(PLAN, cluster(), Progress(tmp_path / "u.json"), script) == 0
    steps = [
        next(w for w in ("drain.py", "upgrade.py", "reboot.py", "validate-cluster") if w in s) for s in script.said
    ]
    assert steps == ["upgrade.py", "reboot.py", *["drain.py", "upgrade.py", "reboot.py", "validate-cluster"] * 2]
    assert "--limit n1" in script.said[3]
    assert not (tmp_path / "u.json").exists(), "a finished run leaves nothing to go on with"


def test_a_node_that_fails_stops_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """n1 fails its certificate: n2 is not touched, the status is 1, and the sentence says what happened."""
    script = Script(["--nodes n1"])
    assert roll(PLAN, cluster(), Progress(tmp_path / "u.json"), script) == 1
    words = {word for said in script.said for word in re.split("[ =,]", said)}  # a checkout's path may hold n2, too
    assert "n2" not in words
    told = capsys.readouterr().out
    assert "failed        n1 (certify); out of service" in told
    assert "not touched   n2" in told


def test_asked_to_keep_going_the_rest_is_upgraded(tmp_path: Path) -> None:
    """The status is still 1; a controller that fails stops everything whatever was asked."""
    going = Plan("i", PLAN.nodes, "head", keep_going=True)
    script = Script(["--nodes n1"])
    assert roll(going, cluster(), Progress(tmp_path / "u.json"), script) == 1
    assert any("--nodes n2" in said for said in script.said)
    head = Script(["deploys/upgrade.py head"])
    assert roll(going, cluster(), Progress(tmp_path / "v.json"), head) == 1
    assert len(head.said) == 1


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    """What is done is skipped, what failed is tried again."""
    path = tmp_path / "u.json"
    roll(PLAN, cluster(), Progress(path), Script(["--nodes n1"]))
    script = Script()
    assert roll(PLAN, cluster(), Progress.load(path), script) == 0
    assert not any("--limit head" in said and "upgrade.py" in said for said in script.said)
    assert any("--nodes n1" in said for said in script.said)


@pytest.mark.parametrize("text", ["", "[]", '{"done": 1}'])
def test_a_damaged_record_says_what_to_do(text: str, tmp_path: Path) -> None:
    """What an earlier run has done is not guessed at."""
    path = tmp_path / "u.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InventoryError, match="is damaged: to begin anew, say --again"):
        Progress.load(path)


@pytest.mark.parametrize(
    "words",
    [
        ["--nodes", "n9"], ["--batch", "0"], ["--change", "deploys/nosuch.py"], ["--change", ","],
        ["--wait", "nan"], ["--wait", "1e9"],
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_is_touched(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong words are status 3 and one line; were they taken, no lab that is up on this machine is upgraded."""
    monkeypatch.setattr("deploys.commands.upgrade.roll", lambda *_: pytest.fail("a turn began"))
    assert upgrade.main(["inventory/lab.py", *words]) == 3
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_drift_repeats_what_pyinfra_said_of_the_trouble() -> None:
    """Not its lines about loading and connecting, which are no trouble."""
    words = "--> Loading config...\n\n    [n1] no answer\n--> Disconnecting...\n--> pyinfra error: No hosts!\n"
    assert drift.said(words) == ["[n1] no answer", "--> pyinfra error: No hosts!"]


def test_what_apt_would_change_is_read() -> None:
    """Old and new version; a new package has no old one."""
    lines = [
        "Inst tzdata [2025a-1] (2025b-1 Debian:13/stable [all])",
        "Inst linux-image-6 (6.12-2 Debian [amd64])",
        "x",
    ]
    assert parse_upgradable(lines) == ("tzdata: 2025a-1 → 2025b-1", "linux-image-6: new → 6.12-2")
