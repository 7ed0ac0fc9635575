"""What the repository must and must not hold: no registry's host, no path of this machine, no secret, no stray file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"inventory", "deploys", "roles", "files", "validation", "lab", "tests", "docs", "bin", ".ci"}
FILES = {
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "pyproject.toml",
    "requirements.lock",
    "config.py",  # pyinfra reads it from the root
    ".gitignore",
    ".gitattributes",
}


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted({ROOT / name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file()})


def _texts() -> Iterator[tuple[str, str]]:
    for path in _tracked():
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8", errors="replace")


def _found(word: str) -> list[str]:
    """Files and lines that hold a word, whatever its case, and not as a part of a longer name."""
    pattern = re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", re.IGNORECASE)
    return [
        f"{name}:{number}"
        for name, text in _texts()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


# --- registries --------------------------------------------------------------------------------------------------


def _configuration() -> str:
    """What this machine's package tools are set up with, comments left out."""
    files = [Path("/etc/apt/sources.list"), Path("/etc/pip.conf"), Path("/etc/npmrc"), Path.home() / ".npmrc"]
    for folder in ("/etc/apt/sources.list.d", "/etc/apt/apt.conf.d"):
        files += sorted(Path(folder).glob("*")) if Path(folder).is_dir() else []
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()]
    texts += [f"{key} {value}" for key, value in os.environ.items() if key.startswith(("PIP_", "UV_", "NPM_"))]
    for command in ([sys.executable, "-m", "pip", "config", "list"], ["npm", "config", "get", "registry"]):
        if shutil.which(command[0]):
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            texts.append(ran.stdout)
    return "\n".join(line for text in texts for line in text.splitlines() if not line.lstrip().startswith(("#", "//")))


def _built_in() -> str:
    """The index that pip asks when nobody set another one, as pip itself knows it."""
    code = "from pip._internal.models import index as i; print(i.PyPI.url, 'https://' + i.PyPI.file_storage_domain)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout


def registry_hosts(configuration: str) -> set[str]:
    """The hosts of all addresses in a configuration, but for this machine itself and its private names."""
    hosts = {urlparse(url).hostname or "" for url in re.findall(r"https?://[^\s'\"\]]+", configuration)}
    return {host for host in hosts if "." in host and not host.startswith("127.")}


def test_hosts_are_read_from_addresses() -> None:
    """The reader of configurations finds hosts behind accounts and ports, and leaves this machine out."""
    text = (
        "deb http://mirror.example/debian trixie\nindex='https://me:x@index.example:8080/simple' http://127.0.0.1:3142"
    )
    assert registry_hosts(text) == {"mirror.example", "index.example"}


def test_no_registry_is_named() -> None:
    """Package registries come from the machine's own configuration at run time, never from this repository."""
    hosts = registry_hosts(_configuration() + "\n" + _built_in())
    assert hosts, "no registry is configured on this machine, not even pip's own: the test sees nothing"
    assert {host: places for host in sorted(hosts) if (places := _found(host))} == {}


def test_the_lock_has_no_index_address() -> None:
    """requirements.lock has exact versions and hashes, and leaves it to pip where they come from."""
    lock = ROOT / "requirements.lock"
    if not lock.exists():
        pytest.skip("requirements.lock does not exist yet")
    text = lock.read_text(encoding="utf-8")
    assert "--hash=sha256:" in text
    options = [line for line in text.splitlines() if re.match(r"\s*-(-index|-extra|-find|-trusted|i|f)", line)]
    assert options == []
    assert re.findall(r"https?://\S+|file:\S+", text) == []


# --- this machine and its people ---------------------------------------------------------------------------------


def test_no_path_of_this_checkout_is_written_down() -> None:
    """The repository works wherever it is cloned: no file names the folder it lies in, or one beside it."""
    entries = "|".join(re.escape(name) for name in sorted(FOLDERS | FILES))
    here = re.compile(rf"{re.escape(str(ROOT))}(/({entries})\b|(?![\w/-]))")
    beside = re.compile(r"(?<![\w/.])\.\./shared\b")
    assert [name for name, text in _texts() if here.search(text) or beside.search(text)] == []


def test_no_secret_is_in_git() -> None:
    """No file has the name or the content of a secret."""
    named = re.compile(r"(^|/)(id_(rsa|ed25519|ecdsa)|\.env|.*\.(key|pem|p12|pfx)|.*secrets\.json|.*\.hardware\.new)$")
    content = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{20}")
    assert [name for name, text in _texts() if named.search(name) or content.search(text)] == []


@pytest.mark.parametrize("name", ["inventory/home.secrets.json", "reports/home/latest", ".venv/bin/python"])
def test_what_a_run_writes_is_ignored_by_git(name: str) -> None:
    """Secrets, reports and the virtual environment can't be committed by accident."""
    ran = subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT, check=False)
    assert ran.returncode == 0, f"{name} is not in .gitignore"


def test_a_hardware_lock_can_be_committed() -> None:
    """The hardware lock of an inventory is for a person to commit: git does not ignore it."""
    ran = subprocess.run(["git", "check-ignore", "-q", "inventory/home.hardware.json"], cwd=ROOT, check=False)
    assert ran.returncode == 1


# --- shape -------------------------------------------------------------------------------------------------------


def test_the_top_level_holds_what_it_should() -> None:
    """The folders at the top are those of the design, and the files are the known few."""
    entries = {path.relative_to(ROOT).parts[0] for path in _tracked()}
    assert entries - FOLDERS - FILES == set()


def test_the_licence_is_complete() -> None:
    """LICENSE is the whole text of Apache-2.0, as pyproject.toml says."""
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert 'license = { text = "Apache-2.0" }' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def _scripts() -> list[Path]:
    candidates = [path for path in _tracked() if path.parent.name in ("bin", ".ci")]
    return [path for path in candidates if path.read_text(encoding="utf-8").startswith("#!")]


def test_there_are_scripts() -> None:
    """The entry points are found by their first line."""
    assert "lab" in [path.name for path in _scripts()]


@pytest.mark.parametrize("script", _scripts(), ids=lambda path: path.name)
def test_a_script_stops_at_its_first_error(script: Path) -> None:
    """Each entry point is valid bash, can be executed, and stops at errors, unset names and broken pipes."""
    text = script.read_text(encoding="utf-8")
    assert re.match(r"#!(/usr/bin/env bash|/bin/bash)\n", text), f"{script.name}: the first line must name bash"
    assert re.search(r"^set -euo pipefail$", text, re.MULTILINE), f"{script.name}: set -euo pipefail is missing"
    assert os.access(script, os.X_OK), f"{script.name} can't be executed; chmod +x"
    subprocess.run(["bash", "-n", str(script)], check=True)
