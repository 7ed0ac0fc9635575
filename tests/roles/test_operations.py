"""Shared operations: state in, commands out."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from inventory.errors import InventoryError
from roles.facts.node_state import FileState, State, UnitState, parse_state
from roles.operations.accounts import Account, account_commands
from roles.operations.certificates import still_good
from roles.operations.packages import REPAIR, install_commands
from roles.operations.secret_store import SecretStore
from roles.operations.settle import Unit, settle_commands
from roles.operations.tree import Directory, File, Tree, differences, tar_of, write_script


def test_state_is_parsed() -> None:
    """Files with hashes, packages, units and pending actions come out of their tagged lines."""
    state = parse_state(
        [
            "A|restart-x.service",
            "F|/etc/a b|regular file|644|root|root",
            "S|00ff  /etc/a b",
            "D|ii |chrony|4.6",
            "D|iF |nvidia|1",
            "D|rc |gone|1",
            "U|x.service|LoadState=loaded|ActiveState=active|UnitFileState=enabled|",
        ]
    )
    assert state.pending == ["restart-x.service"]
    assert state.files == {"/etc/a b": FileState("regular file", "644", "root", "root", "00ff")}
    assert state.packages == {"chrony": "4.6"}
    assert state.broken == ["nvidia"]
    assert state.units == {"x.service": UnitState("loaded", "active", "enabled")}


def _as_found(file: File) -> FileState:
    return FileState("regular file", file.mode, file.owner, file.group, file.sha256)


def test_only_what_differs_is_written() -> None:
    """Content, mode, owner or kind that differs is a difference; the same file is none."""
    file = File("/etc/x", "text", "600")
    same = State(files={"/etc/x": _as_found(file)})
    assert not differences(Tree((file,)), same)
    for other in (File("/etc/x", "Text", "600"), File("/etc/x", "text"), File("/etc/x", "text", "600", "slurm")):
        assert differences(Tree((other,)), same).files == (other,)
    link = State(files={"/etc/x": FileState("symbolic link", "777", "root", "root", file.sha256)})
    assert differences(Tree((file,)), link).files == (file,)
    assert differences(Tree(absent=("/etc/x",)), same).absent == ("/etc/x",)


def test_write_script_runs(tmp_path: Path) -> None:
    """The script and its tar make the files; content with quotes arrives byte for byte and is nowhere in the script."""
    me = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    group = subprocess.run(["id", "-gn"], capture_output=True, text=True, check=True).stdout.strip()
    text = 'it\'s $HOME "x"\n' * 100
    file = File(str(tmp_path / "sub" / "a file"), text, "640", me, group, triggers=("restart-x.service",))
    change = differences(Tree((file,), (Directory(str(tmp_path / "d"), "750", me, group),)), State())
    script = write_script(change).replace("/var/lib/klaster/", f"{tmp_path}/")
    assert "HOME" not in script
    subprocess.run(["sh", "-c", script], input=tar_of(change.files), text=True, check=True)
    assert Path(file.path).read_text(encoding="utf-8") == text
    assert Path(file.path).stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "pending" / "restart-x.service").exists()
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["a file"]


def test_tar_names_owner_by_name() -> None:
    """Owners are sent as names: numbers may differ between nodes."""
    data = base64.b64decode(tar_of((File("/etc/m", "k", "400", "munge", "munge"),)))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        member = archive.getmembers()[0]
    assert (member.uname, member.gname, member.mode) == ("munge", "munge", 0o400)


def test_packages_repair_before_they_install() -> None:
    """A half-configured package is repaired first; nothing is done where all is there."""
    assert install_commands(("chrony",), State(packages={"chrony": "1"})) == []
    commands = install_commands(("chrony", "sudo"), State(packages={"sudo": "1"}, broken=["x"]))
    assert commands[0] == REPAIR
    assert "install chrony" in commands[1]
    assert "sudo" not in commands[1]


def test_packages_do_first_what_must_be_before_an_installation() -> None:
    """What keeps a package's daemon down is done before it is installed, and not where it is installed."""
    commands = install_commands(("slurmd",), State(), ("hold",))
    assert commands[0] == "hold"
    assert "install slurmd" in commands[1]
    assert install_commands(("slurmd",), State(packages={"slurmd": "1"}), ("hold",)) == []


