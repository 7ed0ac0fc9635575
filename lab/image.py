"""The nodes' root file system: a small bare Debian, built once and cached by the hash of its recipe."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from lab.apt import Mirrors
from lab.cache import apt_lines
from lab.errors import CommandFailed
from lab.process import start_time

IMAGES = Path("/var/cache/klaster/images")
SUITES = ("trixie", "bookworm")
"""Debian releases that nodes can be of, the usual one first; bookworm is for single roles, its Slurm is too old."""
# A bare machine that somebody has just installed: ssh, Python for nobody in particular, nothing of a cluster.
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3-minimal", "iproute2", "ca-certificates", "sudo",
    "iputils-ping", "udev", "kmod", "procps",
)  # fmt: skip
# Every node makes its own identity; a background apt run would hold dpkg's lock at a random moment.
FINISH = (
    'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id "$1"/etc/hostname',
    "for unit in apt-daily.timer apt-daily-upgrade.timer getty@tty1.service console-getty.service; do "
    'ln -sf /dev/null "$1"/etc/systemd/system/$unit; done',
)
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def recipe_hash(suite: str) -> str:
    """Identity of the image: it's built anew when anything that goes into it changes."""
    recipe = json.dumps([suite, PACKAGES, FINISH, platform.machine()])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def image_path(suite: str) -> Path:
    return IMAGES / recipe_hash(suite)


def build_image(suite: str, url: str, mirrors: Mirrors, say: Callable[[str], None]) -> Path:
    """The image's folder, built through the package cache at `url` if it isn't there yet."""
    image = image_path(suite)
    if image.is_dir():
        return image
    IMAGES.mkdir(parents=True, exist_ok=True)
    for leftover in IMAGES.glob("building-*"):  # of builds that were killed
        if start_time(int(leftover.name.rpartition("-")[2])) is None:
            shutil.rmtree(leftover)
    target = IMAGES / f"building-{recipe_hash(suite)}-{os.getpid()}"
    argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    argv += [f"--customize-hook={line}" for line in FINISH]
    argv += [f"--keyring={KEYRING}"] if KEYRING.exists() else []
    argv += [suite, str(target), *apt_lines(url, suite, mirrors)]
    say(f"building the node image (Debian {suite}, {len(PACKAGES)} packages and what they need), about half a minute")
    _run_with_progress(argv, say)
    target.rename(image)
    return image


def _run_with_progress(argv: list[str], say: Callable[[str], None]) -> None:
    started = time.monotonic()
    log = IMAGES / "build.log"
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            while True:
                try:
                    status = process.wait(timeout=10)
                    break
                except subprocess.TimeoutExpired:
                    say(f"  … {time.monotonic() - started:.0f} s: {_last_line(log)}")
        except BaseException:
            process.terminate()  # mmdebstrap tidies up its mounts itself
            process.wait(timeout=30)
            raise
    if status:
        raise CommandFailed(f"mmdebstrap ended with status {status}; see {log}: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.rpartition("\r")[2] for line in reversed(lines) if line.strip()), "")[:100]
