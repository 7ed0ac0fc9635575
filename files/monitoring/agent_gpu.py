"""What nvidia-smi and the kernel say of a node's GPUs, as samples; a card or a format may lack any field."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Xml  # of nvidia-smi, a program of this machine
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

Sample = tuple[str, dict[str, str], float]
"""Name without `klaster_`, labels, value."""

THROTTLES = {
    "hw_slowdown": "hardware",
    "hw_thermal_slowdown": "heat",
    "sw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "power-brake",
}
"""Reasons that are a fault; a power cap and an idle card's low clock are not."""
MAX_PROCESSES = 64
"""Series a card for its processes: a bound on what one user can make."""


def number(element: Xml.Element, path: str, factor: float = 1.0) -> float | None:
    """The number at the beginning of a field; None for N/A, and for cards that have no such field."""
    found = re.match(r"\s*(-?\d+(?:\.\d+)?)", element.findtext(path) or "")
    return float(found[1]) * factor if found else None


def bus_id(text: str) -> str:
    """One spelling for nvidia-smi's 00000000:1E:00.0 and the kernel's 0000:1e:00."""
    parts = text.lower().partition(".")[0].rstrip(":").split(":")
    return ":".join([parts[0][-4:], *parts[1:]])


def parse_gpus(text: str, owner: Callable[[int], tuple[str, str]]) -> list[Sample]:
    """`nvidia-smi -q -x`; `owner` gives the user and the job of a process."""
    root = Xml.fromstring(text)  # noqa: S314 - our own driver's program
    cards = root.findall("gpu")
    samples: list[Sample] = [("gpus_found", {}, float(len(cards)))]
    driver = root.findtext("driver_version") or "unknown"
    for index, card in enumerate(cards):
        samples += _card(card, index, driver)
        samples += _processes(card, str(index), owner)
    return samples


def _card(card: Xml.Element, index: int, driver: str) -> list[Sample]:
    gpu = {"gpu": str(index)}
    info = {
        "model": card.findtext("product_name") or "unknown",
        "uuid": card.findtext("uuid") or "",
        "bus_id": bus_id(card.get("id", "")),
    }
    mib, link = 2.0**20, "pci/pci_gpu_link_info"
    values: tuple[tuple[str, dict[str, str], float | None], ...] = (
        ("gpu_temperature_celsius", {}, number(card, "temperature/gpu_temp")),
        ("gpu_utilization_ratio", {}, number(card, "utilization/gpu_util", 0.01)),
        ("gpu_memory_used_bytes", {}, number(card, "fb_memory_usage/used", mib)),
        ("gpu_memory_bytes", {}, number(card, "fb_memory_usage/total", mib)),
        ("gpu_power_watts", {}, _first(card, ("power_readings", "gpu_power_readings"), "power_draw")),
        ("gpu_power_watts", {}, number(card, "gpu_power_readings/instant_power_draw")),
        ("gpu_pcie_generation", {}, number(card, f"{link}/pcie_gen/current_link_gen")),
        ("gpu_pcie_width", {}, number(card, f"{link}/link_widths/current_link_width")),
        ("gpu_pcie_width_max", {}, number(card, f"{link}/link_widths/max_link_width")),
        ("gpu_pcie_replays_total", {}, number(card, "pci/replay_counter")),
        ("gpu_ecc_errors", {"kind": "uncorrected"}, _ecc(card, ("uncorrectable", "double_bit"))),
        ("gpu_ecc_errors", {"kind": "corrected"}, _ecc(card, ("correctable", "single_bit"))),
    )
    samples: list[Sample] = [("gpu_info", {**gpu, **info, "driver": driver}, 1.0)]
    seen = set()
    for name, labels, value in values:
        if value is not None and (name, *labels.values()) not in seen:
            seen.add((name, *labels.values()))
            samples.append((name, {**gpu, **labels}, value))
    return samples + _throttles(card, gpu) + _remaps(card, gpu)


