"""The other kind of node: a Linux kernel of its own as an ordinary process (user-mode Linux).

What containers share with this machine it has for itself: kernel, clock, memory limits, NFS, quotas, disks, reboots.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from lab.apt import Mirrors
from lab.furnish import furnish
from lab.image import SUITES
from lab.network import in_netns
from lab.node import NodeFiles, stop_node
from lab.plan import NodePlan, Plan
from lab.process import launch
from lab.uml_image import KERNEL, make_file_system

MEMORY_MIB = 1536
BLANK_MIB, PREPARED_MIB = 4096, 2048


def image_of(plan: Plan, node: NodePlan) -> Path | None:
    """The image that a node was begun on: its own disk is a layer over that one, whatever the recipe says today."""
    files = NodeFiles(Path(plan.state_dir), node.name)
    begun = files.folder / "ready"
    return Path(begun.read_text()) if begun.exists() else None


def start_node(plan: Plan, node: NodePlan, build: Callable[[], Path], mirrors: Mirrors) -> None:
    """Boot a node that isn't running; its disks are as it left them, or fresh, on the image that `build` gives."""
    files = NodeFiles(Path(plan.state_dir), node.name)
    stop_node(plan, node)
    disk = image_of(plan, node)
    if disk is None:
        disk = build()
        _prepare(plan, node, files, mirrors)
        (files.folder / "ready").write_text(str(disk))
    shutil.rmtree(files.folder / "uml", ignore_errors=True)  # of a killed kernel: the next one would be named anew
    with files.console.open("ab") as log:
        launch(in_netns(node.netns, *kernel_words(node, files, disk)), files.record, log)


def kernel_words(node: NodePlan, files: NodeFiles, disk: Path) -> list[str]:
    """The kernel's command line: disks, plugs, names. ubdb is blank, ubdc has a file system that a person prepared."""
    here = files.folder
    return [
        str(KERNEL), f"mem={MEMORY_MIB}M", files.kernel_argument, f"umid={node.name}",
        f"ubda={here / 'root.cow'},{disk}", f"ubdb={here / 'blank.img'}", f"ubdc={here / 'prepared.img'}",
        f"ubddr={here / 'own.tar'}", "root=/dev/ubda", "rw", "quiet",
        *(
            f"vec{number}:transport=raw,ifname={port.inner},depth=128,gro=1,mac={port.mac},mtu={port.mtu}"
            for number, port in enumerate(node.ports)
        ),
        "con=null", "con0=null,fd:1", f"systemd.hostname={node.name}",
        f"systemd.machine_id={(here / 'own' / 'etc' / 'machine-id').read_text().strip()}",
    ]  # fmt: skip


def network_batch(plan: Plan, node: NodePlan) -> str:
    """What `ip -batch` does at boot."""
    lines = []
    for number, port in enumerate(node.ports):
        lines.append(f"addr replace {port.address}/{port.prefix} dev vec{number}")
        lines.append(f"link set vec{number} mtu {port.mtu} up")
    return "\n".join([*lines, f"route replace default via {plan.bridges[0].gateway}"]) + "\n"


def _prepare(plan: Plan, node: NodePlan, files: NodeFiles, mirrors: Mirrors) -> None:
    """Fresh disks, and a tar with the node's own files, which it unpacks at its first boot."""
    shutil.rmtree(files.folder, ignore_errors=True)
    own = files.folder / "own"
    own.mkdir(parents=True)
    furnish(plan, node, SUITES[0], own, files.host_key, mirrors)
    (own / "etc" / "lab-network").write_text(network_batch(plan, node))
    (files.folder / "own.tar").write_bytes(_tar(own))
    make_file_system(files.folder / "prepared.img", PREPARED_MIB, quota=True)
    with (files.folder / "blank.img").open("wb") as blank:
        blank.truncate(BLANK_MIB << 20)


def _tar(folder: Path) -> bytes:
    """All files of the folder, and root's .ssh with its mode; other folders are as the image has them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() or path.name == ".ssh":
                archive.add(path, str(path.relative_to(folder)), recursive=False)
    return buffer.getvalue()
