"""One node: its files, its end; and the usual kind of it, a full-system container in a network namespace."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from lab import cgroup
from lab.apt import Mirrors
from lab.furnish import furnish
from lab.image import bare
from lab.network import NETNS, processes_in
from lab.plan import NodePlan, Plan
from lab.process import end, launch, recorded, run, with_argument

# The nodes share this machine's kernel: they must not set its clock, load modules, restart it or read its log.
DROPPED = "CAP_SYS_TIME,CAP_SYS_MODULE,CAP_SYS_BOOT,CAP_SYSLOG"
# The overlay is mounted in a mount namespace of the container's own, so that it can't outlive the container.
BOOT = """
set -e
root=$1 lower=$2 upper=$3 work=$4 cgroups=$5
shift 5
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper,workdir=$work" "$root"
for file in $cgroups; do echo $$ > "$file"; done
while rm -f "$upper/REBOOT_MARK"; do
  status=0
  "$@" || status=$?
  [ -e "$upper/REBOOT_MARK" ] || exit $status
done
"""
REBOOT_MARK = "var/lab-reboots"
# Without CAP_SYS_BOOT a container can only end; this unit tells the loop above that it wants to come back.
REBOOT_UNIT = f"""\
[Unit]
Description=Tell the lab that this node reboots
DefaultDependencies=no
Before=reboot.target
[Service]
Type=oneshot
ExecStart=/bin/touch /{REBOOT_MARK}
"""


class NodeFiles:
    """Every path of a node below the lab's state folder."""

    def __init__(self, state: Path, name: str) -> None:
        self.folder = state / "nodes" / name
        self.root = self.folder / "root"
        self.upper = self.folder / "upper"
        self.work = self.folder / "work"
        self.record = self.folder / "process.json"
        self.console = self.folder / "console.log"
        self.host_key = state / "host_keys" / name

    @property
    def argument(self) -> str:
        """The word by which a container of this node is known in the process table."""
        return f"--directory={self.root}"

    @property
    def kernel_argument(self) -> str:
        """The same for a user-mode kernel of this node."""
        return f"uml_dir={self.folder / 'uml'}"


def is_running(state: Path, name: str) -> bool:
    return recorded(NodeFiles(state, name).record) is not None


def start_node(plan: Plan, node: NodePlan, suite: str, mirrors: Mirrors, shared: tuple[str, ...]) -> None:
    """Boot a node that isn't running; its files are as it left them, or bare when it is new."""
    state = Path(plan.state_dir)
    files = NodeFiles(state, node.name)
    stop_node(plan, node)  # what an interrupted `up` had no time to record, or a killed container left
    if not (files.folder / "ready").exists():
        _furnish(plan, node, suite, files, mirrors)
    shutil.rmtree(files.work, ignore_errors=True)
    for path in (files.root, files.work):
        path.mkdir(parents=True, exist_ok=True)
    argv = ["env", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network"]
    argv += ["SYSTEMD_NSPAWN_LOCK=0"]  # a killed container would leave its lock file; the lab has a lock of its own
    argv += ["systemd-nspawn", "--boot", "--quiet", files.argument, f"--machine={node.netns}"]
    argv += [f"--hostname={node.name}", f"--network-namespace-path={NETNS / node.netns}"]
    argv += ["--register=no", "--console=read-only", "--resolv-conf=off", "--timezone=off", "--link-journal=no"]
    argv += ["--capability=all", f"--drop-capability={DROPPED}", "--system-call-filter=@keyring bpf"]
    argv += [f"--bind={device}" for device in ("/dev/fuse", "/dev/net/tun") if Path(device).exists()]
    argv += [f"--bind={state / 'shared' / path.lstrip('/')}:{path}" for path in shared]
    if cgroup.is_by_hand():
        argv.append("--keep-unit")
    folders = [str(files.root), str(bare(suite).path), str(files.upper), str(files.work)]
    groups = " ".join(str(path) for path in cgroup.make(plan.instance.group, node.name))
    wrapper = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        BOOT.replace("REBOOT_MARK", REBOOT_MARK),
        "boot",
        *folders,
        groups,
    ]
    with files.console.open("ab") as log:
        launch([*wrapper, *argv], files.record, log)


def _furnish(plan: Plan, node: NodePlan, suite: str, files: NodeFiles, mirrors: Mirrors) -> None:
    """What makes a node this node, laid over the image."""
    shutil.rmtree(files.folder, ignore_errors=True)
    furnish(plan, node, suite, files.upper, files.host_key, mirrors)
    units = files.upper / "etc" / "systemd" / "system"
    (units / "reboot.target.wants").mkdir(parents=True)
    (units / "lab-reboots.service").write_text(REBOOT_UNIT)
    (units / "reboot.target.wants" / "lab-reboots.service").symlink_to("../lab-reboots.service")
    (files.folder / "ready").touch()


def make_key(path: Path, comment: str) -> None:
    """An ed25519 key pair at `path` unless it is there; made elsewhere and renamed, so that a half one never counts."""
    if path.exists() and Path(f"{path}.pub").exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    for old in (new, Path(f"{new}.pub")):
        old.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(new)])
    Path(f"{new}.pub").rename(f"{path}.pub")
    new.rename(path)


def stop_node(plan: Plan, node: NodePlan) -> None:
    """End a node at once, as a power cut would."""
    files = NodeFiles(Path(plan.state_dir), node.name)
    pid = recorded(files.record)
    started = (*with_argument(files.argument), *with_argument(files.kernel_argument))
    end({*started, *([pid] if pid else [])})
    end(processes_in(node.netns))  # a container's own init, or a kernel's processes, outlive what started them
    cgroup.remove(plan.instance.group, node.name)
    _remove_empty_folders(node.netns)


def _remove_empty_folders(machine: str) -> None:
    """systemd-nspawn's own leftovers of a killed container: empty folders named after it."""
    for folder in Path("/run/systemd/nspawn").glob(f"*/{machine}"):
        with suppress(OSError):
            folder.rmdir()
