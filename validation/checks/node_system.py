"""Verdicts on a node's hardware, disks, limits, versions and packages."""

from __future__ import annotations

from dataclasses import replace

from validation.checks.node import (
    Finding,
    ProbeError,
    Subject,
    answer,
    failed,
    gib,
    inconclusive,
    not_applicable,
    odd_one_out,
    output,
    passed,
    problem,
    process_limit,
)
from validation.model import Outcome

MEMORY_TOLERANCE = 0.05
"""Firmware updates move MemTotal by a little; a lost module is more."""
NOFILE_LEAST, NOFILE_GOOD = 4_096, 65_536
"""Open files of a job: data loaders with many workers and shards run out at the usual 1024, large ones later."""
UNLIMITED = ("Max cpu time", "Max file size", "Max data size", "Max address space")
PROCESSES_LEAST = 1_024
"""Threads count too: some hundred a rank."""
SHARED_MEMORY_BYTES = 2**30
EVERYBODY = 0o1777
"""Mode of a folder in which everybody may make files, and remove only their own."""
LOCK = "hardware lock"


def hardware(subject: Subject) -> Finding:
    """Cores and memory as the lock says; unknown hardware is never a pass."""
    locked = subject.locked
    if locked is None:
        remedy = "run the deploy again: it discovers and locks the hardware"
        return inconclusive("this node is not in the hardware lock", remedy, "a locked node", LOCK)
    system = answer(subject.probe, "system")
    memory_mib = system["memory"].get("MemTotal", 0) / 1024
    measured = f"{system['cpus']} processors, {memory_mib:.0f} MiB"
    required = f"{locked.cpus} processors, {locked.memory_mib} MiB ± {MEMORY_TOLERANCE:.0%}"
    remedy = (
        "a part was lost or changed: look for it (dmidecode, lscpu); if it was you, accept it with deploys/discover.py"
    )
    if system["cpus"] != locked.cpus:
        return failed(measured, required, LOCK, "processors", remedy)
    if abs(memory_mib - locked.memory_mib) > MEMORY_TOLERANCE * locked.memory_mib:
        return failed(measured, required, LOCK, "memory", remedy)
    return passed(measured, required, LOCK)


def limits(subject: Subject) -> Finding:
    """Limits of a job: it inherits slurmd's; without one, those of an ssh session."""
    if not subject.computes:
        return not_applicable("no job runs here")
    found = answer(subject.probe, "limits")
    slurmd_runs = bool(found["slurmd"])
    context = "slurmd's own, which jobs inherit" if slurmd_runs else "ssh session (slurmd is not running)"
    source = found["slurmd"] or found["session"]
    nofile, locked = process_limit(source, "Max open files"), process_limit(source, "Max locked memory")
    unlimited = locked == float("inf")
    measured = f"open files {nofile:.0f}, locked memory {'unlimited' if unlimited else f'{locked / 1024:.0f} KiB'}"
    rdma = bool(answer(subject.probe, "infiniband"))
    required = f"open files ≥ {NOFILE_LEAST}" + (", locked memory unlimited (RDMA)" if rdma else "")
    if slurmd_runs and (short := _short_limits(source)):
        remedy = "take the limit out of slurmd.service and its drop-ins (systemctl cat slurmd), then restart slurmd"
        return failed(f"{measured}; {short}", required, context, "limits", remedy)
    if nofile < NOFILE_LEAST and slurmd_runs:
        return failed(measured, required, context, "limits", "set LimitNOFILE=131072 in a drop-in of slurmd.service")
    if not unlimited and rdma:
        return failed(measured, required, context, "limits", "set LimitMEMLOCK=infinity in a drop-in of slurmd.service")
    advice = [] if unlimited else ["locked memory is limited: fine without RDMA, InfiniBand would need it unlimited"]
    if nofile < NOFILE_GOOD:
        advice.append(f"fewer than {NOFILE_GOOD} open files: large data loaders may run out")
    return passed(measured, required, context, advice="; ".join(advice))


def _short_limits(source: str) -> str:
    """Other limits that end a job in the middle: of time, of a file's size, of memory, of processes."""
    found = {row: process_limit(source, row) for row in UNLIMITED}
    short = [f"{row.removeprefix('Max ')} {value:.0f}" for row, value in found.items() if value != float("inf")]
    processes = process_limit(source, "Max processes")
    return ", ".join([*short, *([f"processes {processes:.0f}"] if processes < PROCESSES_LEAST else [])])


def shared_memory(subject: Subject) -> Finding:
    total = answer(subject.probe, "system")["memory"].get("MemTotal", 0) * 1024
    needed = min(SHARED_MEMORY_BYTES, total / 2)
    found = answer(subject.probe, "filesystem:/dev/shm")
    size, required = found["total_bytes"], f"≥ {gib(needed)}, mode {EVERYBODY:o}"
    if found["mode"] != EVERYBODY:
        remedy = f"chmod {EVERYBODY:o} /dev/shm: people's programs can't make anything there"
        return failed(f"mode {found['mode']:o}", required, "what Linux mounts", "shared-memory", remedy)
    if size >= needed:
        return passed(gib(size), required, "NCCL and data loaders keep their buffers there")
    remedy = "mount -o remount,size=50% /dev/shm, and look for its line in /etc/fstab"
    return failed(gib(size), required, "NCCL and data loaders keep their buffers there", "shared-memory", remedy)