def test_settle_does_what_is_pending_and_forgets_it_afterwards() -> None:
    """A pending restart survives until the restart has succeeded; another role's trigger stays."""
    running = {"a.service": UnitState("loaded", "active", "enabled")}
    found = State(units=running, pending=["restart-a.service", "restart-b.service"])
    commands = settle_commands((Unit("a.service"),), {}, found)
    assert commands[0].endswith("&& rm -f /var/lib/klaster/pending/restart-a.service")
    assert not any("b.service" in command for command in commands)
    assert settle_commands((Unit("a.service"),), {}, State(units=running)) == []


def test_settle_starts_and_enables_what_is_not() -> None:
    """A stopped and disabled unit is started, verified and enabled."""
    found = State(units={"a.service": UnitState("loaded", "failed", "disabled")})
    text = "\n".join(settle_commands((Unit("a.service"),), {}, found))
    assert "systemctl start a.service" in text
    assert "is-active -q a.service" in text
    assert "systemctl enable a.service" in text


def test_account_with_a_foreign_uid_is_refused() -> None:
    """A taken uid or a known name with another uid is one sentence and a failure, never a usermod."""
    wanted = (Account("munge", 902, "/nonexistent"),)
    assert account_commands(wanted, {"munge": (902, "/nonexistent", "")}) == []
    taken = account_commands(wanted, {"alex": (902, "/home/alex", "")})
    assert "belongs to alex" in taken[0]
    assert taken[0].endswith("exit 1")
    other = account_commands(wanted, {"munge": (110, "/", "")})
    assert "has uid 110" in other[0]
    assert "useradd" in account_commands(wanted, {})[0]


def test_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    """The file has mode 0600, a second store reads the same values, nothing shows in a repr."""
    path = tmp_path / "x.secrets.json"
    key, ca = SecretStore(path).munge_key(), SecretStore(path).ca()
    assert path.stat().st_mode & 0o777 == 0o600
    assert (SecretStore(path).munge_key(), SecretStore(path).ca()) == (key, ca)
    assert key not in repr(SecretStore(path))
    assert "PRIVATE KEY" in ca[0]
    assert "CERTIFICATE" in ca[1]


def test_a_readable_or_damaged_secrets_file_is_refused(tmp_path: Path) -> None:
    """Secrets that others can read, or half a file, stop the run with one sentence; nothing is overwritten."""
    path = tmp_path / "x.secrets.json"
    path.write_text(json.dumps({"munge_key": "k"}), encoding="utf-8")
    path.chmod(0o644)
    with pytest.raises(InventoryError, match="chmod 600"):
        SecretStore(path).munge_key()
    path.chmod(0o600)
    path.write_text('{"munge', encoding="utf-8")
    with pytest.raises(InventoryError, match="damaged"):
        SecretStore(path).munge_key()
    assert path.read_text(encoding="utf-8") == '{"munge'


def test_a_certificate_names_its_host_and_stays(tmp_path: Path) -> None:
    """A host's certificate is the CA's, stays the same, and is replaced when the host gets a further address."""
    store = SecretStore(tmp_path / "secrets.json")
    key, first = store.server_certificate("n1", ["10.0.0.2"])
    assert "PRIVATE KEY" in key
    assert still_good(first, store.ca()[1], "n1", ["10.0.0.2"])
    assert SecretStore(tmp_path / "secrets.json").server_certificate("n1", ["10.0.0.2"]) == (key, first)
    assert store.server_certificate("n1", ["10.0.0.9"]) != (key, first)
    both = store.server_certificate("n1", ["10.0.0.2"])
    assert both == store.server_certificate("n1", ["10.0.0.9"]), "two services of a host must not take turns"
    other = SecretStore(tmp_path / "other.json")
    assert not still_good(first, other.ca()[1], "n1", ["10.0.0.2"])


def test_a_given_secret_must_be_there(tmp_path: Path) -> None:
    """A secret that only a person knows is never made up: without it one line names the file."""
    store = SecretStore(tmp_path / "secrets.json")
    with pytest.raises(InventoryError, match="smtp"):
        store.given("smtp")
    assert store.password("a") == store.password("a") != store.password("b")
