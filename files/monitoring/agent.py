"""What node_exporter can't know of a node (GPUs, mounts, services, time, jobs by night), as a file of metrics for it.

Runs on every node as klaster-agent.service with the standard library only: every `interval_s` it asks, and writes one
file into node_exporter's textfile folder in one step. A question that fails or hangs costs its own answer, never the
others': `klaster_agent_question_succeeded` says so. Try it by hand: python3 agent.py --once agent.json
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import agent_gpu

Sample = tuple[str, dict[str, str], float]
"""Name without `klaster_`, labels, value."""

HELP = {
    "agent_question_succeeded": "1 if the node could answer this question in time.",
    "agent_seconds": "How long the last round of questions took.",
    "service_active": "1 if a unit that this node must have runs.",
    "firewall_loaded": "1 if the kernel holds klaster's firewall rules.",
    "mount_present": "1 if a declared folder is mounted.",
    "mount_responds": "1 if a declared folder answers within its deadline.",
    "nfs_operations_total": "Operations on an NFS mount since it was mounted.",
    "nfs_response_seconds_total": "Seconds that those operations took, from request to answer.",
    "nfs_retransmissions_total": "Requests sent again because no answer came.",
    "time_offset_seconds": "What chrony thinks the clock is off by.",
    "time_synchronised": "1 if chrony follows a source.",
    "tls_expiry_timestamp_seconds": "When this node's certificate ends.",
    "last_success_timestamp_seconds": "When a job of the cluster (backup, nightly) last succeeded.",
    "gpus_expected": "Cards that the inventory declares for this node.",
    "gpus_found": "Cards that the driver shows.",
    "gpu_info": "What a card is.",
    "gpu_temperature_celsius": "Temperature of the card's processor.",
    "gpu_utilization_ratio": "Share of the last second in which the card worked.",
    "gpu_memory_used_bytes": "Memory in use.",
    "gpu_memory_bytes": "Memory of the card.",
    "gpu_power_watts": "Power drawn.",
    "gpu_throttled": "1 if the card is slowed down for this reason.",
    "gpu_ecc_errors": "Memory errors since the driver was loaded.",
    "gpu_remap_trouble": "1 if a memory row waits for its replacement (pending) or has none (failure).",
    "gpu_pcie_generation": "PCIe generation in use now (an idle card runs at 1).",
    "gpu_pcie_width": "PCIe lanes in use now.",
    "gpu_pcie_width_max": "PCIe lanes that the card has.",
    "gpu_pcie_replays_total": "PCIe packets sent again.",
    "gpu_xid_total": "NVIDIA driver errors in the kernel log since boot.",
    "gpu_fallen_total": "Cards that fell off the bus since boot.",
    "gpu_process_memory_bytes": "Memory that a user's job holds on a card.",
}


def run(*command: str, timeout_s: float = 10) -> str:
    """What a program prints; OSError or SubprocessError if it is missing, fails or takes too long."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=True, stdin=subprocess.DEVNULL
    ).stdout


# --- services, mounts, time --------------------------------------------------------------------------------------


def services(units: list[str], optional: list[str]) -> list[Sample]:
    """Units that must run, and those of `optional` that are enabled on this node."""
    text = run("systemctl", "show", "-p", "Id,LoadState,ActiveState,UnitFileState", "--", *units, *optional)
    return parse_services(text, set(units))


def parse_services(text: str, must: set[str]) -> list[Sample]:
    """`systemctl show` prints a block a unit."""
    samples: list[Sample] = []
    for block in text.strip().split("\n\n"):
        unit = dict(line.partition("=")[::2] for line in block.splitlines())
        name = unit.get("Id", "")
        if name in must or (unit.get("LoadState") == "loaded" and unit.get("UnitFileState") == "enabled"):
            samples.append(
                ("service_active", {"unit": name}, float(unit.get("ActiveState") in ("active", "reloading")))
            )
    return samples


_stuck: dict[str, subprocess.Popen[bytes]] = {}
"""Children that hang in a dead mount: nothing can end them but the server; one a mount is enough."""


def mounts(paths: list[str]) -> list[Sample]:
    """Declared folders: mounted, and answering. A child asks: a hung NFS server must not hang us."""
    mounted = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    samples: list[Sample] = []
    for path in paths:
        samples.append(("mount_present", {"path": path}, float(path in mounted)))
        samples.append(("mount_responds", {"path": path}, float(_responds(path))))
    return samples


