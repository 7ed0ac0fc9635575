"""Who holds the lab: one lab a machine, and a second checkout is told so before anything is touched."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from inventory.model import Cluster
from lab.errors import LabError
from lab.plan import this_instance

# In /run, so that a restart of the machine, which ends every node, also ends the claim.
RUN = Path("/run")
CHECKOUT = Path(__file__).resolve().parents[1]


class Holder(BaseModel):
    """The claim on this machine's lab."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkout: str
    pid: int
    since: str
    inventory_file: str
    cluster: dict[str, Any]

    def load_cluster(self) -> Cluster:
        return Cluster(**self.cluster)


def _claim_file() -> Path:
    return RUN / f"{this_instance().group}.json"


def read_holder() -> Holder | None:
    try:
        return Holder.model_validate_json(_claim_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def own_holder() -> Holder | None:
    """The claim if it is this checkout's (or of a checkout that is gone); LabError if it is somebody else's."""
    holder = read_holder()
    if holder and Path(holder.checkout) != CHECKOUT and Path(holder.checkout).is_dir():
        raise LabError(
            f"the lab of this machine is held by {holder.checkout} since {holder.since} "
            f"(inventory {holder.inventory_file}): run `bin/lab down` there first"
        )
    return holder


def needed_holder() -> Holder:
    holder = own_holder()
    if holder is None:
        raise LabError("the lab is down: run `bin/lab up`")
    return holder


def claim(inventory_file: str, cluster: Cluster, before: Holder | None) -> None:
    """Write the claim, the first one's time kept; the lock must be held."""
    holder = Holder(
        checkout=str(CHECKOUT),
        pid=os.getpid(),
        since=before.since if before else time.strftime("%Y-%m-%d %H:%M:%S"),
        inventory_file=inventory_file,
        cluster=cluster.model_dump(mode="json"),
    )
    target = _claim_file()
    new = target.with_suffix(".new")
    new.write_text(json.dumps(holder.model_dump()), encoding="utf-8")
    new.replace(target)


def other_labs() -> list[str]:
    """Claims on this machine by labs of other names (the lab's own tests use some)."""
    return sorted(path.stem for path in RUN.glob("klaster-*.json") if path != _claim_file())


def release() -> None:
    _claim_file().unlink(missing_ok=True)


@contextmanager
def locked(timeout_s: float = 300) -> Iterator[None]:
    """One bin/lab at a time changes the lab; LabError naming the other after `timeout_s`."""
    lock = RUN / f"{this_instance().group}.lock"
    deadline = time.monotonic() + timeout_s
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.exists() and os.fstat(handle).st_ino == lock.stat().st_ino:
                break
        except BlockingIOError:
            owner = os.pread(handle, 100, 0).decode(errors="replace").strip()
            if time.monotonic() > deadline:
                os.close(handle)
                raise LabError(f"another bin/lab ({owner}) is at work for {timeout_s:.0f} s: wait for it") from None
        os.close(handle)
        time.sleep(0.1)
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"pid {os.getpid()} of {CHECKOUT}".encode(), 0)
    try:
        yield
    finally:
        if read_holder() is None:  # after `down` not even the lock stays
            lock.unlink(missing_ok=True)
        os.close(handle)


def give_to_caller(*paths: Path) -> None:
    """Under sudo, hand files to the person who called, so that pyinfra can use them without root."""
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if uid and gid:
        for path in paths:
            shutil.chown(path, int(uid), int(gid))
