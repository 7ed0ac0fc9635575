"""Verdicts on a node's local disks: space, inodes, and speed beside the peers."""

from __future__ import annotations

from statistics import median
from typing import Any

from validation.checks.node import Finding, Subject, answer, failed, gib, not_applicable, passed, problem

DISK_PATHS = ("/", "/tmp", "/var")  # noqa: S108 - looked at, not written
FREE_BYTES, FREE_SHARE, FREE_INODES_SHARE = 2**30, 0.05, 0.02
SLOW_SHARE = 0.25
"""Of the peers' median. Disks of one cluster differ, and a shared one is noisy: only a multiple is a fault."""
SLOW_MB_S = 60.0
"""A disk this fast is never a fault, whatever the peers have: every sound hard disk writes 2 MB at once faster."""


def disk_space(subject: Subject) -> Finding:
    """Free space and inodes of the places that jobs and packages write to, and of every further local disk."""
    required = f"free: {gib(FREE_BYTES)} (or {FREE_SHARE:.0%} of a small disk) and {FREE_INODES_SHARE:.0%} of inodes"
    seen, short = [], []
    for path, found in _file_systems(subject).items():
        enough = min(FREE_BYTES, FREE_SHARE * found["total_bytes"])
        seen.append(f"{path} {gib(found['free_bytes'])}")
        if found["read_only"]:
            short.append((f"{path} is read-only", "disk-read-only"))
        elif found["free_bytes"] < enough:
            short.append((f"{path} has {gib(found['free_bytes'])} free", "disk-full"))
        elif found["files"] and found["files_free"] < FREE_INODES_SHARE * found["files"]:
            short.append((f"{path} has {found['files_free']} of {found['files']} inodes free", "inodes-full"))
    if not short:
        return passed("free: " + ", ".join(seen), required, "default")
    measured, cause = "; ".join(text for text, _ in short), short[0][1]
    remedy = "find what fills it: du -xh / | sort -h | tail; journalctl --vacuum-size=200M; apt-get clean"
    return failed(measured, required, "default", cause, remedy)


def _file_systems(subject: Subject) -> dict[str, dict[str, Any]]:
    """The usual places first, then every other local file system that was found."""
    found = {path: answer(subject.probe, f"filesystem:{path}") for path in DISK_PATHS}
    if "local_disks" in subject.probe:  # older results have no such question
        found |= {path: values for path, values in answer(subject.probe, "local_disks").items() if path not in found}
    return found


def disk_speed(subject: Subject) -> Finding:
    """A disk far slower than the peers' holds up whatever loads data or writes checkpoints there."""
    required = f"≥ {SLOW_SHARE:g} × the peers' median, or {SLOW_MB_S:g} MB/s"
    why = problem(subject.probe, "disk_speed")
    if "No space" in why or "Read-only" in why:
        return not_applicable(f"{why}; see check disk-space")
    remedy = "look for errors (dmesg, smartctl -a), a failing or busy device (iostat -x 1), or a limit (io.max)"
    if why.startswith("no answer"):
        return failed(f"2 MB were not written {why.removeprefix('no answer ')}", required, "peers", "disk-slow", remedy)
    mine = float(answer(subject.probe, "disk_speed")["write_mb_s"])
    peers = [
        float(probe["disk_speed"]["ok"]["write_mb_s"])
        for name, probe in subject.fleet.probes.items()
        if name != subject.name and "ok" in probe.get("disk_speed", {})
    ]
    measured = f"writes {mine:.0f} MB/s"
    if not peers:
        return passed(measured, required, "no peer to compare with")
    theirs = median(peers)
    if mine >= min(SLOW_MB_S, SLOW_SHARE * theirs):
        return passed(f"{measured}, peers {theirs:.0f} MB/s", required, "peers")
    return failed(f"{measured}, peers {theirs:.0f} MB/s", required, "peers", "disk-slow", remedy)
