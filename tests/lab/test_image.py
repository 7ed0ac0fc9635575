"""The nodes' image: one a Debian release, and a lab keeps to the one that it began with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab import image
from lab.errors import LabError
from lab.image import SUITES, bare
from lab.lifecycle import remember_suite


def test_each_release_has_its_own_image() -> None:
    """What is built for one release is never laid under nodes of another."""
    assert len({bare(suite).path for suite in SUITES}) == len(SUITES)


def test_a_lab_keeps_its_release(tmp_path: Path) -> None:
    """The first `up` decides; a later one without a word takes the same, with another word it is refused."""
    assert remember_suite(tmp_path, "bookworm") == "bookworm"
    assert remember_suite(tmp_path, None) == "bookworm"
    with pytest.raises(LabError, match="this lab are Debian bookworm: run `bin/lab down` before"):
        remember_suite(tmp_path, "trixie")


def test_what_killed_builds_left_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders and half-made disks of builds that are gone; those of a build that goes on stay."""
    monkeypatch.setattr(image, "IMAGES", tmp_path)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (tmp_path / f"building-abc-{gone.pid}").mkdir()
    (tmp_path / f"building-abc.ext4-{gone.pid}").touch()
    own = tmp_path / f"building-abc.ext4-{os.getpid()}"
    own.touch()
    image._clear_killed_builds()
    assert list(tmp_path.iterdir()) == [own]


def test_the_usual_release_is_the_first(tmp_path: Path) -> None:
    """A lab that was asked for nothing, one from before there was a choice too, is Debian 13."""
    assert remember_suite(tmp_path, None) == "trixie"
