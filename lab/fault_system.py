"""Faults of a node's system: files that say something wrong, services that don't run, versions that differ."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lab.errors import CommandFailed, LabError
from lab.fault_model import Fault, Memory, Site

HIDDEN = ".klaster-fault"
"""Appended to the name of a program that is missing for a while."""
FAKETIME = "/opt/klaster-fault-clock"
SKEW_S = 600


# --- files with a saved original ----------------------------------------------------------------------------------


def keeping(*paths: str) -> Callable[[Site], Memory]:
    """Remember these files as they are: content and mode, or that there is none."""

    def remember(site: Site) -> Memory:
        return {"files": {path: _read(site.path(path)) for path in paths}}

    return remember


def _read(path: Path) -> list[str | int] | None:
    if not path.exists():
        return None
    return [base64.b64encode(path.read_bytes()).decode(), path.stat().st_mode & 0o7777]


def put_back(site: Site, memory: Memory) -> None:
    """The files as they were."""
    for name, saved in memory.get("files", {}).items():
        path = site.path(name)
        if saved is None:
            path.unlink(missing_ok=True)
        elif _read(path) != saved:
            path.write_bytes(base64.b64decode(saved[0]))
            path.chmod(saved[1])


def _edit(site: Site, name: str, change: Callable[[str], str]) -> None:
    path = site.path(name)
    before = path.read_text() if path.exists() else ""
    after = change(before)
    if after == before:
        raise LabError(f"{site.node.name}: {name} has nothing that this fault could change: deploy first")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(after)


def _loopback_name(site: Site) -> None:
    """As Debian's installer writes it; first, so that it wins."""
    _edit(site, "/etc/hosts", lambda text: f"127.0.1.1\t{site.node.name}\n{text}")


def _wrong_peer(site: Site) -> None:
    """The other nodes' names give an address that nobody has."""
    other = next(node for node in site.plan.nodes if node.name != site.node.name)
    _edit(site, "/etc/hosts", lambda text: f"{_free_address(site)}\t{other.name}\n{text}")


def _dead_resolver(site: Site) -> None:
    _edit(site, "/etc/resolv.conf", lambda text: f"nameserver {_free_address(site)}\n{text}")


def _free_address(site: Site) -> str:
    """An address of the first network that nobody has."""
    taken = {port.address for node in site.plan.nodes for port in node.ports} | {site.plan.control}
    start, _, last = site.plan.control.rpartition(".")
    return next(f"{start}.{number}" for number in range(int(last) - 1, 1, -1) if f"{start}.{number}" not in taken)


def _other_uid(site: Site) -> None:
    _edit(site, "/etc/passwd", lambda text: re.sub(r"^(klaster:[^:]*):\d+:", r"\1:4242:", text, count=1, flags=re.M))


def _host_name(site: Site) -> None:
    site.sh("hostname localhost")


def _own_name(site: Site, _: Memory) -> None:
    attempt(site, f"hostname {site.node.name}")


def _metadata(package: str) -> Callable[[Site], str]:
    def find(site: Site) -> str:
        script = (
            f"ls -d /opt/*/lib/python3*/site-packages/{package}-*.dist-info/METADATA "
            f"/usr/lib/python3/dist-packages/{package}-*.*-info/METADATA "
            f"/usr/lib/python3/dist-packages/{package}-*.*-info/PKG-INFO 2>/dev/null | head -n 1"
        )
        found = site.sh(script).strip()
        if not found:
            raise LabError(f"{site.node.name} has no {package}: deploy first")
        return found

    return find


def _other_version(package: str) -> tuple[Callable[[Site], None], Callable[[Site], Memory]]:
    """The package's own record of its version says another one."""
    find = _metadata(package)

    def put(site: Site) -> None:
        _edit(site, find(site), lambda text: re.sub(r"^Version: .*$", "Version: 1.13.1", text, count=1, flags=re.M))

    return put, lambda site: keeping(find(site))(site)


