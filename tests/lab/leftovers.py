"""What of a lab is still on this machine; all of it empty after `bin/lab down`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path


def leftovers(name: str, state: Path, cidr_start: str) -> dict[str, list[str]]:
    """Traces of the lab of this name, by kind; kinds without a trace are left out."""
    switch, group = f"k{name}", f"klaster-{name}"
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout.splitlines()
    links = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout)
    netns = Path("/run/netns")
    found = {
        "mounts": [line for line in mounts if f" {state}" in line or f"/netns/{switch} " in line],
        "routes": [line for line in routes if cidr_start in line],
        "links": [link["ifname"] for link in links if link["ifname"].startswith(f"{switch}0")],
        "namespaces": [e.name for e in netns.iterdir() if f"{e.name}-".startswith(f"{switch}-")]
        if netns.is_dir()
        else [],
        "claims": [str(path) for path in Path("/run").glob(f"{group}.*")],
        "control groups": [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{group}")],
        "state": [str(state)] if state.exists() else [],
        "processes": _processes(str(state)),
    }
    return {kind: traces for kind, traces in found.items() if traces}


def _processes(word: str) -> list[str]:
    """Programs that were started with a path below the state folder: containers, the package cache."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if (word in line and "systemd-nspawn" in line) or (word in line and "nginx" in line):
                found.append(f"{entry.name} {line}")
    return found
