"""The kernel's limit for many nodes is raised while a lab is up, and put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import limits


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel setting of our own, at Linux' default."""
    path = tmp_path / "max_user_instances"
    path.write_text("128\n")
    monkeypatch.setattr(limits, "INOTIFY_INSTANCES", path)
    return path


def test_a_low_limit_is_raised_and_put_back(limit: Path, tmp_path: Path) -> None:
    """Sixteen nodes get room; coming up again keeps the first value; afterwards it's as it was."""
    keep = tmp_path / "keep"
    limits.make_room(4, keep)
    limits.make_room(16, keep)
    assert int(limit.read_text()) >= 16 * 10
    assert keep.read_text() == "128\n"
    limits.put_back(keep)
    assert limit.read_text() == "128\n"
    assert not keep.exists()


def test_a_high_limit_is_left_alone(limit: Path, tmp_path: Path) -> None:
    """A machine that has room already keeps its own value."""
    limit.write_text("8192\n")
    limits.make_room(16, tmp_path / "keep")
    limits.put_back(tmp_path / "keep")
    assert limit.read_text() == "8192\n"
