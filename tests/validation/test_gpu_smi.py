"""What nvidia-smi, the kernel log and the bus said on real machines, read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.checks.gpu_smi import (
    KernelEvent,
    UnreadableError,
    bus_id,
    parse_kernel,
    parse_lspci,
    parse_nvlink,
    parse_smi,
)
from validation.checks.gpu_xid import meaning

FOLDER = Path(__file__).parents[1] / "recordings" / "nvidia"

CARDS = [
    # file, driver, name, memory MiB, ECC, generation of the link at rest and at most, limit in watts
    ("a10g", "515.105.01", "NVIDIA A10G", 23028, True, 1, 4, 300.0),
    ("gtx-1660-ti", "418.43", "Graphics Device", 5912, None, 1, 3, 130.0),
    ("quadro-p2000", "525.125.06", "Quadro P2000", 5120, None, 1, 3, 75.0),
    ("rtx-3060", "570.124.04", "NVIDIA GeForce RTX 3060", 12288, None, 1, 4, 170.0),
    ("rtx-3080", "536.40", "NVIDIA GeForce RTX 3080", 10240, None, 4, 4, 336.0),
    ("tesla-t4", "515.105.01", "Tesla T4", 15360, True, 3, 3, 70.0),
]


@pytest.mark.parametrize(("file", "driver", "name", "memory", "ecc", "gen", "gen_max", "watts"), CARDS)
def test_cards_of_all_formats_are_read(
    file: str, driver: str, name: str, memory: int, ecc: bool | None, gen: int, gen_max: int, watts: float
) -> None:
    """Consumer, workstation and data-centre cards, drivers from 418 to 570: each field that is there, none unread."""
    log = parse_smi((FOLDER / "cards" / f"{file}.xml").read_text(encoding="utf-8"))
    one = log.gpus[0]
    assert (log.driver, log.attached, one.name, one.memory_mib, one.ecc) == (driver, 1, name, memory, ecc)
    assert (one.link_gen, one.link_gen_max, one.power_limit_w) == (gen, gen_max, watts)
    assert one.temperature_c is not None
    assert one.power_w is not None
    assert (one.unreadable, one.slowed_by) == ((), ())


def test_a_desktop_is_seen() -> None:
    """A card with a screen on it says so."""
    logs = {name: parse_smi((FOLDER / "cards" / f"{name}.xml").read_text()) for name in ("rtx-3080", "rtx-3060")}
    assert [logs[name].gpus[0].display for name in logs] == [True, False]


def xml(fields: str) -> str:
    return f'<nvidia_smi_log><gpu id="00000000:01:00.0"><product_name>X</product_name>{fields}</gpu></nvidia_smi_log>'


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ("<temperature><gpu_temp>[Unknown Error]</gpu_temp></temperature>", "temperature/gpu_temp"),
        ("<fb_memory_usage><total>ERR!</total></fb_memory_usage>", "fb_memory_usage/total"),
        ("<remapped_rows><remapped_row_pending>GPU is lost</remapped_row_pending></remapped_rows>", "remapped_row"),
        ("<ecc_errors><volatile><dram_uncorrectable>many</dram_uncorrectable></volatile></ecc_errors>", "dram"),
    ],
)
def test_a_value_in_no_known_form_is_named(fields: str, named: str) -> None:
    """A word where a number was is kept with its field, and the value counts as unknown."""
    one = parse_smi(xml(fields)).gpus[0]
    assert named in one.unreadable[0]
    assert (one.temperature_c, one.memory_mib, one.remap_pending, one.uncorrectable_volatile) == (None,) * 4


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("<ecc_errors><volatile><double_bit><total>3</total></double_bit></volatile></ecc_errors>", 3),
        ("<ecc_errors><volatile><sram_uncorrectable_parity>1</sram_uncorrectable_parity>"
         "<sram_uncorrectable_secded>2</sram_uncorrectable_secded><dram_uncorrectable>4</dram_uncorrectable>"
         "</volatile></ecc_errors>", 7),
        ("<ecc_errors><volatile><sram_uncorrectable>N/A</sram_uncorrectable></volatile></ecc_errors>", None),
    ],
)  # fmt: skip
def test_uncorrectable_errors_of_every_format_are_counted(fields: str, expected: int | None) -> None:
    """By bits (old cards), by memory (Turing and newer), with the caches apart (newer drivers); N/A is no zero."""
    assert parse_smi(xml(fields)).gpus[0].uncorrectable_volatile == expected


@given(st.text(max_size=200))
def test_what_is_no_answer_of_nvidia_smi_is_told(text: str) -> None:
    """Any other text gives one sentence, never another exception."""
    with pytest.raises(UnreadableError):
        parse_smi(text)


def test_entities_are_refused() -> None:
    """A document that declares entities is not read: they can grow without bound."""
    with pytest.raises(UnreadableError, match="entities"):
        parse_smi('<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log/>')


def test_the_kernel_log_is_read() -> None:
    """Messages with and without a number are events; lines that only look like one are kept apart."""
    events, odd = parse_kernel((FOLDER / "kernel.log").read_text(encoding="utf-8").splitlines())
    assert [event.xid for event in events] == [None, 31, 63, 64, 79, 79, 94, 144, 145, 149, 149, 149, 154, 99999]
    assert events[0] == KernelEvent("0000:18:00.0", None, "GPU has fallen off the bus.")
    assert [event.fatal for event in events[7:12]] == [False, True, True, True, None]
    assert odd == ("NVRM: Xid error: xyz, invalid data",)


@pytest.mark.parametrize(
    ("line", "severity", "cause"),
    [
        ("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", "hardware", "gpu-lost"),
        ("NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus", "hardware", "gpu-lost"),
        ("NVRM: Xid (PCI:0000:05:00): 94, Contained ECC error", "hardware", "gpu-ecc"),
        ("NVRM: Xid (PCI:0000:02:00): 64, Row remapping failure", "hardware", "gpu-memory-worn"),
        ("NVRM: Xid (PCI:0000:04:00): 145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004)", "hardware", "nvlink"),
        ("NVRM: Xid (PCI:0000:04:00): 144, SAW_MVB Nonfatal XC0 i0 Link 00 (0x1)", "program", ""),
        ("NVRM: Xid (PCI:0008:06:00): 149, Placeholder message", "unknown", ""),
        ("NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
         "hardware", "gpu-reset-due"),
        ("NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)",
         "program", ""),
        ("NVRM: Xid (PCI:0000:01:00): 31, pid=123", "program", ""),
        ("NVRM: Xid (PCI:0000:05:00): 99999, unknown error", "unknown", ""),
    ],
)  # fmt: skip
def test_a_number_means_a_part_a_program_or_nothing_known(line: str, severity: str, cause: str) -> None:
    """Hardware numbers have a cause, a program's are none of the node's, unknown ones are never guessed."""
    (event,), _ = parse_kernel([line])
    assert (meaning(event).severity, meaning(event).cause) == (severity, cause)


def test_the_bus_lists_cards_only() -> None:
    """Display controllers of NVIDIA are cards, with or without a domain; its bridges and others' adapters are not."""
    cards = parse_lspci((FOLDER / "lspci.txt").read_text(encoding="utf-8"))
    assert [(card.bus_id, card.device_id) for card in cards] == [("0001:00:00.0", "20b2"), ("0000:01:00.0", "2487")]


def test_nvlinks_are_read_with_those_that_are_down() -> None:
    """Each link has its speed; an inactive one has none."""
    found = parse_nvlink((FOLDER / "nvlink.txt").read_text(encoding="utf-8"))
    assert [list(links.values()) for links in found.values()] == [[25.0, 25.0], [25.0, None]]


@pytest.mark.parametrize("text", ["00000000:2D:00.0", "0000:2d:00", "PCI:0000:2d:00", "0000:2D:00.0"])
def test_all_spellings_of_a_place_are_one(text: str) -> None:
    """nvidia-smi, the kernel and lspci write one bus id in different ways."""
    assert bus_id(text) == "0000:2d:00.0"
