"""A wrong inventory gives one clear line and a status above 0, under every program, and no host is contacted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from inventory.errors import InventoryError, nearest
from inventory.guard import check_run
from inventory.loading import load_cluster, secrets_path
from tests.inventory.broken import MISTAKES, RIGHT, Mistake

ROOT = Path(__file__).resolve().parents[2]
EACH = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what.replace(" ", "-"))
# Each program takes about a second: one mistake of each way to fail is enough there.
WAYS = [m for m in MISTAKES if m.what in ("unknown role", "open parenthesis", "misspelt part", "no last line")]
A_FEW = pytest.mark.parametrize("mistake", WAYS, ids=lambda mistake: mistake.what.replace(" ", "-"))


def _write(folder: Path, text: str) -> Path:
    file = folder / "den.py"
    file.write_text(text, encoding="utf-8")
    return file


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


def _programs() -> Path:
    return Path(sys.executable).parent


def _expect_one_line(stderr: str, mistake: Mistake) -> None:
    lines = [line for line in stderr.splitlines() if not line.startswith("--> Loading")]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("inventory error: ")
    for word in mistake.words:
        assert word in lines[0]


def test_the_right_inventory_loads(tmp_path: Path) -> None:
    """The inventory that every mistake starts from is right."""
    assert load_cluster(str(_write(tmp_path, RIGHT))).name == "den"


@EACH
def test_a_mistake_is_one_line_with_place_value_and_remedy(mistake: Mistake, tmp_path: Path) -> None:
    """Each mistake ends in InventoryError, one line of file, line, value and what is allowed."""
    file = _write(tmp_path, mistake.text)
    with pytest.raises(InventoryError) as caught:
        load_cluster(str(file))
    message = caught.value.message
    assert "\n" not in message
    place = f"{file}:{mistake.line}: " if mistake.line else f"{file}: "
    assert message.startswith(f"inventory error: {place}"), message
    for word in mistake.words:
        assert word in message
    assert "more)" not in message


@A_FEW
def test_pyinfra_gives_the_one_line_and_contacts_nobody(mistake: Mistake, tmp_path: Path) -> None:
    """pyinfra prints the same one line, no traceback, ends with status 1 and never gets to connecting."""
    deploy = tmp_path / "deploy.py"
    deploy.write_text("raise AssertionError('the deploy was reached')\n", encoding="utf-8")
    ran = _run(str(_programs() / "pyinfra"), str(_write(tmp_path, mistake.text)), str(deploy), "--dry")
    assert ran.returncode == 1
    _expect_one_line(ran.stderr, mistake)
    assert "Connect" not in ran.stderr + ran.stdout


@A_FEW
def test_validate_cluster_gives_the_one_line(mistake: Mistake, tmp_path: Path) -> None:
    """validate-cluster prints the same one line and ends with status 3."""
    if not (ROOT / "validation" / "cli.py").exists():
        pytest.skip("validation/cli.py does not exist yet")
    ran = _run(str(_programs() / "validate-cluster"), str(_write(tmp_path, mistake.text)))
    assert ran.returncode == 3
    _expect_one_line(ran.stderr, mistake)


def test_python_gives_the_one_line(tmp_path: Path) -> None:
    """An inventory that is executed by hand prints the one line and ends with status 1."""
    mistake = next(m for m in MISTAKES if m.what == "unknown role")
    ran = _run(sys.executable, str(_write(tmp_path, mistake.text)))
    assert ran.returncode == 1
    _expect_one_line(ran.stderr, mistake)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--limit", "attik"), 'no node or group "attik" (did you mean "attic"?'),
        (("--exclude", "all"), "leave no node"),
        (("--no-wait",), "--no-wait hides failures"),
        (("--data", "accept=dsk"), 'no node "dsk" (did you mean "desk"?'),
    ],
    ids=["limit", "exclude", "no-wait", "accept"],
)
def test_pyinfra_options_that_would_fail_in_silence_are_refused(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    """A limit that names nobody, and what else pyinfra ends with status 0, is one line and status 1."""
    inventory = str(_write(tmp_path, RIGHT))
    ran = _run(str(_programs() / "pyinfra"), inventory, "debug-inventory", *arguments)
    assert ran.returncode == 1
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_missing_key_is_one_line(tmp_path: Path) -> None:
    """A private key that is not there is said before a host is contacted, with the command that makes it."""
    key = tmp_path / "key"
    text = RIGHT.replace("~/.ssh/id_ed25519", str(key))
    ran = _run(str(_programs() / "pyinfra"), str(_write(tmp_path, text)), "exec", "--", "true")
    assert ran.returncode == 1
    assert f"ssh.key {key} is not there; make it: ssh-keygen -f {key}" in ran.stderr
    assert "Connect" not in ran.stderr + ran.stdout


@pytest.mark.parametrize("text", ["{", "[]", '{"munge": 1}', "[" * 100_000], ids=["cut", "list", "number", "deep"])
def test_damaged_secrets_are_told_before_a_host_is_contacted(text: str, tmp_path: Path) -> None:
    """Not by the role that needs one, half-way through; and no secret is in the message."""
    key = tmp_path / "key"
    key.touch()
    inventory = _write(tmp_path, RIGHT.replace("~/.ssh/id_ed25519", str(key)))
    secrets = Path(secrets_path(str(inventory)))
    secrets.write_text(text, encoding="utf-8")
    secrets.chmod(0o600)
    ran = _run(str(_programs() / "pyinfra"), str(inventory), "exec", "--", "true")
    assert ran.returncode == 1
    assert f"{secrets} is damaged" in ran.stderr
    assert "Connect" not in ran.stderr + ran.stdout


@pytest.mark.parametrize(
    ("data", "said"),
    [((), "which nodes take no more jobs"), (("drain=desk,celar",), 'did you mean "cellar"?')],
    ids=["none", "misspelt"],
)
def test_drain_needs_nodes_that_there_are(data: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """deploys/drain.py without names, or with a wrong one, asks nobody."""
    file = str(_write(tmp_path, RIGHT))
    with pytest.raises(InventoryError, match=re.escape(said)):
        check_run({"inventory": file, "data": data, "operations": ["deploys/drain.py"]})


def test_hosts_on_the_command_line_pass_the_guard() -> None:
    """pyinfra with @local or a host list is not one of our inventories and works as ever."""
    ran = _run(str(_programs() / "pyinfra"), "@local", "debug-inventory")
    assert ran.returncode == 0, ran.stderr


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    """A misspelt inventory file is one line with the file that is there."""
    _write(tmp_path, RIGHT)
    with pytest.raises(InventoryError, match=r"no inventory file .*deen\.py .*did you mean .*den\.py"):
        load_cluster(str(tmp_path / "deen.py"))


def test_a_file_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    """A byte of another encoding is told with its line, even in a comment, where Python alone would not mind."""
    file = tmp_path / "den.py"
    file.write_bytes(b"\n# caf\xe9\n" + RIGHT.encode())
    with pytest.raises(InventoryError, match=r"den\.py:2: not UTF-8 \(byte 0xe9\); save the file as UTF-8"):
        load_cluster(str(file))


def test_whatever_the_file_raises_is_one_line(tmp_path: Path) -> None:
    """An exception that is no Exception, too, gives the line of the file and no traceback."""
    file = _write(tmp_path, "class Odd(BaseException): ...\nraise Odd('oh')\n")
    with pytest.raises(InventoryError, match=r"den\.py:2: Odd: oh"):
        load_cluster(str(file))


@pytest.mark.parametrize(("name", "said"), [("", "is a folder"), ("/den", "no inventory file")], ids=["folder", "path"])
def test_pyinfra_takes_no_path_for_a_host(name: str, said: str, tmp_path: Path) -> None:
    """A folder, or a path without .py, is refused: pyinfra would print a traceback or look for a host of that name."""
    ran = _run(str(_programs() / "pyinfra"), f"{tmp_path}{name}", "exec", "--", "true")
    assert ran.returncode == 1
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Connect" not in ran.stderr + ran.stdout


def test_messages_show_paths_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the current folder the place is the path that a person would type."""
    (tmp_path / "inventory").mkdir()
    monkeypatch.chdir(tmp_path)
    mistake = next(m for m in MISTAKES if m.what == "speed 0")
    _write(tmp_path / "inventory", mistake.text)
    with pytest.raises(InventoryError, match=f"^inventory error: inventory{os.sep}den.py:5: "):
        load_cluster(str(tmp_path / "inventory" / "den.py"))


def test_nearest_says_so_when_nothing_is_valid() -> None:
    """With no valid name there is no guess."""
    assert nearest("x", []) == "(valid: none)"