def _first(card: Xml.Element, groups: Iterable[str], field: str) -> float | None:
    values = (number(card, f"{group}/{field}") for group in groups)
    return next((value for value in values if value is not None), None)


def _ecc(card: Xml.Element, words: tuple[str, str]) -> float | None:
    """Errors since the driver was loaded; the names of their fields differ by generation of card and driver."""
    volatile = card.find("ecc_errors/volatile")
    if volatile is None:
        return None
    fields = [field for field in volatile.iter() if len(field) == 0]
    old = volatile.find(f"{words[1]}/total")
    if old is not None:
        return number(volatile, f"{words[1]}/total")
    counts = [
        float(field.text or 0)
        for field in fields
        if re.search(rf"(^|_){words[0]}", field.tag) and re.fullmatch(r"\d+", field.text or "")
    ]
    return sum(counts) if counts else None


def _throttles(card: Xml.Element, gpu: dict[str, str]) -> list[Sample]:
    found: dict[str, float] = {}
    for field in card.iter():
        name = re.sub(r"^clocks_(throttle|event)_reason_", "", field.tag)
        if name != field.tag and name in THROTTLES and (field.text or "").strip() in ("Active", "Not Active"):
            reason = THROTTLES[name]
            found[reason] = max(found.get(reason, 0.0), float((field.text or "").strip() == "Active"))
    return [("gpu_throttled", {**gpu, "reason": reason}, value) for reason, value in sorted(found.items())]


def _remaps(card: Xml.Element, gpu: dict[str, str]) -> list[Sample]:
    kinds = (("pending", "remapped_rows/remapped_row_pending"), ("failure", "remapped_rows/remapped_row_failure"))
    texts = [(kind, (card.findtext(path) or "").strip()) for kind, path in kinds]
    return [
        ("gpu_remap_trouble", {**gpu, "kind": kind}, float(text == "Yes"))
        for kind, text in texts
        if text in ("Yes", "No")
    ]


def _processes(card: Xml.Element, gpu: str, owner: Callable[[int], tuple[str, str]]) -> list[Sample]:
    held: Counter[tuple[str, str]] = Counter()
    for process in card.findall("processes/process_info"):
        pid = number(process, "pid")
        if pid is not None:
            held[owner(int(pid))] += int(number(process, "used_memory", 2.0**20) or 0)
    largest = held.most_common(MAX_PROCESSES)
    return [
        ("gpu_process_memory_bytes", {"gpu": gpu, "user": user, "slurm_job": job}, float(size))
        for (user, job), size in largest
    ]


def owner_of(pid: int) -> tuple[str, str]:
    """User and Slurm job of a process: from its cgroup, or from its environment where Slurm has no cgroups."""
    folder = Path(f"/proc/{pid}")
    try:
        import pwd

        uid = folder.stat().st_uid
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        job = re.search(r"/job_(\d+)", (folder / "cgroup").read_text())
        if not job:
            job = re.search(r"(?:^|\0)SLURM_JOB_ID=(\d+)", (folder / "environ").read_text(errors="replace"))
        return user, job[1] if job else ""
    except OSError:
        return "unknown", ""


def parse_kernel(text: str) -> list[Sample]:
    """Lines of the NVIDIA driver: Xids by card, and cards that fell off the bus."""
    xids: Counter[tuple[str, str]] = Counter()
    fallen: Counter[str] = Counter()
    for line in text.splitlines():
        xid = re.search(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)", line)
        if xid:
            xids[(bus_id(xid[1]), xid[2])] += 1
        lost = re.search(r"NVRM: (?:GPU |Xid \(PCI:)([0-9a-fA-F:]{7,})\S*:? .*fallen off the bus", line)
        if lost:
            fallen[bus_id(lost[1])] += 1
    samples: list[Sample] = [("gpu_xid_total", {"bus_id": bus, "xid": xid}, float(n)) for (bus, xid), n in xids.items()]
    return samples + [("gpu_fallen_total", {"bus_id": bus}, float(n)) for bus, n in fallen.items()]
