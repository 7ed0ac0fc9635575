"""Read what nvidia-smi, kernel log and PCI bus say of NVIDIA cards; what is not known is named, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from xml.etree import ElementTree

NOT_THERE = ("", "N/A", "[N/A]", "Not Supported", "[Not Supported]", "Requested functionality has been deprecated")
"""nvidia-smi's words for what a card does not have, over the years."""


class UnreadableError(Exception):
    """Output that is not what nvidia-smi prints; the text is one sentence."""


@dataclass(frozen=True)
class Smi:
    """One card as `nvidia-smi -q -x` describes it; None where the card or the driver does not say."""

    index: int
    name: str
    architecture: str
    uuid: str
    bus_id: str
    """As 0000:2d:00.0: small letters, four digits of domain."""
    memory_mib: int | None
    ecc: bool | None
    """ECC is on."""
    uncorrectable_volatile: int | None
    """Since the driver was loaded."""
    uncorrectable_aggregate: int | None
    retired_pages: int | None
    """By double bit errors: broken for good (cards before Ampere)."""
    retirement_pending: bool | None
    remap_uncorrectable: int | None
    remap_pending: bool | None
    remap_failed: bool | None
    link_gen: int | None
    link_gen_max: int | None
    """What card and slot can together."""
    link_width: int | None
    link_width_max: int | None
    temperature_c: int | None
    slowdown_c: int | None
    power_w: float | None
    power_limit_w: float | None
    power_limit_default_w: float | None
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    slowed_by: tuple[str, ...]
    """Active reasons that cost speed, of SLOWING."""
    mig: bool
    display: bool
    """A desktop is on this card."""
    recovery_action: str
    """Drivers since 565: what the driver asks for, e.g. None, GPU Reset, Node Reboot."""
    unreadable: tuple[str, ...]
    """Fields whose value is in no form known here: `field: value`."""


@dataclass(frozen=True)
class SmiLog:
    driver: str
    cuda: str
    attached: int | None
    gpus: tuple[Smi, ...]


def unknown_fields(log: SmiLog) -> list[str]:
    """What can't be judged, with its card: values in no known form, and what like cards say and this one does not.

    A card that counts memory errors in counters of an unknown name is one of these, and no healthy card.
    """
    odd = [f"{one.bus_id} {field}" for one in log.gpus for field in one.unreadable]
    for one in log.gpus:
        if one.ecc and one.uncorrectable_volatile is None:
            odd.append(f"{one.bus_id} ecc_errors: ECC is on, and no counter is known")
        for field in fields(one):
            like = any(getattr(other, field.name) is not None for other in log.gpus if other.name == one.name)
            if like and getattr(one, field.name) is None and not any(one.bus_id in said for said in odd):
                odd.append(f"{one.bus_id} {field.name}: not said, and like cards say it")
    return odd


class _Reader:
    """Reads fields of one <gpu>; remembers what it could not read."""

    def __init__(self, gpu: ElementTree.Element) -> None:
        self.gpu = gpu
        self.unreadable: list[str] = []

    def text(self, *paths: str) -> str:
        """The first of the paths that is there and says something."""
        for path in paths:
            found = (self.gpu.findtext(path) or "").strip()
            if found not in NOT_THERE:
                return found
        return ""

    def number(self, *paths: str, unit: str = "") -> float | None:
        found = self.text(*paths)
        if not found:
            return None
        match = re.fullmatch(rf"(-?\d+(?:\.\d+)?)\s*{re.escape(unit)}", found)
        if match is None:
            self.unreadable.append(f"{paths[0]}: {found}")
            return None
        return float(match[1])

    def whole(self, *paths: str, unit: str = "") -> int | None:
        found = self.number(*paths, unit=unit)
        return None if found is None else int(found)

    def choice(self, words: Mapping[str, bool], *paths: str) -> bool | None:
        found = self.text(*paths)
        if found and found not in words:
            self.unreadable.append(f"{paths[0]}: {found}")
        return words.get(found)

    def total(self, *paths: str) -> int | None:
        """The sum of the counters that are there; None if none is."""
        counters = [self.whole(path) for path in paths]
        known = [count for count in counters if count is not None]
        return sum(known) if known else None


