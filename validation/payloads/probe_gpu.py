"""The probe's questions about NVIDIA cards: sent before probe.py, as one program with it, to nodes that have any."""

import json
import os
import re
from collections.abc import Callable

TYPE_CHECKING = False  # the real one is not in the smallest Python
if TYPE_CHECKING:
    from probe import command, text

SIMULATED = "/etc/klaster-lab/gpu/"
"""In a rehearsal's node: recorded hardware; the real files of this machine are not a card's then."""


def simulated(name: str) -> str | None:
    """A file of the simulation, or None where nothing is simulated."""
    return text(SIMULATED + name) if os.path.isdir(SIMULATED) else None  # noqa: PTH112 - the smallest Python has no pathlib


def gpu_kernel() -> str:
    """What NVIDIA's driver has written into the kernel log."""
    recorded = simulated("kernel.log")
    if recorded is None:
        found = command("dmesg")
        if found["status"] != 0:
            raise RuntimeError(found["stderr"].strip())
        recorded = found["stdout"]
    return "\n".join(line for line in recorded.splitlines() if "NVRM:" in line)


def gpu_driver() -> dict:
    """Versions of the loaded kernel module and of the installed library; an empty text where there is none."""
    recorded = simulated("driver.json")
    if recorded is not None:
        return json.loads(recorded)
    loaded = os.path.exists("/sys/module/nvidia/version")  # noqa: PTH110 - as above
    module = text("/sys/module/nvidia/version").strip() if loaded else ""
    library = re.search(r"libnvidia-ml\.so\.1 .*=> (\S+)", command("ldconfig", "-p")["stdout"])
    version = re.search(r"\.so\.(\d+\.[\d.]+)$", os.path.realpath(library.group(1))) if library else None
    return {"module": module, "library": version.group(1) if version else ""}


def gpu_questions() -> dict[str, Callable[[], object]]:
    return {
        "gpu_smi": lambda: command("nvidia-smi", "-q", "-x"),
        "gpu_nvlink": lambda: command("nvidia-smi", "nvlink", "--status"),
        "gpu_kernel": gpu_kernel,
        "gpu_driver": gpu_driver,
        "gpu_simulation": lambda: simulated("name") or "",
    }
