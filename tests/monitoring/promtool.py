"""promtool, from PATH or out of Debian's package without installing it."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

CACHE = Path("/var/cache/klaster/promtool")
"""Safe to delete."""


@cache
def program_of_prometheus(name: str) -> str:
    """Path of promtool or prometheus; on a machine without it the package is fetched once, and only that taken out."""
    found = shutil.which(name)
    if found:
        return found
    program = CACHE / "usr/bin" / name
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        script = (
            "rm -f prometheus_*.deb; apt-get -q -o APT::Sandbox::User=root download prometheus; "
            f"dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/{name}; rm -f prometheus_*.deb"
        )
        subprocess.run(["sh", "-ec", script], cwd=CACHE, check=True, capture_output=True, text=True, timeout=300)
    return str(program)


def run_promtool(*words: str, stdin: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool and give what it said."""
    return subprocess.run(
        [program_of_prometheus("promtool"), *words],
        input=stdin,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
