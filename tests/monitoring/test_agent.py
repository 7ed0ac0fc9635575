"""The agent's parsers on recorded answers, and that one bad answer costs only itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "files" / "monitoring"

CARD = """<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>550.163</driver_version>
<gpu id="00000000:1E:00.0"><product_name>NVIDIA X</product_name><uuid>GPU-1</uuid>
<pci><replay_counter>3</replay_counter><pci_gpu_link_info><pcie_gen><current_link_gen>1</current_link_gen></pcie_gen>
<link_widths><current_link_width>8x</current_link_width><max_link_width>16x</max_link_width></link_widths>
</pci_gpu_link_info></pci>
<clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
<clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
<clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown></clocks_event_reasons>
<fb_memory_usage><total>1024 MiB</total><used>256 MiB</used></fb_memory_usage>
<utilization><gpu_util>37 %</gpu_util></utilization>
<ecc_errors><volatile><sram_correctable>2</sram_correctable><sram_uncorrectable>0</sram_uncorrectable>
<dram_correctable>5</dram_correctable><dram_uncorrectable>1</dram_uncorrectable></volatile>
<aggregate><dram_uncorrectable>9</dram_uncorrectable></aggregate></ecc_errors>
<remapped_rows><remapped_row_pending>Yes</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
</remapped_rows>
<temperature><gpu_temp>71 C</gpu_temp></temperature>
<gpu_power_readings><power_draw>N/A</power_draw></gpu_power_readings>
<processes><process_info><pid>7</pid><used_memory>100 MiB</used_memory></process_info>
<process_info><pid>8</pid><used_memory>50 MiB</used_memory></process_info></processes></gpu></nvidia_smi_log>"""
MOUNTSTATS = """device /dev/sda mounted on / with fstype ext4
device head:/srv mounted on /home with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tper-op statistics
\t        READ: 100 102 0 20000 400000 50 1500 1600 0
\t       WRITE: 10 10 0 400000 2000 5 500 510 0
"""


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program as it runs on a node, with its neighbour beside it."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    import agent as program  # type: ignore[import-not-found]

    yield program
    for name in ("agent", "agent_gpu"):
        sys.modules.pop(name, None)


def _values(samples: list[Any], name: str) -> dict[tuple[str, ...], float]:
    return {tuple(labels.values()): value for found, labels, value in samples if found == name}


def test_a_card_is_read(agent: ModuleType) -> None:
    """Utilisation, memory, errors since the driver was loaded, faults that slow it down, and who holds it."""
    samples = agent.agent_gpu.parse_gpus(CARD, lambda pid: ("alex", "42"))
    assert _values(samples, "gpu_info") == {("0", "NVIDIA X", "GPU-1", "0000:1e:00", "550.163"): 1}
    assert _values(samples, "gpu_utilization_ratio") == {("0",): 0.37}
    assert _values(samples, "gpu_ecc_errors") == {("0", "uncorrected"): 1, ("0", "corrected"): 7}
    assert _values(samples, "gpu_throttled") == {("0", "heat"): 1}
    assert _values(samples, "gpu_remap_trouble") == {("0", "pending"): 1, ("0", "failure"): 0}
    assert _values(samples, "gpu_process_memory_bytes") == {("0", "alex", "42"): 150 * 2**20}
    assert _values(samples, "gpu_power_watts") == {}, "N/A is no number"
    assert _values(samples, "gpu_pcie_width_max") == {("0",): 16}


def test_a_card_without_any_field_is_counted(agent: ModuleType) -> None:
    """Whatever an unknown card leaves out, it is there."""
    samples = agent.agent_gpu.parse_gpus('<nvidia_smi_log><gpu id="x"/></nvidia_smi_log>', lambda pid: ("", ""))
    assert _values(samples, "gpus_found") == {(): 1}


def test_the_kernels_lines_are_counted(agent: ModuleType) -> None:
    """Xids by card and number; a card off the bus is one, in either of the driver's spellings."""
    lines = (
        "NVRM: Xid (PCI:0000:1E:00): 63, Row remapping pending\n"
        "NVRM: Xid (PCI:0000:1e:00): 63, again\n"
        "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.\n"
        "NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus\n"
        "something else\n"
    )
    samples = agent.agent_gpu.parse_kernel(lines)
    assert _values(samples, "gpu_xid_total") == {("0000:1e:00", "63"): 2, ("0000:03:00", "79"): 1}
    assert _values(samples, "gpu_fallen_total") == {("0000:18:00",): 1, ("0000:03:00",): 1}


def test_nfs_is_summed_over_its_operations(agent: ModuleType) -> None:
    """Operations, requests sent again, and seconds from request to answer; other file systems are left out."""
    samples = agent.parse_mountstats(MOUNTSTATS)
    assert _values(samples, "nfs_operations_total") == {("/home",): 110}
    assert _values(samples, "nfs_retransmissions_total") == {("/home",): 2}
    assert _values(samples, "nfs_response_seconds_total") == {("/home",): 2.0}


def test_services_that_must_run_and_those_that_are_enabled(agent: ModuleType) -> None:
    """A unit that must run is told even if it does not exist; another one only where it is enabled."""
    text = (
        "Id=munge.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n\n"
        "Id=slapd.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=sssd.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=disabled\n"
    )
    samples = agent.parse_services(text, {"munge.service"})
    assert _values(samples, "service_active") == {("munge.service",): 0, ("slapd.service",): 1}


def test_time_is_read_from_chrony(agent: ModuleType) -> None:
    """A daemon without a source is not synchronised, whatever offset it prints."""
    fine = "0A4D000A,10.77.0.10,11,1796048729.6,0.002,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,Normal\n"
    assert _values(agent.parse_tracking(fine), "time_synchronised") == {(): 1}
    assert _values(agent.parse_tracking(fine), "time_offset_seconds") == {(): 0.002}
    lost = "00000000,,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,Not synchronised\n"
    assert _values(agent.parse_tracking(lost), "time_synchronised") == {(): 0}


def test_one_question_that_fails_costs_only_its_own_answer(agent: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are answered, and the file says which one was not."""

    def broken() -> list[Any]:
        raise OSError("no such program")

    asked = {"bad": (0, broken), "good": (0, lambda: [("gpus_expected", {}, 2.0)])}
    monkeypatch.setattr(agent, "questions", lambda config: asked)
    text = agent.Agent({}).round()
    assert 'klaster_agent_question_succeeded{question="bad"} 0\n' in text
    assert 'klaster_agent_question_succeeded{question="good"} 1\n' in text
    assert "klaster_gpus_expected{} 2\n" in text


def test_every_sample_has_a_help_text(agent: ModuleType) -> None:
    """A name without a help text would end the round; all names of the GPU parser have one."""
    samples = agent.agent_gpu.parse_gpus(CARD, lambda pid: ("alex", "42")) + agent.parse_mountstats(MOUNTSTATS)
    assert {name for name, _, _ in samples} - set(agent.HELP) == set()
    assert 'user="a\\"b"' in agent.text_format([("gpu_process_memory_bytes", {"user": 'a"b'}, 1.0)])
