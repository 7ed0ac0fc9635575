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
SLURM_CONF = ("/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf")
NODES, PCI = "/sys/devices/system/node", "/sys/bus/pci/devices"


def simulated(name: str) -> str | None:
    """A file of the simulation, or None where nothing is simulated."""
    return text(SIMULATED + name) if os.path.isdir(SIMULATED) else None


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
    loaded = os.path.exists("/sys/module/nvidia/version")
    module = text("/sys/module/nvidia/version").strip() if loaded else ""
    library = re.search(r"libnvidia-ml\.so\.1 .*=> (\S+)", command("ldconfig", "-p")["stdout"])
    version = re.search(r"\.so\.(\d+\.[\d.]+)$", os.path.realpath(library.group(1))) if library else None
    return {"module": module, "library": version.group(1) if version else ""}


def gpu_numa() -> dict:
    """Which memory node each card and network port is beside, which cores those are, and what Slurm knows of it."""
    recorded = simulated("numa.json")
    if recorded is not None:
        return json.loads(recorded)
    nodes, cards, ports = {}, {}, {}
    for name in sorted(os.listdir(NODES)):
        if re.fullmatch(r"node\d+", name):
            distance = [int(word) for word in text(f"{NODES}/{name}/distance").split()]
            nodes[name[4:]] = {"cpus": text(f"{NODES}/{name}/cpulist").strip(), "distance": distance}
    for name in sorted(os.listdir(PCI)):
        base = f"{PCI}/{name}/"
        # Display controllers of NVIDIA; 0x0302 has no plug for a screen.
        if text(base + "vendor").strip() == "0x10de" and text(base + "class")[:6] in ("0x0300", "0x0302"):
            cards[name] = {
                "node": int(text(base + "numa_node")),
                "cpus": text(base + "local_cpulist").strip(),
            }
    for kind in ("net", "infiniband"):
        folder = f"/sys/class/{kind}"
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if os.path.exists(f"{folder}/{name}/device/numa_node"):
                ports[name] = int(text(f"{folder}/{name}/device/numa_node"))
    # Without its file slurmd would look for slurmctld by DNS, and go on looking.
    files = [path for path in SLURM_CONF if os.path.exists(path)]
    slurmd = command("slurmd", "-f", files[0], "-G") if files else {"stdout": "", "stderr": "no slurm.conf"}
    return {"nodes": nodes, "cards": cards, "ports": ports, "slurmd": slurmd["stdout"] + slurmd["stderr"]}


def gpu_questions() -> dict[str, Callable[[], object]]:
    return {
        "gpu_smi": lambda: command("nvidia-smi", "-q", "-x"),
        "gpu_nvlink": lambda: command("nvidia-smi", "nvlink", "--status"),
        "gpu_kernel": gpu_kernel,
        "gpu_driver": gpu_driver,
        "gpu_numa": gpu_numa,
        "gpu_simulation": lambda: simulated("name") or "",
    }
