"""The programs in bin/, with stand-ins for what they start; and the lock that they install from."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.lab.handle import ROOT


def locked_versions() -> dict[str, str]:
    """Names and versions in requirements.lock."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pairs = (line.split(";")[0].rstrip(" \\").split("==") for line in lines if "==" in line and line[0] not in " #")
    return {canonicalize_name(name): version.strip() for name, version in pairs}


def test_the_lock_has_what_pyproject_asks_for() -> None:
    """Every dependency of pyproject.toml, and what builds klaster itself, is in the lock in a version that fits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [text for group in project["project"]["optional-dependencies"].values() for text in group]
    locked = locked_versions()
    for text in [*project["project"]["dependencies"], *extras, *project["build-system"]["requires"]]:
        wanted = Requirement(text)
        version = locked.get(canonicalize_name(wanted.name), "none")
        assert wanted.specifier.contains(version), f"{text}: the lock has {version}; its head says how to refresh it"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the real entry points, whose every step is a stand-in that says it ran."""
    for name in ("rehearse", "_setup"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        shutil.copy(ROOT / "bin" / name, tmp_path / "bin" / name)
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    key = hashlib.sha256((tmp_path / "requirements.lock").read_bytes() + (tmp_path / "pyproject.toml").read_bytes())
    script(tmp_path / ".venv/bin/python", f'exec {sys.executable} "$@"')
    (tmp_path / ".venv/klaster-key").write_text(key.hexdigest() + "\n")
    script(tmp_path / "bin/lab", 'echo "ran lab $*"')
    script(tmp_path / ".venv/bin/pyinfra", 'echo "ran pyinfra $*"')
    script(tmp_path / ".venv/bin/validate-cluster", 'echo "ran validate-cluster $*"')
    report = tmp_path / "reports/lab/2026/report.html"
    report.parent.mkdir(parents=True)
    report.touch()
    (tmp_path / "reports/lab/latest").symlink_to("2026")
    return tmp_path


def rehearse(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Run bin/rehearse of this checkout on a machine that has every Debian package."""
    script(
        checkout / "tools/dpkg-query",
        'shift 2 2>/dev/null; for name in "$@"; do case $name in -*) ;; *) echo "installed $name";; esac; done',
    )
    environment = {**os.environ, "PATH": f"{checkout / 'tools'}:{os.environ['PATH']}"}
    return subprocess.run(
        [str(checkout / "bin/rehearse")], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_rehearsal_runs_its_steps_in_order(checkout: Path) -> None:
    """bin/rehearse brings up the lab, deploys, certifies, and ends with the path of the report."""
    done = rehearse(checkout)
    assert done.returncode == 0, done.stderr
    ran = [line for line in done.stdout.splitlines() if line.startswith("ran ")]
    assert ran == [
        "ran lab up inventory/lab.py",
        "ran pyinfra -y inventory/lab.py deploys/site.py",
        "ran validate-cluster inventory/lab.py",
    ]
    assert done.stdout.splitlines()[-1] == f"{(checkout / 'reports/lab/2026').resolve()}/report.html"
    assert done.stderr == ""


def test_a_rehearsal_stops_at_a_failed_step(checkout: Path) -> None:
    """A step that fails is named, with its status, which is also that of bin/rehearse; later steps don't run."""
    script(checkout / ".venv/bin/pyinfra", "echo 'no such host' >&2; exit 3")
    done = rehearse(checkout)
    assert done.returncode == 3
    assert 'the step "deploy" failed with status 3' in done.stdout
    assert "no such host" in done.stderr
    assert "ran validate-cluster" not in done.stdout


def test_a_verdict_against_the_cluster_still_shows_the_report(checkout: Path) -> None:
    """When the cluster isn't certified, the last line is the report all the same, and the status is the verdict's."""
    script(checkout / ".venv/bin/validate-cluster", "exit 1")
    done = rehearse(checkout)
    assert done.returncode == 1
    assert 'the step "certify" failed' in done.stdout
    assert done.stdout.splitlines()[-1].endswith("/report.html")


def test_missing_packages_are_told_before_they_are_installed(checkout: Path) -> None:
    """What apt is to install is printed first; a failure of apt shows its last words and ends the program."""
    script(checkout / "tools/dpkg-query", "exit 1")
    script(checkout / "tools/apt-get", 'echo "apt was asked: $*"; exit 7')
    script(checkout / "tools/id", "echo 0")
    environment = {**os.environ, "PATH": f"{checkout / 'tools'}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(checkout / "bin/rehearse")], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "installing with apt: systemd-container mmdebstrap" in done.stdout
    assert "apt was asked: -o DPkg::Lock::Timeout=120 update" in done.stderr
    assert "bin/rehearse: package lists failed with status 7" in done.stderr
