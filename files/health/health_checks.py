"""What of a node can be seen within a second: each check is a function that gives a problem, None, or raises.

They and their causes have the names that validate-cluster uses. Standard library only; a check that raises says nothing
about the node.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

CERTIFICATE = "/var/lib/klaster/certificate.json"
COMMAND_S = 1.0
FREE_BYTES, FREE_SHARE, FREE_INODES_SHARE = 2**30, 0.05, 0.02
CLOCK_S = 1.0
MEMORY_TOLERANCE = 0.05
DIST_PACKAGES = (
    f"/usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/dist-packages",
    "/usr/lib/python3/dist-packages",
)

Config = dict[str, Any]
"""As roles/health.py writes it: /etc/klaster/health.json."""
Problem = tuple[str, str] | None
"""(cause, what was seen); None: fine."""


class Unknown(Exception):
    """The check can't tell; the text says why."""


def command(*words: str, stdin: str = "", timeout_s: float = COMMAND_S) -> str:
    """Output of a program; Unknown if it is not there, fails or takes too long."""
    path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, env=path, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unknown(f"{words[0]}: {type(error).__name__}") from None
    if done.returncode:
        raise Unknown(f"{words[0]}: {(done.stderr or done.stdout).strip()[-200:] or f'status {done.returncode}'}")
    return done.stdout


def text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


# --- the checks --------------------------------------------------------------------------------------------------


def disk_space(config: Config) -> Problem:
    for path in config["disks"]:
        found = os.statvfs(path)
        total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        if found.f_flag & os.ST_RDONLY:
            return "disk-read-only", f"{path} is read-only"
        if free < min(FREE_BYTES, FREE_SHARE * total):
            return "disk-full", f"{path} has {free // 2**20} MiB free"
        if found.f_files and found.f_favail < FREE_INODES_SHARE * found.f_files:
            return "inodes-full", f"{path} has {found.f_favail} of {found.f_files} inodes free"
    return None


def storage_mounts(config: Config) -> Problem:
    """A mount that is not there is this node's; one that does not answer is its server's, and no verdict here."""
    mounted = {line.split()[1]: line.split()[2] for line in text("/proc/self/mounts").splitlines()}
    for storage in config["storage"]:
        path, fstype = storage["path"], storage["fstype"]
        if path not in mounted:
            return "mount", f"{path} is not mounted"
        if fstype and mounted[path] != fstype:
            return "mount-type", f"{path} is {mounted[path]}, not {fstype}"
        os.statvfs(path)  # a dead server keeps this from ending
    return None


def network(config: Config) -> Problem:
    found = {
        address["local"]: link["ifname"]
        for link in json.loads(command("ip", "-j", "-4", "address", "show"))
        for address in link.get("addr_info", ())
    }
    for link in config["links"]:
        name = found.get(link["address"])
        if name is None:
            return "address", f"no interface has {link['address']}"
        mtu = int(text(f"/sys/class/net/{name}/mtu"))
        if mtu != link["mtu"]:
            return "mtu", f"{name} has MTU {mtu}, declared is {link['mtu']}"
        if 0 < _speed_mbps(name) < 1000 * link["speed_gbps"]:
            return "link-speed", f"{name} runs at {_speed_mbps(name)} Mb/s, declared is {link['speed_gbps']:g} Gb/s"
    return None


def _speed_mbps(interface: str) -> int:
    try:
        return int(text(f"/sys/class/net/{interface}/speed"))
    except (OSError, ValueError):  # a virtual one, or one that is down
        return 0


def clock(config: Config) -> Problem:
    """By what chronyd knows of its source; without a source nobody can tell."""
    fields = command("chronyc", "-n", "-c", "tracking").strip().split(",")
    if len(fields) < 14 or fields[13] == "Not synchronised":
        raise Unknown("chronyd follows no source")
    offset_s = float(fields[4])
    return ("clock", f"{offset_s:+.3f} s from its time source") if abs(offset_s) > CLOCK_S else None


def hardware(config: Config) -> Problem:
    if os.cpu_count() != config["cpus"]:
        return "processors", f"{os.cpu_count()} processors, locked are {config['cpus']}"
    found = re.search(r"^MemTotal:\s+(\d+) kB", text("/proc/meminfo"), re.M)
    memory_mib = int(found[1]) // 1024 if found else 0
    if abs(memory_mib - config["memory_mib"]) > MEMORY_TOLERANCE * config["memory_mib"]:
        return "memory", f"{memory_mib} MiB of memory, locked are {config['memory_mib']}"
    return None


def gpus(config: Config) -> Problem:
    """Cards that the driver has; nvidia-smi would take seconds."""
    if not config["gpus"]:
        return None
    there = len(os.listdir("/proc/driver/nvidia/gpus"))
    return ("gpu-lost", f"{there} of {config['gpus']} GPUs") if there < config["gpus"] else None


def munge(config: Config) -> Problem:
    try:
        command("unmunge", stdin=command("munge", "-n"))
    except Unknown as error:
        if "FileNotFoundError" in str(error) or "TimeoutExpired" in str(error):
            raise
        return "munge", str(error)
    return None


def versions(config: Config) -> Problem:
    """What runs here is what was certified; while packages are being installed nobody can tell."""
    try:
        certified = json.loads(text(CERTIFICATE))["versions"]
    except FileNotFoundError:
        return None
    if installing():
        raise Unknown("packages are being installed")
    now = version_set(config["venv"])
    changed = [
        f"{name} {certified[name]} → {now[name] or 'none'}" for name in now if certified.get(name, "") != now[name]
    ]
    return ("changed-since-certified", ", ".join(changed)) if changed else None


def version_set(venv: str) -> dict[str, str]:
    """The part of validate-cluster's version set that costs nothing to read."""
    found = {"kernel": os.uname().release, "slurm": command("scontrol", "-V").split()[-1], "torch": "", "numpy": ""}
    base = f"{venv}/lib" if venv and os.path.exists(f"{venv}/bin/python") else ""
    folders = [f"{base}/{name}/site-packages" for name in os.listdir(base)] if base else DIST_PACKAGES
    for folder in filter(os.path.isdir, folders):
        for name in os.listdir(folder):
            if known := re.fullmatch(r"(torch|numpy)-([^-]+)\.(dist|egg)-info", name):
                found[known[1]] = found[known[1]] or known[2]
    if os.path.exists("/sys/module/nvidia/version"):
        found["driver"] = text("/sys/module/nvidia/version").strip()
    return found


def installing() -> bool:
    """Whether somebody holds dpkg's or apt's lock."""
    inodes = set()
    for name in ("lock", "lock-frontend"):
        try:
            inodes.add(str(os.stat(f"/var/lib/dpkg/{name}").st_ino))
        except OSError:
            continue
    return any(inode in line.replace(":", " ").split() for line in text("/proc/locks").splitlines() for inode in inodes)


CHECKS: dict[str, Callable[[Config], Problem]] = {
    "disk-space": disk_space,
    "storage-mounts": storage_mounts,
    "interface": network,
    "clock-offset": clock,
    "hardware": hardware,
    "gpus": gpus,
    "munge": munge,
    "versions": versions,
}