def _half_configured(site: Site) -> None:
    """One package stands in dpkg's book as it does when an installation was cut off."""
    wanted = r"(Package: procps\nStatus: install ok) installed"
    _edit(site, "/var/lib/dpkg/status", lambda text: re.sub(wanted, r"\1 half-configured", text, count=1))


# --- programs and services ----------------------------------------------------------------------------------------


def hiding(program: str) -> tuple[Callable[[Site], None], Callable[[Site, Memory], None]]:
    def put(site: Site) -> None:
        path = site.path(program)
        if not path.exists():
            raise LabError(f"{site.node.name} has no {program}: deploy first")
        path.rename(f"{path}{HIDDEN}")

    def undo(site: Site, _: Memory) -> None:
        path = site.path(program)
        hidden = Path(f"{path}{HIDDEN}")
        if hidden.exists():
            hidden.rename(path)

    return put, undo


def stopping(unit: str) -> tuple[Callable[[Site], None], Callable[[Site, Memory], None], Callable[[Site], Memory]]:
    """Stop a unit; healing starts it again if it ran before."""

    def remember(site: Site) -> Memory:
        if site.sh(f"systemctl is-active {unit} || true").strip() != "active":
            raise LabError(f"{unit} does not run on {site.node.name}: deploy first, or choose another node")
        return {"ran": True}

    def undo(site: Site, _: Memory) -> None:
        attempt(site, f"systemctl start {unit}")

    return lambda site: _done(site.sh(f"systemctl stop {unit}")), undo, remember


def _done(_: object) -> None:
    return None


def attempt(site: Site, script: str) -> None:
    """Healing goes on where a node is down: it boots without the fault."""
    with suppress(CommandFailed, LabError):
        site.sh(script)


MUNGE_KEY = "/etc/munge/munge.key"


def _other_key(site: Site) -> None:
    site.sh(f"head -c 1024 /dev/zero | tr '\\0' k > {MUNGE_KEY} && systemctl restart munge")


def _right_key(site: Site, memory: Memory) -> None:
    put_back(site, memory)
    attempt(site, "systemctl restart munge")


SLURM_CONF = "/etc/slurm/slurm.conf"
"""On the controller; the nodes get theirs from it."""


def _controller(site: Site) -> Site:
    for node in site.plan.nodes:
        other = Site(site.plan, node, name=site.name)
        if other.path(SLURM_CONF).exists():
            return other
    raise LabError(f"no node has {SLURM_CONF}: deploy first")


def _conf_before(site: Site) -> Memory:
    return keeping(SLURM_CONF)(_controller(site))


def _wrong_gres(site: Site) -> None:
    """Slurm expects a card that the node has not."""
    head = _controller(site)
    line = re.compile(rf"^(NodeName={re.escape(site.node.name)}\s.*)$", re.M)
    _edit(head, SLURM_CONF, lambda text: line.sub(r"\1 Gres=gpu:1", _with_gres(text), count=1))
    head.sh("systemctl restart slurmctld")
    site.sh("systemctl restart slurmd")


def _with_gres(text: str) -> str:
    return text if re.search(r"^GresTypes=.*gpu", text, re.M) else f"GresTypes=gpu\n{text}"


def _right_gres(site: Site, memory: Memory) -> None:
    head = _controller(site)
    put_back(head, memory)
    name = site.node.name
    attempt(head, "systemctl restart slurmctld")
    attempt(site, "systemctl restart slurmd")
    # Slurm has drained the node itself for this; a drain by anybody else stays.
    lift = f"scontrol update NodeName={name} State=RESUME"
    attempt(head, f"sleep 1; scontrol show node {name} | grep -Eq 'Reason=gres' && {lift}")


# --- the clock ----------------------------------------------------------------------------------------------------