ON = {"Enabled": True, "Disabled": False}
YES = {"Yes": True, "No": False}
SLOWING = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


def parse_smi(text: str) -> SmiLog:
    """`nvidia-smi -q -x` of any version; UnreadableError if it is no such document."""
    try:
        # No entity is defined by nvidia-smi; a document type that declares one is refused.
        if "<!ENTITY" in text:
            raise UnreadableError("the output of nvidia-smi -q -x declares entities: not its own")
        root = ElementTree.fromstring(text[text.index("<") :])  # noqa: S314 - see above
    except (ElementTree.ParseError, ValueError) as error:
        start = " ".join(text.split())[:80]
        raise UnreadableError(f"the output of nvidia-smi -q -x is not XML ({error}): {start}") from None
    if root.tag != "nvidia_smi_log":
        raise UnreadableError(f"nvidia-smi -q -x gave <{root.tag}>, not <nvidia_smi_log>")
    attached = (root.findtext("attached_gpus") or "").strip()
    return SmiLog(
        driver=(root.findtext("driver_version") or "").strip(),
        cuda=(root.findtext("cuda_version") or "").strip(),
        attached=int(attached) if attached.isdigit() else None,
        gpus=tuple(_card(index, gpu) for index, gpu in enumerate(root.findall("gpu"))),
    )


def _card(index: int, gpu: ElementTree.Element) -> Smi:
    read = _Reader(gpu)
    volatile, aggregate = ("ecc_errors/volatile/", "ecc_errors/aggregate/")
    link, power = "pci/pci_gpu_link_info/", ("gpu_power_readings/", "power_readings/", "module_power_readings/")
    return Smi(
        index=index,
        name=read.text("product_name") or "unknown",
        architecture=read.text("product_architecture"),
        uuid=read.text("uuid"),
        bus_id=bus_id(read.text("pci/pci_bus_id") or gpu.get("id", "")),
        memory_mib=read.whole("fb_memory_usage/total", unit="MiB"),
        ecc=read.choice(ON, "ecc_mode/current_ecc"),
        uncorrectable_volatile=_uncorrectable(read, volatile),
        uncorrectable_aggregate=_uncorrectable(read, aggregate),
        retired_pages=read.whole("retired_pages/double_bit_retirement/retired_count"),
        retirement_pending=read.choice(YES, "retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
        remap_uncorrectable=read.whole("remapped_rows/remapped_row_unc"),
        remap_pending=read.choice(YES, "remapped_rows/remapped_row_pending"),
        remap_failed=read.choice(YES, "remapped_rows/remapped_row_failure"),
        link_gen=read.whole(link + "pcie_gen/current_link_gen"),
        link_gen_max=read.whole(link + "pcie_gen/max_link_gen"),
        link_width=read.whole(link + "link_widths/current_link_width", unit="x"),
        link_width_max=read.whole(link + "link_widths/max_link_width", unit="x"),
        temperature_c=read.whole("temperature/gpu_temp", unit="C"),
        slowdown_c=read.whole("temperature/gpu_temp_slow_threshold", unit="C"),
        power_w=read.number(
            *(p + w for p in power for w in ("power_draw", "instant_power_draw", "average_power_draw")), unit="W"
        ),
        power_limit_w=read.number(
            *(p + w for p in power for w in ("current_power_limit", "enforced_power_limit", "power_limit")), unit="W"
        ),
        power_limit_default_w=read.number(*(p + "default_power_limit" for p in power), unit="W"),
        sm_clock_mhz=read.whole("clocks/sm_clock", unit="MHz"),
        sm_clock_max_mhz=read.whole("max_clocks/sm_clock", unit="MHz"),
        slowed_by=tuple(reason for reason in SLOWING if _active(read, reason)),
        mig=bool(read.choice(ON, "mig_mode/current_mig")),
        display=bool(read.choice({**ON, **YES}, "display_active")),
        recovery_action=read.text("gpu_recovery_action"),
        unreadable=tuple(read.unreadable),
    )


def _uncorrectable(read: _Reader, where: str) -> int | None:
    """Turing and newer count by memory; older cards by bits; drivers since 545 part the counter of the caches."""
    by_memory = read.total(
        *(where + name for name in ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")),
        where + "dram_uncorrectable",
    )
    return by_memory if by_memory is not None else read.total(where + "double_bit/total")


def _active(read: _Reader, reason: str) -> bool:
    """Called throttle reasons until driver 535, event reasons since."""
    words = {"Active": True, "Not Active": False}
    return bool(
        read.choice(
            words,
            f"clocks_event_reasons/clocks_event_reason_{reason}",
            f"clocks_throttle_reasons/clocks_throttle_reason_{reason}",
        )
    )


def bus_id(text: str) -> str:
    """`00000000:2D:00.0`, `0000:2d:00`, `PCI:0000:2d:00` as `0000:2d:00.0`; what is no bus id as it came."""
    match = re.search(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?", text)
    if match is None:
        return text
    return f"{match[1][-4:]}:{match[2]}:{match[3]}.{match[4] or '0'}".lower()


# --- the kernel log ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelEvent:
    """One message of NVIDIA's driver; `xid` is None for messages without a number."""

    bus_id: str
    xid: int | None
    text: str
    fatal: bool | None = None
    """NVLink's events (144–150) say Fatal or Nonfatal themselves."""


_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),?\s*(.*)")
_LOST = re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]+): (GPU has fallen off the bus.*)")


