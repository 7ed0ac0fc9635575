"""Faults of a running rank, and of the storage that it stands on."""

from __future__ import annotations

import posixpath
from contextlib import suppress
from pathlib import Path

from lab.errors import CommandFailed, LabError
from lab.fault_model import Fault, Memory, Site
from lab.fault_system import attempt
from lab.process import end, launch, recorded, run

HOOK = Path(__file__).with_name("fault_hook.py")
PLACEHOLDER = 'WHAT, AT, EVERY = "", 0, 0'
AT_STEP = 10
"""A short training of a quick run has so many steps."""
EACH_STEP, RARELY = 9, 9_000
"""The small model of the training stage multiplies about nine times a step."""
FOLDERS = "ls -d /usr/lib/python3/dist-packages /opt/*/lib/python3*/site-packages 2>/dev/null || true"


# --- a hook in the node's Python ----------------------------------------------------------------------------------


def hook_text(what: str, at: int, every: int) -> str:
    """The hook's file with its orders."""
    text = HOOK.read_text(encoding="utf-8")
    assert PLACEHOLDER in text
    return text.replace(PLACEHOLDER, f'WHAT, AT, EVERY = "{what}", {at}, {every}', 1)


def _module(site: Site) -> str:
    return f"klaster_rehearsal_{site.name}".replace("-", "_")


def _folders_before(site: Site) -> Memory:
    return {"folders": site.sh(FOLDERS).split()}


def hooked(name: str, sentence: str, what: str, *, at: int = AT_STEP, every: int = 0) -> Fault:
    """A fault that the hook brings about from within the rank."""

    def put(site: Site) -> None:
        for folder in _folders_before(site)["folders"]:
            module = site.path(folder) / f"{_module(site)}.py"
            module.write_text(hook_text(what, at, every), encoding="utf-8")
            module.with_suffix(".pth").write_text(f"import {_module(site)}\n", encoding="utf-8")

    def undo(site: Site, memory: Memory) -> None:
        for folder in memory["folders"]:
            for suffix in (".pth", ".py"):
                (site.path(folder) / f"{_module(site)}{suffix}").unlink(missing_ok=True)

    return Fault(name, sentence, put, undo, _folders_before)


# --- shared storage that hangs or is gone -------------------------------------------------------------------------

# Mounts a file system of this very program's over the path and never answers: whoever looks waits.
STUCK = """
import ctypes, os, sys, time
fd = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if libc.mount(b"klaster-stuck", sys.argv[1].encode(), b"fuse", 0, options):
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
while True:
    time.sleep(3600)
"""
ASIDE = "/run/klaster-fault-storage"


def _storage(site: Site) -> str:
    """The first storage that the lab gives its nodes."""
    top = Path(site.plan.state_dir) / "shared"
    path, found = top, ""
    while path.is_dir() and (below := sorted(p for p in path.iterdir() if p.is_dir())):
        path = below[0]
        found = "/" + str(path.relative_to(top))
        if site.init and found in _mounted(site):
            return found
    raise LabError("this lab's inventory declares no External storage: nothing could hang")


def _mounted(site: Site) -> list[str]:
    return [line.split()[1] for line in Path(f"/proc/{site.init}/mounts").read_text().splitlines()]


def _storage_before(site: Site) -> Memory:
    return {"path": _storage(site)}


def _stick(site: Site) -> None:
    path = _storage(site)
    with Path("/dev/null").open("wb") as log:
        argv = ["nsenter", f"--target={site.init}", "--mount", "--", "python3", "-c", STUCK, path]
        launch(argv, site.record, log)
    for _ in range(100):
        if path_is_fuse(site, path):
            return
        with suppress(CommandFailed):
            run(["sleep", "0.05"])
    raise LabError(f"{site.node.name}: nothing could be mounted over {path}: is /dev/fuse there?")


def path_is_fuse(site: Site, path: str) -> bool:
    lines = Path(f"/proc/{site.init}/mounts").read_text().splitlines()
    return any(line.split()[:2] == ["klaster-stuck", path] for line in lines)


def _unstick(site: Site, memory: Memory) -> None:
    if pid := recorded(site.record):
        end([pid])
    site.record.unlink(missing_ok=True)
    if site.init and path_is_fuse(site, memory["path"]):
        attempt(site, f"umount -l {memory['path']}")


def _take_storage(site: Site) -> None:
    path = _storage(site)
    site.sh(f"mkdir -p {ASIDE} && mount --bind {path} {ASIDE} && umount -l {path}")


def _give_storage(site: Site, memory: Memory) -> None:
    path = posixpath.normpath(memory["path"])
    attempt(
        site,
        f"mountpoint -q {ASIDE} || exit 0; mountpoint -q {path} || mount --bind {ASIDE} {path}; "
        f"umount -l {ASIDE}; rmdir {ASIDE}",
    )


FAULTS = (
    hooked("rank-killed", f"The rank gets SIGKILL after step {AT_STEP} of training together.", "kill"),
    hooked("rank-stopped", f"The rank gets SIGSTOP after step {AT_STEP}.", "stop"),
    hooked("rank-exits", f"The rank ends itself with status 3 after step {AT_STEP}.", "exit"),
    hooked("rank-crashes", f"The rank raises an exception after step {AT_STEP}.", "crash"),
    hooked("rank-spins", f"The rank loops for ever after step {AT_STEP}.", "spin"),
    hooked("skipped-collective", "The rank leaves one all-reduce of the training out.", "skip"),
    hooked("bit-flip", "A matrix product of every step has one wrong bit.", "flip", every=EACH_STEP),
    hooked("rare-bit-flip", "A matrix product of one step in 1,000 does.", "flip", every=RARELY),
    Fault("storage-stuck", "Whoever looks at the storage from the node waits.", _stick, _unstick, _storage_before),
    Fault("storage-gone", "The storage is not mounted on the node.", _take_storage, _give_storage, _storage_before),
)  # fmt: skip
