"""One lab a machine: the second checkout is told who holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inventory.loading import load_cluster
from lab import holder
from lab.errors import LabError


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /run of our own."""
    monkeypatch.setattr(holder, "RUN", tmp_path)
    return tmp_path


def claim() -> None:
    holder.claim("inventory/lab.py", load_cluster("inventory/lab.py"), None)


def test_nobody_holds_a_lab_that_is_down() -> None:
    """Without a claim there's no holder, and verbs that need a lab say how to get one."""
    assert holder.own_holder() is None
    with pytest.raises(LabError, match="run `bin/lab up`"):
        holder.needed_holder()


def test_the_claim_brings_back_the_whole_inventory() -> None:
    """Verbs without an inventory work on the one that the lab was brought up with."""
    claim()
    assert holder.needed_holder().load_cluster() == load_cluster("inventory/lab.py")


def test_a_second_checkout_is_told_who_holds_the_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another checkout gets one line with the holder's folder and time, and can't touch the lab."""
    claim()
    first = holder.CHECKOUT
    monkeypatch.setattr(holder, "CHECKOUT", tmp_path)
    with pytest.raises(LabError, match=f"held by {first} since "):
        holder.own_holder()


def test_a_deleted_checkout_holds_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The lab of a checkout that was deleted can be taken over, so that it can be taken down."""
    monkeypatch.setattr(holder, "CHECKOUT", tmp_path / "gone")
    claim()
    monkeypatch.setattr(holder, "CHECKOUT", tmp_path)
    assert holder.own_holder() is not None


def test_the_first_claim_s_time_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bringing up a lab that is up keeps the time at which it came up."""
    claim()
    first = holder.read_holder()
    assert first is not None
    monkeypatch.setattr("time.strftime", lambda _: "later")
    holder.claim("inventory/lab.py", load_cluster("inventory/lab.py"), first)
    again = holder.read_holder()
    assert again is not None
    assert again.since == first.since


def test_two_at_once_wait_for_each_other() -> None:
    """While one bin/lab is at work another waits, and then names it."""
    with holder.locked(), pytest.raises(LabError, match=r"another bin/lab \(pid \d+ of"), holder.locked(0.1):
        pass


def test_the_lock_goes_with_the_claim(run_folder: Path) -> None:
    """After `down` not even the lock file stays; while the lab is up it does."""
    with holder.locked():
        claim()
    assert (run_folder / "klaster-lab.lock").exists()
    with holder.locked():
        holder.release()
    assert list(run_folder.iterdir()) == []
