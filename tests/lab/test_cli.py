"""bin/lab's command line: every mistake is one line."""

from __future__ import annotations

import pytest

from lab import cli
from lab.errors import LabError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "VERB"),
        (["fly"], "invalid choice: 'fly'"),
        (["shape", "n1"], "mbit"),
        (["shape", "n1", "fast"], '"fast" is not a speed in Mb/s'),
        (["shape", "n1", "0"], '"0" is not a speed in Mb/s'),
        (["shape", "n1", "nan"], '"nan" is not a speed in Mb/s'),
        (["cut", "n1"], "b"),
        (["up", "--force"], "--force"),
        (["up", "--suite", "sid"], "invalid choice: 'sid'"),
    ],
)
def test_a_wrong_command_line_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake ends with status 2 and one line that names it and where help is."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("bin/lab: ")
    assert said in error
    assert error.count("\n") == 1


def test_a_failure_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What goes wrong in a verb ends with status 1 and one line, however many lines the cause has."""

    def broken(_: object) -> int:
        raise LabError("first\n  second")

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setitem(cli.VERBS, "heal", broken)
    assert cli.main(["heal"]) == 1
    assert capsys.readouterr().err == "bin/lab: first second\n"


def test_a_command_for_a_node_keeps_its_options() -> None:
    """Words after the node's name belong to the command, options too."""
    arguments = cli.build_parser().parse_args(["ssh", "n1", "ls", "-l", "--all"])
    assert arguments.command == ["ls", "-l", "--all"]
