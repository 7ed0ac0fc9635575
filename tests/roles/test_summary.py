"""The table at the end of a run, what it says of put-off changes, and what bin/drift makes of differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploys.commands import drift
from roles.facts.jobs import Jobs, parse_jobs
from roles.facts.node_state import FileState, FileTexts, State, UnitState
from roles.operations.notes import Deferral, lines_of_difference, shown, tree_differences, unit_differences
from roles.operations.summary import Outcome, Run, roles_by_line, short, table
from roles.operations.tree import Directory, File, Tree, differences

SITE = Path(__file__).resolve().parents[2] / "deploys" / "site.py"


def test_names_are_folded() -> None:
    """Neighbours are a range, gaps are kept, leading zeros stay, other names stand alone."""
    assert short(["n1", "n3", "n2", "head"]) == "head, n[1-3]"
    assert short(["n1", "n7"]) == "n[1,7]"
    assert short(["node08", "node09", "node10"]) == "node[08-10]"
    assert short(["n5"]) == "n5"
    assert short([]) == ""


def test_roles_are_found_by_their_line() -> None:
    """Every call of a role in site.py has its line, so that an operation is told under the role it belongs to."""
    found = roles_by_line(SITE.read_text(encoding="utf-8"))
    assert {"hardware", "base", "slurm", "grafana"} <= set(found.values())
    assert "deploys" not in found.values()


def test_two_hundred_nodes_stay_readable() -> None:
    """Roles in which nothing happened are one line; the others say which nodes, folded, in a few lines."""
    names = ["head", *(f"n{i}" for i in range(1, 200))]
    roles: dict[str, dict[str, Outcome]] = {f"role{i}": dict.fromkeys(names, "unchanged") for i in range(20)}
    roles["slurm"] = {**dict.fromkeys(names, "unchanged"), "n7": "changed", "n9": "failed", "n10": "skipped"}
    text = table(Run(roles, ("n200",)), [])
    assert "slurm      unchanged on head, n[1-6,8,11-199]; changed on n7; failed on n9; skipped on n10" in text
    assert "not reached: n200" in text
    assert "Summary: 201 nodes, 21 roles" in text
    assert len(text.splitlines()) <= 6


def test_what_is_put_off_says_why_and_what_does_it() -> None:
    """The same change on many nodes is one entry, with its reason and its command."""
    put_off = [Deferral(f"n{i}", "op", "/etc/munge/munge.key", "job 7 runs: wait", "pyinfra …") for i in (1, 2, 3)]
    text = table(Run({"munge": dict.fromkeys(("n1", "n2", "n3"), "deferred")}), put_off)
    assert "deferred on n[1-3]" in text
    assert "n[1-3]: /etc/munge/munge.key (job 7 runs: wait)" in text
    assert "then: pyinfra …" in text


def test_differences_are_exact() -> None:
    """A file says content or mode from and to, a missing one that it is not there, a unit its state."""
    file, folder = File("/etc/x", "new", "600"), Directory("/etc/d")
    found = State(files={"/etc/x": FileState("regular file", "644", "root", "root", file.sha256)})
    tree = Tree((file, File("/etc/y", "y")), (folder,))
    told = {what: (was, wanted) for what, was, wanted in tree_differences(differences(tree, found), found)}
    assert told["/etc/x"] == ("644 root:root", "600 root:root")
    assert told["/etc/y"] == ("not there", "file 644 root:root")
    assert told["/etc/d"] == ("not there", "directory 755 root:root")
    units = State(units={"a.service": UnitState("loaded", "failed", "disabled")})
    assert unit_differences(["a.service"], units) == [
        ("a.service", "failed", "active"),
        ("a.service", "disabled", "enabled"),
    ]


def test_a_secrets_content_is_never_shown() -> None:
    """Lines are shown of files that everybody may read, and only of those that differ."""
    state = FileState("regular file", "644", "root", "root", "00")
    found = State(files={"/etc/x": state, "/etc/key": state})
    assert shown((File("/etc/x", "a"), File("/etc/key", "b", "600"), File("/etc/new", "c")), found) == ("/etc/x",)
    assert lines_of_difference("a\nb\n", "a\nc\n") == ["-b", "+c"]
    assert lines_of_difference("a\n" * 50, "")[-1] == "… 30 more lines"


def test_texts_of_files_are_read() -> None:
    """Each file's lines come back under its path, also lines that look like marks."""
    assert FileTexts().process(["P|/etc/a", "L|P|x", "L|", "P|/etc/b"]) == {"/etc/a": "P|x\n\n", "/etc/b": "\n"}


def test_running_jobs_are_read() -> None:
    """Slurm's jobs, and step daemons where Slurm is silent; none is nothing to wait for."""
    assert not parse_jobs([])
    assert parse_jobs(["J 12", "J 13_4", "S"]) == Jobs(("12", "13_4"), 1)
    assert parse_jobs(["J 12"]).words == "job 12 runs"
    assert parse_jobs(["S", "S"]).words == "2 job steps run here"


def _difference(node: str, **changes: object) -> dict[str, object]:
    one: dict[str, object] = {"node": node, "role": "base", "what": "/etc/x", "was": "a", "wanted": "b", "lines": []}
    return {**one, **changes}


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (drift.Report(["n1"]), 0),
        (drift.Report(["n1"], [], [_difference("n1")]), 2),
        (drift.Report(["n1"], ["n2"], [_difference("n1")]), 2),
        (drift.Report(["n1"], ["n2"]), 1),
        (drift.Report(), 1),
    ],
)
def test_the_exit_status_of_drift(report: drift.Report, status: int) -> None:
    """0 is none on every node, 2 is drift, 1 is that a node could not be asked."""
    assert report.status == status


def test_drift_is_told_once_for_many_nodes() -> None:
    """Alike differences are one entry with the folded nodes; lines of the file stand below it."""
    report = drift.Report(["n1", "n2"], ["n3"], [_difference(n, lines=["-1", "+2"]) for n in ("n1", "n2")])
    text = drift.page(report, "inventory/home.py")
    assert "n[1-2]  base  /etc/x: a → b\n    -1\n    +2" in text
    assert "could not be asked: n3" in text


def test_a_wrong_argument_is_not_drift(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's own status 2 would mean drift: a mistake in the words is 1."""
    with pytest.raises(SystemExit) as caught:
        drift.main([])
    assert caught.value.code == 1
    assert drift.main(["no/such_inventory.py"]) == 1
    assert "no inventory file" in capsys.readouterr().err
