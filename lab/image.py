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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Recipe:
    """What goes into an image: packages, and shell commands before they are unpacked and at the end ($1: its root)."""

    packages: tuple[str, ...]
    finish: tuple[str, ...]
    before: tuple[str, ...] = ()
    suite: str = SUITES[0]
    options: tuple[str, ...] = ()
    """Further words for mmdebstrap."""
    takes: str = "half a minute"

    @property
    def hash(self) -> str:
        """Identity of the image: it's built anew when anything that goes into it changes."""
        recipe = json.dumps([self.suite, self.packages, self.finish, *self.before, *self.options, platform.machine()])
        return hashlib.sha256(recipe.encode()).hexdigest()[:16]

    @property
    def path(self) -> Path:
        return IMAGES / self.hash


def bare(suite: str = SUITES[0]) -> Recipe:
    """A machine that somebody has just installed."""
    return Recipe(PACKAGES, FINISH, suite=suite)


def build_image(recipe: Recipe, url: str, mirrors: Mirrors, say: Callable[[str], None]) -> Path:
    """The image's folder, built through the package cache at `url` if it isn't there yet."""
    image = recipe.path
    if image.is_dir():
        return image
    IMAGES.mkdir(parents=True, exist_ok=True)
    _clear_killed_builds()
    target = IMAGES / f"building-{recipe.hash}-{os.getpid()}"
    argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(recipe.packages)}"]
    argv += [f"--essential-hook={line}" for line in recipe.before]
    argv += [f"--customize-hook={line}" for line in recipe.finish]
    argv += recipe.options
    argv += [f"--keyring={KEYRING}"] if KEYRING.exists() else []
    argv += [recipe.suite, str(target), *apt_lines(url, recipe.suite, mirrors)]
    what = f"Debian {recipe.suite}, {len(recipe.packages)} packages and what they need"
    say(f"building the node image ({what}), about {recipe.takes}")
    _run_with_progress(argv, say)
    target.rename(image)
    return image


def _clear_killed_builds() -> None:
    """A folder of packages, or the file that was to become a disk of them."""
    for leftover in IMAGES.glob("building-*"):
        if start_time(int(leftover.name.rpartition("-")[2])) is None:
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


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
