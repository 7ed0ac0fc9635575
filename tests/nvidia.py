"""Write the recordings of simulated NVIDIA nodes; refresh them with `python -m tests.nvidia`.

What a healthy node of eight cards says was put together from facts of real recordings (an A10G's); each other node is
that one with one thing changed. A folder holds what `bin/lab gpu NODE RECORDING` lays into a node.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

FOLDER = Path(__file__).parent / "recordings" / "nvidia"
DRIVER, OTHER_DRIVER = "550.163.01", "550.144.03"
MODEL, MEMORY_MIB = "NVIDIA A10G", 23028


def uuid(index: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{index:012d}"


def bus(index: int) -> str:
    return f"00000000:{0x1B + index:02X}:00.0"


@dataclass
class Recorded:
    """One simulated node: the files of its folder, before they are text."""

    cards: list[dict[str, str]]
    kernel: list[str] = field(default_factory=list)
    driver: dict[str, str] = field(default_factory=lambda: {"module": DRIVER, "library": DRIVER})
    load: dict[str, Any] = field(default_factory=dict)
    numa: dict[str, Any] = field(default_factory=dict)
    mode: str = "answers"
    """answers, hangs, or mismatch: what nvidia-smi does."""


def card(index: int) -> dict[str, str]:
    """Path below <gpu> → text."""
    return {
        "product_name": MODEL,
        "product_architecture": "Ampere",
        "display_active": "Disabled",
        "mig_mode/current_mig": "N/A",
        "uuid": uuid(index),
        "pci/pci_bus_id": bus(index),
        "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "4",
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "1",  # at rest; normal
        "pci/pci_gpu_link_info/link_widths/max_link_width": "16x",
        "pci/pci_gpu_link_info/link_widths/current_link_width": "16x",
        "fb_memory_usage/total": f"{MEMORY_MIB} MiB",
        "ecc_mode/current_ecc": "Enabled",
        "ecc_errors/volatile/sram_uncorrectable": "0",
        "ecc_errors/volatile/dram_uncorrectable": "0",
        "ecc_errors/aggregate/sram_uncorrectable": "0",
        "ecc_errors/aggregate/dram_uncorrectable": "0",
        "remapped_rows/remapped_row_unc": "0",
        "remapped_rows/remapped_row_pending": "No",
        "remapped_rows/remapped_row_failure": "No",
        "temperature/gpu_temp": "27 C",
        "temperature/gpu_temp_slow_threshold": "95 C",
        "gpu_power_readings/power_draw": "25.58 W",
        "gpu_power_readings/current_power_limit": "300.00 W",
        "gpu_power_readings/default_power_limit": "300.00 W",
        "clocks/sm_clock": "210 MHz",
        "max_clocks/sm_clock": "1710 MHz",
        "clocks_event_reasons/clocks_event_reason_hw_slowdown": "Not Active",
        "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown": "Not Active",
    }


def worked(index: int) -> dict[str, Any]:
    """What payloads/gpu_load.py would say of a card: made up for the simulation, no measurement."""
    return {
        "index": index,
        "name": MODEL,
        "uuid": uuid(index),
        "bus_id": bus(index),
        "gemm_tflops": {"bf16": 60.0 + 0.1 * index, "fp32": 14.0, "tf32": 32.0},
        "gemm_ok": {"bf16": True, "fp32": True, "tf32": True},
        "memory_gbytes_s": 500.0 + index,
        "h2d_gbytes_s": 24.0,
        "d2h_gbytes_s": 25.0,
        "under_load": {
            "link_gen": 4,
            "link_width": 16,
            "sm_clock_mhz": 1695,
            "temperature_c": 68,
            "power_w": 290.0,
            "slowed_by": ["sw_power_cap"],
        },
    }


def places(count: int) -> dict[str, Any]:
    """Two sockets of 32 cores with half of the cards each, the network's port at the first; made up."""
    cpus = ("0-31", "32-63")
    side = [index * 2 // count for index in range(count)]
    return {
        "nodes": {"0": {"cpus": cpus[0], "distance": [10, 21]}, "1": {"cpus": cpus[1], "distance": [21, 10]}},
        "cards": {bus(index)[4:].lower(): {"node": side[index], "cpus": cpus[side[index]]} for index in range(count)},
        "ports": {"eth0": 0},
        "slurmd": slurmd({index: cpus[side[index]] for index in range(count)}),
    }


def slurmd(cores: dict[int, str]) -> str:
    """`slurmd -G`: a line for cards with the same cores."""
    lines = []
    for some in dict.fromkeys(cores.values()):
        cards = ",".join(str(index) for index, own in cores.items() if own == some)
        lines.append(f"slurmd: Gres Name=gpu Type=(null) Count={cards.count(',') + 1} Index=0 ID=7696487 "
                     f"File=/dev/nvidia[{cards}] Cores={some} CoreCnt=64 Links=(null) Flags=HAS_FILE\n")  # fmt: skip
    return "".join(lines)


def healthy(count: int = 8) -> Recorded:
    peers = [
        {"src": src, "dst": dst, "gbytes_s": 20.0, "ok": True, "error": ""}
        for src in range(count)
        for dst in range(count)
        if src != dst
    ]
    load = {"torch": "simulated", "cards": [worked(i) for i in range(count)], "peers": peers, "kernel": []}
    return Recorded([card(index) for index in range(count)], load=load, numa=places(count))


LOST = 5
"""The card that things happen to."""


def _without_lost(node: Recorded) -> None:
    del node.cards[LOST]
    node.load["cards"] = [one for one in node.load["cards"] if one["index"] != LOST]
    node.load["peers"] = [one for one in node.load["peers"] if LOST not in (one["src"], one["dst"])]
    del node.numa["cards"][bus(LOST)[4:].lower()]
    node.numa["slurmd"] = ""  # slurmd does not start without one of its cards


def _xid_79(node: Recorded) -> None:
    node.kernel.append(f"[ 812.1] NVRM: Xid (PCI:{bus(LOST)[4:16].lower()}): 79, GPU has fallen off the bus.")
    node.kernel.append(f"[ 812.1] NVRM: GPU {bus(LOST)[4:].lower()}: GPU has fallen off the bus.")


def _ecc(node: Recorded) -> None:
    node.cards[LOST]["ecc_errors/volatile/dram_uncorrectable"] = "2"
    node.cards[LOST]["ecc_errors/aggregate/dram_uncorrectable"] = "2"


def _gen1(node: Recorded) -> None:
    node.load["cards"][LOST]["under_load"]["link_gen"] = 1
    node.load["cards"][LOST]["h2d_gbytes_s"] = 3.2


def _mismatch(node: Recorded) -> None:
    node.mode, node.driver = "mismatch", {"module": OTHER_DRIVER, "library": DRIVER}


def _hangs(node: Recorded) -> None:
    node.mode = "hangs"


def _unknown(node: Recorded) -> None:
    for one in node.cards:
        one["product_name"], one["product_architecture"] = "Graphics Device", ""


def _unknown_value(node: Recorded) -> None:
    node.cards[LOST]["remapped_rows/remapped_row_pending"] = "ERR!"


def _slow(node: Recorded) -> None:
    node.load["cards"][LOST]["gemm_tflops"]["bf16"] = 41.0


def _wrong_results(node: Recorded) -> None:
    node.load["cards"][LOST]["gemm_ok"]["bf16"] = False


def _p2p(node: Recorded) -> None:
    node.load["peers"][0] |= {"ok": False, "gbytes_s": 0.0, "error": "no end in 20 s"}


def _slow_copies(node: Recorded) -> None:
    next(one for one in node.load["peers"] if (one["src"], one["dst"]) == (0, LOST))["gbytes_s"] = 5.0


def _far_cores(node: Recorded) -> None:
    node.numa["slurmd"] = slurmd({index: "0-31" if index < 4 or index == LOST else "32-63" for index in range(8)})


def _hot(node: Recorded) -> None:
    node.load["cards"][LOST]["under_load"] |= {"slowed_by": ["hw_thermal_slowdown"], "temperature_c": 97}


def _program(node: Recorded) -> None:
    node.kernel.append(f"[ 99.0] NVRM: Xid (PCI:{bus(0)[4:16].lower()}): 31, pid=812, name=python3, MMU Fault")


CHANGES: dict[str, Callable[[Recorded], None]] = {
    "eight": lambda node: None,
    "seven-of-eight": _without_lost,
    "xid-79": _xid_79,
    "ecc-uncorrectable": _ecc,
    "gen1-under-load": _gen1,
    "driver-mismatch": _mismatch,
    "hangs": _hangs,
    "unknown-card": _unknown,
    "unknown-value": _unknown_value,
    "slow-card": _slow,
    "wrong-results": _wrong_results,
    "broken-p2p": _p2p,
    "slow-copies": _slow_copies,
    "far-cores": _far_cores,
    "hot": _hot,
    "program-fault": _program,
}


def recorded(name: str) -> Recorded:
    node = healthy()
    CHANGES[name](node)
    return node


def smi_xml(node: Recorded) -> str:
    root = ElementTree.Element("nvidia_smi_log")
    for tag, text in (("driver_version", DRIVER), ("cuda_version", "12.4"), ("attached_gpus", str(len(node.cards)))):
        ElementTree.SubElement(root, tag).text = text
    for one in node.cards:
        gpu = ElementTree.SubElement(root, "gpu", id=one["pci/pci_bus_id"])
        for path, text in one.items():
            place = gpu
            for part in path.split("/"):
                found = place.find(part)
                place = ElementTree.SubElement(place, part) if found is None else found
            place.text = text
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" ?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def files(name: str) -> dict[str, str]:
    """The files of the folder of one of CHANGES."""
    return files_of(recorded(name))


def files_of(node: Recorded) -> dict[str, str]:
    """The files of a simulated node's folder."""
    return {
        "mode": f"{node.mode}\n",
        "smi.xml": smi_xml(node),
        "kernel.log": "".join(f"{line}\n" for line in node.kernel),
        "driver.json": json.dumps(node.driver, indent=1) + "\n",
        "load.json": json.dumps(node.load) + "\n",
        "numa.json": json.dumps(node.numa, indent=1) + "\n",
    }


def main() -> None:
    for name in CHANGES:
        folder = FOLDER / "nodes" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files(name).items():
            (folder / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