def _responds(path: str) -> bool:
    before = _stuck.get(path)
    if before is not None and before.poll() is None:
        return False
    child = subprocess.Popen(["stat", "-f", "-t", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return child.wait(timeout=3) == 0
    except subprocess.TimeoutExpired:
        child.kill()
        _stuck[path] = child
        return False


def parse_mountstats(text: str) -> list[Sample]:
    """/proc/self/mountstats: for each NFS mount the sum over its operations."""
    samples: list[Sample] = []
    for block in re.split(r"^device ", text, flags=re.MULTILINE):
        head = re.match(r"\S+ mounted on (\S+) with fstype nfs", block)
        if not head:
            continue
        rows = [
            [int(number) for number in row.split()]
            for row in re.findall(r"^\s+[A-Z_]+: ((?:\d+ ?){8,})$", block, re.MULTILINE)
        ]
        labels = {"path": head[1]}
        samples += [
            ("nfs_operations_total", labels, sum(row[0] for row in rows)),
            ("nfs_retransmissions_total", labels, sum(row[1] - row[0] for row in rows)),
            ("nfs_response_seconds_total", labels, sum(row[6] for row in rows) / 1000),
        ]
    return samples


def firewall(managed: bool) -> list[Sample]:
    """Where the inventory has a firewall, the kernel must have its rules."""
    if not managed:
        return []
    rules = run("nft", "--json", "list", "tables", "inet")
    return [("firewall_loaded", {}, float('"name": "klaster"' in rules or '"name":"klaster"' in rules))]


def parse_tracking(text: str) -> list[Sample]:
    """`chronyc -c tracking`: one line of comma-separated fields."""
    fields = text.strip().split(",")
    followed = fields[13] == "Normal" and fields[0] != "00000000"
    return [("time_synchronised", {}, float(followed)), ("time_offset_seconds", {}, float(fields[4]))]


def certificate(path: str) -> list[Sample]:
    """The end of this node's own certificate."""
    end = run("openssl", "x509", "-noout", "-enddate", "-in", path).strip().partition("=")[2]
    return [("tls_expiry_timestamp_seconds", {}, float(ssl.cert_time_to_seconds(end)))]


def stamps(folder: Path) -> list[Sample]:
    """A job that succeeded touches a file of its name."""
    files = sorted(folder.iterdir())[:20] if folder.is_dir() else []
    return [("last_success_timestamp_seconds", {"task": file.name}, file.stat().st_mtime) for file in files]


def gpus(expected: int) -> list[Sample]:
    samples: list[Sample] = [("gpus_expected", {}, float(expected))]
    if expected or Path("/proc/driver/nvidia").exists():
        try:
            samples += agent_gpu.parse_gpus(run("nvidia-smi", "-q", "-x"), agent_gpu.owner_of)
        except FileNotFoundError:
            samples.append(("gpus_found", {}, 0.0))
    return samples


SIMULATED = Path("/etc/klaster-lab/gpu/kernel.log")
"""In a rehearsal's node with recorded cards: their driver's messages; the kernel's log is about another machine."""


def kernel() -> list[Sample]:
    if SIMULATED.exists():
        return agent_gpu.parse_kernel(SIMULATED.read_text(encoding="utf-8"))
    if not Path("/proc/driver/nvidia").exists():
        return []
    return agent_gpu.parse_kernel(run("journalctl", "-k", "-b", "-o", "cat", "--no-pager", "-n", "2000", "-g", "NVRM"))


# --- the round ---------------------------------------------------------------------------------------------------


def questions(config: dict[str, Any]) -> dict[str, tuple[float, Callable[[], list[Sample]]]]:
    """Question → how often at most (seconds), and the function that asks."""
    return {
        "services": (0, lambda: services(config["units"], config["optional_units"])),
        "mounts": (0, lambda: mounts(config["mounts"])),
        "nfs": (0, lambda: parse_mountstats(Path("/proc/self/mountstats").read_text())),
        "time": (0, lambda: parse_tracking(run("chronyc", "-c", "tracking"))),
        "firewall": (0, lambda: firewall(config["firewall"])),
        "gpus": (0, lambda: gpus(config["gpus"])),
        "kernel": (60, kernel),
        "certificate": (3600, lambda: certificate(config["certificate"])),
        "stamps": (0, lambda: stamps(Path(config["stamps"]))),
    }


class Agent:
    """Asks round by round; a rarer question's last answer stays until it is asked again."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self._answers: dict[str, list[Sample]] = {}
        self._asked: dict[str, float] = {}

    def round(self) -> str:
        """Ask what is due and give the whole file."""
        began = time.monotonic()
        samples: list[Sample] = []
        for name, (every_s, ask) in questions(self.config).items():
            if name not in self._asked or began - self._asked[name] >= every_s:
                self._asked[name] = began
                try:
                    self._answers[name] = ask()
                except Exception as error:  # whatever one question meets, the others are answered
                    print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                    self._answers.pop(name, None)
            samples.append(("agent_question_succeeded", {"question": name}, float(name in self._answers)))
            samples += self._answers.get(name, [])
        samples.append(("agent_seconds", {}, round(time.monotonic() - began, 3)))
        return text_format(samples)


def text_format(samples: Iterable[Sample]) -> str:
    """Prometheus' text format, a family together."""
    families: dict[str, list[str]] = {}
    for name, labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        families.setdefault(name, []).append(f"klaster_{name}{{{inside}}} {value:.15g}")
    lines = []
    for name, rows in families.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP klaster_{name} {HELP[name]}", f"# TYPE klaster_{name} {kind}", *rows]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write(path: Path, text: str) -> None:
    """In one step: node_exporter never reads half a file."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def main(arguments: list[str]) -> None:
    once = "--once" in arguments
    config = json.loads(Path(arguments[-1]).read_text(encoding="utf-8"))
    agent = Agent(config)
    if once:
        print(agent.round(), end="")
        return
    while True:
        began = time.monotonic()
        write(Path(config["output"]), agent.round())
        time.sleep(max(1.0, config["interval_s"] - (time.monotonic() - began)))


if __name__ == "__main__":
    main(sys.argv[1:])