def _skew(site: Site) -> None:
    """The nodes share this machine's clock: programs started from now on in the node see another time."""
    site.sh(
        f"mkdir -p {FAKETIME} && cd {FAKETIME} && apt-get -q download libfaketime >/dev/null && dpkg -x *.deb .",
        timeout_s=120,
    )
    library = site.sh(f"find {FAKETIME} -name libfaketime.so.1").strip()
    site.path("/etc/faketimerc").write_text(f"+{SKEW_S}s\n")
    site.path("/etc/ld.so.preload").write_text(f"{library}\n")


def _unskew(site: Site, memory: Memory) -> None:
    put_back(site, memory)
    attempt(site, f"rm -rf {FAKETIME}")


HOSTS, RESOLVER = keeping("/etc/hosts"), keeping("/etc/resolv.conf")
PRELOAD, PACKAGES = keeping("/etc/ld.so.preload", "/etc/faketimerc"), keeping("/var/lib/dpkg/status")
_time_down, _time_up, _time_ran = stopping("chrony")
_slurmd_down, _slurmd_up, _slurmd_ran = stopping("slurmd")
_slurmctld_down, _slurmctld_up, _slurmctld_ran = stopping("slurmctld")
_munge_down, _munge_up, _munge_ran = stopping("munge")
_nfs_down, _nfs_up, _nfs_ran = stopping("nfs-server nfs-ganesha")
_no_probe_tool, _probe_tool = hiding("/usr/bin/chronyc")
_no_scontrol, _scontrol = hiding("/usr/bin/scontrol")
_no_torch, _torch = hiding("/usr/lib/python3/dist-packages/torch")
_other_torch, _torch_before = _other_version("torch")
_other_numpy, _numpy_before = _other_version("numpy")

FAULTS = (
    Fault("loopback-name", "The node's own name gives 127.0.1.1 there.", _loopback_name, put_back, HOSTS),
    Fault("wrong-name", "Another node's name gives an address that nobody has.", _wrong_peer, put_back, HOSTS),
    Fault("dead-resolver", "The node's name server does not answer.", _dead_resolver, put_back, RESOLVER),
    Fault("clock", "The node's programs see a clock 600 s ahead.", _skew, _unskew, PRELOAD),
    Fault("time-daemon", "The time daemon is stopped; the clock is right.", _time_down, _time_up, _time_ran),
    Fault("uid", "The account klaster has another uid.", _other_uid, put_back, keeping("/etc/passwd")),
    Fault("host-name", "The node calls itself localhost.", _host_name, _own_name),
    Fault("nfs-stopped", "The file server on the node is stopped.", _nfs_down, _nfs_up, _nfs_ran),
    Fault("torch-version", "Another version of torch is recorded as installed.", _other_torch, put_back, _torch_before),
    Fault("numpy-version", "Another version of numpy is.", _other_numpy, put_back, _numpy_before),
    Fault("half-configured", "A package is half-configured.", _half_configured, put_back, PACKAGES),
    Fault("slurmd-stopped", "The node's slurmd is stopped.", _slurmd_down, _slurmd_up, _slurmd_ran),
    Fault("slurmctld-stopped", "The node's slurmctld is stopped.", _slurmctld_down, _slurmctld_up, _slurmctld_ran),
    Fault("wrong-gres", "Slurm expects a GPU that the node has not.", _wrong_gres, _right_gres, _conf_before),
    Fault("munge-stopped", "The node's munge is stopped.", _munge_down, _munge_up, _munge_ran),
    Fault("munge-key", "The node has another munge key than the others.", _other_key, _right_key, keeping(MUNGE_KEY)),
    Fault("missing-tool", "A program that the probe calls, chronyc, is missing.", _no_probe_tool, _probe_tool),
    Fault("missing-scontrol", "Another one, scontrol, is missing.", _no_scontrol, _scontrol),
    Fault("missing-torch", "The folder of torch is missing.", _no_torch, _torch),
)  # fmt: skip