def parse_kernel(lines: Iterable[str]) -> tuple[tuple[KernelEvent, ...], tuple[str, ...]]:
    """Events of the driver, and lines of it that look like an event and are in no form known here."""
    events, odd = [], []
    for line in lines:
        if match := _XID.search(line):
            words = match[3].split()
            fatal = "Fatal" in words if {"Fatal", "Nonfatal"} & set(words) else None
            events.append(KernelEvent(bus_id(match[1]), int(match[2]), match[3].strip(), fatal))
        elif match := _LOST.search(line):
            events.append(KernelEvent(bus_id(match[1]), None, match[2].strip()))
        elif re.search(r"NVRM: Xid", line):
            odd.append(line.strip())
    return tuple(events), tuple(odd)


# --- the bus -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BusCard:
    bus_id: str
    device_id: str
    text: str


_DISPLAY = re.compile(r"((?:[0-9a-f]+:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*\[030[02]\]: (.*\[10de:([0-9a-f]{4})\].*)")


def parse_lspci(text: str) -> tuple[BusCard, ...]:
    """NVIDIA's display controllers in `lspci -nn` (classes 0300 and 0302); NVSwitches and other bridges are none."""
    cards = []
    for line in text.splitlines():
        match = re.match(
            r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*\[030[02]\]: (.*\[10de:([0-9a-f]{4})\].*)", line
        )
        if match:
            bus = match[1] if match[1].count(":") == 2 else f"0000:{match[1]}"
            cards.append(BusCard(bus, match[3], match[2]))
    return tuple(cards)


_LINK = re.compile(r"Link (\d+): (.+)")


def parse_nvlink(text: str) -> dict[str, dict[int, float | None]]:
    """`nvidia-smi nvlink --status`: card's UUID → link → GB/s; None for a link that is down or says something else."""
    found: dict[str, dict[int, float | None]] = {}
    card = ""
    for line in text.splitlines():
        if match := re.search(r"UUID: ([\w-]+)", line):
            card = match[1]
            found[card] = {}
        elif card and (match := _LINK.search(line)):
            speed = re.match(r"([\d.]+) GB/s", match[2])
            found[card][int(match[1])] = float(speed[1]) if speed else None
    return found