def versions(subject: Subject) -> Finding:
    """torch, numpy, Python and Slurm as the peers have them; another kernel is advice (a reboot is due somewhere)."""
    fleet = {name: versions_of(subject.fleet.subject(name)) for name in subject.fleet.probes}
    mine = fleet[subject.name]
    measured = ", ".join(f"{what} {version}" for what, version in mine.items() if version)
    required = "the same as the other nodes"
    if subject.computes and not mine["torch"]:
        return failed("torch is not installed", "torch", "training", "torch-missing", "run the deploy again")
    undecided = []
    for what in ("torch", "numpy", "python", "slurm"):
        peers = {name: found[what] for name, found in fleet.items() if found[what]}
        other = odd_one_out(peers, subject.name)
        if other:
            remedy = f"bring {what} to {other} on {subject.name}: run the deploy again, look for held packages"
            return failed(f"{what} {mine[what]}", f"{what} {other}", "majority of the nodes", "consistency", remedy)
        if other == "":
            undecided.append(f"{what}: " + ", ".join(f"{name} {version}" for name, version in sorted(peers.items())))
    if undecided:
        remedy = "the nodes differ and no majority says who is right: bring them to one version"
        return inconclusive("; ".join(undecided), remedy, required, "peers", cause="consistency")
    kernels = {name: found["kernel"] for name, found in fleet.items()}
    differs = odd_one_out(kernels, subject.name) is not None
    advice = f"kernels differ ({', '.join(sorted(set(kernels.values())))}): reboot into one" if differs else ""
    return replace(passed(measured, required, "peers", advice=advice), facts=mine)


def versions_of(subject: Subject) -> dict[str, str]:
    """The version set of a node: a certificate is void when it changes."""
    found = answer(subject.probe, "versions")
    try:
        slurm = output(subject.probe, "slurm_version").split()[-1]
    except ProbeError:
        slurm = ""
    driver = "" if problem(subject.probe, "gpu_driver") else str(answer(subject.probe, "gpu_driver")["module"])
    found = {**found, "slurm": slurm, "kernel": answer(subject.probe, "system")["kernel"]}
    return {**found, "driver": driver} if driver else found


def packages(subject: Subject) -> Finding:
    """Half-configured packages make the next installation fail, with an error about something else."""
    complaints, required = output(subject.probe, "packages").strip(), "none half-configured"
    if not complaints:
        return passed(required, required, "dpkg --audit")
    if "Another process has locked" in complaints:
        remedy = "wait until apt on the node is done, then validate again"
        return inconclusive("packages are being installed just now", remedy, required, "dpkg --audit")
    names = [line.split()[0] for line in complaints.splitlines() if line.startswith(" ") and line.strip()]
    remedy = "on the node: dpkg --configure -a; apt-get -f install"
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    measured = f"half-configured: {shown or complaints.splitlines()[0]}"
    return failed(measured, required, "dpkg --audit", "packages", remedy, evidence=complaints[:1000])


def identity(subject: Subject) -> Finding:
    """uids of the service accounts and of declared users: a file written on one node is read on another."""
    mine: dict[str, list[object] | None] = answer(subject.probe, "accounts")
    declared = {user.name: user.uid for user in subject.cluster.users}
    for name, uid in declared.items():
        found = mine.get(name)
        if found and found[0] != uid:
            remedy = f"usermod -u {uid} {name} on the node, then chown what it owns"
            return failed(f"{name} has uid {found[0]}", f"uid {uid}", "inventory", "identity", remedy)
    for account in (name for name in mine if name not in declared):
        uids = {
            name: str(probe["accounts"]["ok"][account][0])
            for name, probe in subject.fleet.probes.items()
            if probe.get("accounts", {}).get("ok", {}).get(account)
        }
        if not mine[account] and 2 * len(uids) > len(subject.fleet.probes):
            measured, required = f"there is no account {account}", f"{account} as on {', '.join(sorted(uids)[:3])}"
            return failed(measured, required, "majority of the nodes", "identity", "run the deploy again: it makes it")
        other = odd_one_out(uids, subject.name)
        if other:
            remedy = f"usermod -u {other} {account} on the node, then chown what it owns"
            measured = f"{account} has uid {uids[subject.name]}"
            return failed(measured, f"uid {other}", "majority of the nodes", "identity", remedy)
        if other == "":
            remedy = "the nodes differ and no majority says who is right"
            return Finding(Outcome.INCONCLUSIVE, f"uid of {account} differs: {uids}", cause="identity", remedy=remedy)
    present = [f"{name} {found[0]}" for name, found in mine.items() if found]
    return passed(", ".join(present) or "no such account", "one uid for an account", "peers")
