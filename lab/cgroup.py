"""A control group a container, on machines where no systemd hands one out."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path


def is_by_hand() -> bool:
    """True where PID 1 isn't systemd: nspawn then can't ask for a scope and stays in the group it is started in."""
    return not Path("/run/systemd/system").is_dir()


def _hierarchies() -> list[Path]:
    """Mounted hierarchies that systemd in a container would use: the unified one, and systemd's own of version 1."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            found.append(Path(where))
    return found


def make(lab: str, name: str) -> list[Path]:
    """Make the groups of a node below those of its lab; the returned files take the pid that is to live in them.

    Without a group each, all containers would share one, and stopping a service in a node would kill its
    namesakes in the others.
    """
    if not is_by_hand():
        return []
    files = []
    for hierarchy in _hierarchies():
        group = hierarchy / lab / name
        group.mkdir(parents=True, exist_ok=True)
        files.append(group / "cgroup.procs")
    return files


def remove(lab: str, name: str = "") -> None:
    """Remove a node's groups (all of the lab's without a name); what still has processes in it stays."""
    for hierarchy in _hierarchies():
        top = hierarchy / lab / name
        if top.is_dir():
            for folder in [*sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True), top]:
                _remove(folder)


def _remove(folder: Path) -> None:
    for _ in range(50):  # the kernel lets go of a dead process's group a moment after the process is gone
        with suppress(FileNotFoundError):
            try:
                folder.rmdir()
            except OSError:
                time.sleep(0.02)
                continue
        return
