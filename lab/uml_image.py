"""The disk that user-mode nodes start from: a *warm* image, with the packages of a cluster installed and not running.

A fork costs 20 ms in a user-mode kernel: installing the packages there would take an hour, natively it takes minutes.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from lab.apt import Mirrors
from lab.errors import LabError
from lab.image import FINISH, IMAGES, PACKAGES, Recipe, build_image
from lab.process import run

KERNEL = Path("/usr/bin/linux.uml")
MODULES = Path("/usr/lib/uml/modules")
HOST_PACKAGES = ("user-mode-linux", "ethtool", "e2fsprogs", "kmod")
"""What this machine needs for it, besides what every lab needs."""
DISK_GIB = 12

WARM = (
    # every node
    "chrony", "curl", "nftables", "munge", "sssd-ldap", "sssd-tools", "libnss-sss", "libpam-sss", "slurm-client",
    "slurmd", "libpam-slurm", "libpam-slurm-adopt", "nfs-common", "acl", "cachefilesd", "fio", "e2fsprogs",
    "python3-torch", "python3-numpy",
    # the controller
    "slapd", "ldap-utils", "mariadb-server", "slurmdbd", "slurmctld", "nfs-kernel-server", "quota",
)  # fmt: skip
SERVICES = (
    "chrony", "munge", "sssd", "slurmd", "slapd", "mariadb", "slurmdbd", "slurmctld", "nfs-server", "rpcbind.socket",
    "rpcbind", "nfs-blkmap", "cachefilesd", "nftables", "rpc-statd-notify", "e2scrub_reap", "e2scrub_all.timer",
    "man-db.timer", "dpkg-db-backup.timer", "logrotate.timer", "apt-daily.timer", "fstrim.timer",
)  # fmt: skip
# The numbers that the deploy would give: a package that finds its account takes it.
ACCOUNTS = ("munge:902", "slurm:64030")
# Nobody reads manuals in there, and a build that is killed begins anew: what dpkg would sync to disk can be lost.
OPTIONS = (
    "--dpkgopt=force-unsafe-io",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")),
)
FURNISH = """\
[Unit]
Description=Take this node's own files from the disk that the lab gave it
DefaultDependencies=no
RequiresMountsFor=/
After=systemd-remount-fs.service
Before=sysinit.target ssh.service lab-network.service
ConditionPathExists=!/etc/lab-furnished

[Service]
Type=oneshot
ExecStart=/bin/tar -x --no-same-owner --no-overwrite-dir -C / -f /dev/ubdd
ExecStart=/bin/touch /etc/lab-furnished

[Install]
WantedBy=sysinit.target
"""
NETWORK = """\
[Unit]
Description=Give the plugs the addresses of the lab's plan
DefaultDependencies=no
Requires=lab-furnish.service
After=lab-furnish.service
Before=network.target network-online.target
Wants=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/ip -batch /etc/lab-network

[Install]
WantedBy=multi-user.target
"""


def _unit(name: str, text: str) -> str:
    return f'printf %s {shlex.quote(text)} > "$1"/etc/systemd/system/{name}'


def recipe() -> Recipe:
    """The warm image as mmdebstrap builds it: nothing of it starts before a deploy says so."""
    numbers = (account.split(":") for account in ACCOUNTS)
    before = tuple(
        f'echo {name}:x:{uid}:{uid}::/nonexistent:/usr/sbin/nologin >> "$1"/etc/passwd; '
        f'echo \'{name}:!:20000::::::\' >> "$1"/etc/shadow; echo {name}:x:{uid}: >> "$1"/etc/group'
        for name, uid in numbers
    )
    services = " ".join(SERVICES)
    finish = (
        f'for unit in {services}; do chroot "$1" systemctl -q disable $unit 2>/dev/null || true; done',
        'rm -f "$1"/etc/munge/munge.key; rm -rf "$1"/var/lib/apt/lists/*_* "$1"/var/cache/apt/archives/*.deb',
        _unit("lab-furnish.service", FURNISH),
        _unit("lab-network.service", NETWORK),
        'chroot "$1" systemctl -q enable lab-furnish.service lab-network.service',
        'ln -sf /dev/null "$1"/etc/systemd/system/systemd-networkd-wait-online.service',
        ': > "$1"/etc/machine-id',  # empty, not missing: else the first boot would switch every service on
        "echo '/dev/ubda / ext4 defaults,noatime 0 1' > \"$1\"/etc/fstab",
    )
    return Recipe((*PACKAGES, *WARM), (*FINISH, *finish), before, options=OPTIONS, takes="four minutes")


def kernel_release() -> str:
    """The kernel whose modules are installed here; LabError if user-mode-linux is not."""
    found = sorted(path.name for path in MODULES.iterdir()) if MODULES.is_dir() else []
    if not found or not KERNEL.exists():
        raise LabError('user-mode-linux is not installed: run "bin/lab up INVENTORY", which installs it')
    return found[-1]


def build_disk(url: str, mirrors: Mirrors, say: Callable[[str], None]) -> Path:
    """The image as a file with an ext4 file system, built if it isn't there yet."""
    release, plan = kernel_release(), recipe()
    disk = IMAGES / f"{plan.hash}-{release}.ext4"
    if disk.exists():
        return disk
    folder = build_image(plan, url, mirrors, say)
    modules = folder / "usr" / "lib" / "modules" / release
    shutil.copytree(MODULES / release, modules, dirs_exist_ok=True)
    run(["depmod", "-b", str(folder), release])
    say("making a disk of it")
    new = IMAGES / f"building-{plan.hash}.ext4-{os.getpid()}"
    make_file_system(new, DISK_GIB * 1024, folder=folder)
    new.rename(disk)
    shutil.rmtree(folder)
    return disk


def make_file_system(path: Path, size_mib: int, *, folder: Path | None = None, quota: bool = False) -> None:
    """A sparse file with ext4 in it, which holds the folder's content."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(size_mib << 20)
    words = ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"]
    words += ["-O", "quota"] if quota else []
    words += ["-d", str(folder)] if folder else []
    run([*words, str(path)], timeout_s=900)
