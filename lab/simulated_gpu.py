"""Give a lab node recorded NVIDIA hardware: an nvidia-smi that repeats a recording and says that it is simulated."""

from __future__ import annotations

import base64
import io
import shlex
import tarfile
from pathlib import Path
from xml.etree import ElementTree

from inventory.hardware import SIMULATED
from lab.errors import LabError
from lab.plan import NodePlan, Plan
from lab.process import run
from lab.ssh import ssh_command

RECORDINGS = Path("tests/recordings/nvidia/nodes")
NEEDED = ("mode", "smi.xml", "kernel.log", "driver.json", "load.json", "numa.json")
FOLDER = "etc/klaster-lab/gpu"
PROGRAM = "usr/local/bin/nvidia-smi"
MOST_CARDS = 16
"""Slurm hands out files only: as many lie in the folder, whatever the recording says."""
NOTHING = "none"
"""What is asked for to take the cards out again."""

# In /usr/local/bin it comes before the driver's own. What was not recorded fails: it must not look like an answer.
SCRIPT = f"""\
#!/bin/sh
# A SIMULATION: repeats what is recorded in /{FOLDER}.
cd /{FOLDER} || exit 9
case $(cat mode) in
  hangs) exec sleep 86400 ;;
  mismatch) echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18 ;;
esac
case "$*" in
  '-q -x') cat smi.xml ;;
  'nvlink --status') ;;
  --query-gpu=index,name,uuid,memory.total,pci.bus_id*) cat query.csv ;;
  *) echo "SIMULATED nvidia-smi has no recording of: $*" >&2; exit 2 ;;
esac
"""


def recordings(folder: Path = RECORDINGS) -> list[str]:
    """Names that `bin/lab gpu` takes."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def simulation(name: str, folder: Path = RECORDINGS) -> dict[str, str]:
    """Path below / → content, for the recording `name` or a folder's path; every UUID says that it is simulated."""
    path = Path(name) if "/" in name else folder / name
    missing = [file for file in NEEDED if not (path / file).is_file()]
    if missing:
        valid = ", ".join(recordings(folder))
        raise LabError(f"{path} is no recording of a node with GPUs ({', '.join(missing)} missing); there are: {valid}")
    files = {file: (path / file).read_text(encoding="utf-8").replace("GPU-", SIMULATED) for file in NEEDED}
    files |= {"name": f"{path.name}\n", "query.csv": query(files["smi.xml"])}
    return {PROGRAM: SCRIPT, **{f"{FOLDER}/{file}": text for file, text in files.items()}}


def query(smi_xml: str) -> str:
    """What `nvidia-smi --query-gpu=index,name,uuid,memory.total,pci.bus_id` gives for the same cards."""
    rows = []
    for index, gpu in enumerate(ElementTree.fromstring(smi_xml).findall("gpu")):  # noqa: S314 - a file of ours
        memory = (gpu.findtext("fb_memory_usage/total") or "0 MiB").split()[0]
        fields = (gpu.findtext("product_name"), gpu.findtext("uuid"), memory, gpu.findtext("pci/pci_bus_id"))
        rows.append(", ".join([str(index), *(str(field) for field in fields)]))
    return "".join(f"{row}\n" for row in rows)


def put_in(plan: Plan, node: NodePlan, name: str) -> None:
    """Lay the recording into a running node, in place of the one before; `none` takes it out."""
    clear = f"rm -rf /{FOLDER} /{PROGRAM}"
    if name == NOTHING:
        run(ssh_command(plan, node, [clear]))
        return
    packed = base64.b64encode(_tar(simulation(name))).decode()
    script = f"{clear}; base64 -d | tar -x -C / -f - && chown -R root:root /{FOLDER} /{PROGRAM}"
    run(ssh_command(plan, node, ["sh", "-c", shlex.quote(script)]), text_in=packed)


def _tar(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for index in range(MOST_CARDS):
            link = tarfile.TarInfo(f"{FOLDER}/dev/nvidia{index}")
            link.type, link.linkname = tarfile.SYMTYPE, "/dev/null"  # a device that opens, whoever asks
            archive.addfile(link)
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            data = text.encode()
            member.size, member.mode = len(data), 0o755 if path == PROGRAM else 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
