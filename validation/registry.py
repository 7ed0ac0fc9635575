"""The one list of checks: name, stage, what it is about, its limit and where the limit comes from."""

from __future__ import annotations

from dataclasses import dataclass

from validation.model import STAGES, Stage
from validation.verdicts import limits


@dataclass(frozen=True)
class Check:
    """One check; `name` is what stands in records, reports and drain reasons."""

    name: str
    stage: Stage
    summary: str
    limit: str
    origin: str

    @property
    def docs(self) -> str:
        """Its place in the documentation, below docs/."""
        return f"checks.md#{self.name}"


def _times(factor: float) -> str:
    return f"≤ {factor:g} × theirs"


PEERS = "median of nodes with the same processor"

CHECKS: tuple[Check, ...] = (
    # Stage node: validation/node/test_*.py, judged in validation/checks/node_*.py.
    Check("reachable", "node", "ssh to the node works", "within 10 s", "inventory"),
    Check("probe", "node", "the node answers the bulk probe", "each question within 4 s", "validator"),
    Check("host-name", "node", "the node has its declared name", "equal", "inventory"),
    Check("name-resolution", "node", "every node's name gives its declared address", "equal", "inventory"),
    Check("resolver", "node", "each listed name server answers", "within 1 s", "resolv.conf of the node"),
    Check("clock-offset", "node", "the clock is right", "within 1 s", "control machine's clock"),
    Check("time-daemon", "node", "chrony follows a source", "else advice", "field experience"),
    Check("interface", "node", "declared addresses are there and are used", "equal", "inventory"),
    Check("mtu", "node", "each interface has the declared MTU", "equal", "inventory"),
    Check("link-speed", "node", "each NIC negotiated the declared speed", "at least", "inventory"),
    Check(
        "fabric", "node", "NCCL, gloo, Slurm and NFS take the declared networks", "file and routes agree", "inventory"
    ),
    Check("rdma", "node", "InfiniBand or RoCE is up and fast between nodes", "≥ 0.8 of the port's rate", "the adapter"),
    Check("link-flaps", "node", "the link stays up during the run", "no change", "kernel's count"),
    Check("decoy-interfaces", "node", "no other interface can be chosen by mistake", "else advice", "field experience"),
    Check("hardware", "node", "processors and memory as locked", "memory within 5 %", "hardware lock"),
    Check("gpus", "node", "GPUs as declared and locked", "model, UUID, memory, place", "inventory, hardware lock"),
    Check("gpu-driver", "node", "module, library and declared set are one version", "equal", "NVIDIA's driver"),
    Check("gpu-health", "node", "memory errors, worn memory, brakes at rest", "none uncorrectable", "nvidia-smi"),
    Check("gpu-kernel-log", "node", "Xid messages of the driver since boot", "none of hardware", "kernel log"),
    Check("gpu-nvlink", "node", "every NVLink is up", "as many as like cards", "nvidia-smi, like cards"),
    Check(
        "gpu-link", "node", "PCIe generation and lanes under load", "what card and slot can", "nvidia-smi, like cards"
    ),
    Check("gpu-compute", "node", "matrix products, right and fast", "≥ 0.9 of it", "median of like cards"),
    Check("gpu-memory-bandwidth", "node", "copies within a card", "≥ 0.9 of it", "median of like cards"),
    Check(
        "gpu-copies",
        "node",
        "copies between cards arrive as sent, at the speed of like cards",
        "every byte; ≥ 0.8 of it",
        "seeded pattern, the same two cards in like nodes",
    ),
    Check("gpu-heat", "node", "no brake by heat or power under load, no new Xid", "none", "nvidia-smi, kernel log"),
    Check("gpu-numa", "node", "a rank runs on the cores beside its card", "as the machine is built", "/sys, slurmd -G"),
    Check("gpu-container", "node", "a container from the registry runs a CUDA step", "right sum", "computed"),
    Check("disk-space", "node", "local disks have space and inodes", "1 GiB or 5 %; 2 % of inodes", "default"),
    Check("disk-speed", "node", "the system's disk is not far slower than others", "≥ 0.25 × theirs", "other nodes"),
    Check("storage-mounts", "node", "declared storage is mounted and answers", "server, type, options", "inventory"),
    Check("storage-exports", "node", "shared folders are served to nodes only", "root squashed", "inventory"),
    Check("storage-shared", "node", "nodes read what others wrote, root is nobody", "every word", "measured"),
    Check("storage-quotas", "node", "declared quotas are set and enforced", "equal, else advice", "inventory"),
    Check("limits", "node", "limits of a job", "4,096 open files", "slurmd's own limits"),
    Check("shared-memory", "node", "shared memory is large enough", "1 GiB or half of memory", "NCCL, data loaders"),
    Check("versions", "node", "torch, numpy, Python, Slurm as elsewhere", "equal", "majority of the nodes"),
    Check("packages", "node", "no package is half-configured", "none", "dpkg --audit"),
    Check("identity", "node", "accounts have the same uid everywhere", "equal", "inventory, majority of the nodes"),
    Check("people", "node", "every person has uid and teams as declared", "equal", "inventory"),
    Check("people-services", "node", "sssd, the directory and accounting run", "active", "people of the inventory"),
    Check("accounts", "node", "people may submit jobs for their teams", "each membership in Slurm", "inventory"),
    Check("team-limits", "node", "a job over a team's limit waits for that reason", "QOS… or Assoc…", "inventory"),
    Check("services", "node", "munge and Slurm's daemons run", "active", "roles of the node"),
    Check("failed-units", "node", "no systemd unit failed", "else advice", "systemd"),
    Check("registry", "node", "the cluster's container registry", "TLS and account", "cluster's CA, inventory"),
    Check("munge", "node", "credentials decode here and on another node", "both ways", "munge"),
    Check("slurm-controller", "node", "slurmctld answers the node", "UP", "slurm.conf"),
    Check("slurm-state", "node", "Slurm holds the node for usable", "registered, not down", "slurmctld"),
    Check("memory-limit", "node", "a job that takes more memory than it asked for is killed", "killed", "slurm.conf"),
    Check("cgroup", "node", "Slurm can enforce limits", "else advice", "field experience"),
    # The other stages: measured by validation/checks/*.py, judged by validation/verdict.py.
    Check(
        "reach", "pairs", "every node connects to every node on a high port", "within 3 s, both ways", "needed to run"
    ),
    Check("bandwidth", "pairs", "every pair, each direction", f"≥ {limits.LOW:.2f} of it", "declared link speed"),
    Check("data", "pairs", "every message arrives as it was sent", "every byte", "seeded pattern"),
    Check(
        "latency", "pairs", "half round trip of small messages, median", _times(limits.LATENCY_FACTOR), "other pairs"
    ),
    Check("latency-tail", "pairs", "half round trip, 99th percentile", _times(limits.TAIL_FACTOR), "other pairs"),
    Check("history", "pairs", "as fast as in this cluster's earlier runs, in all stages", "see verdicts", "history"),
    Check("rank", "pairs", "every worker runs to its end, in all stages", "no hang, no death", "heartbeats"),
    Check("stage", "pairs", "every stage that was asked for is run to its end", "done", "command line"),
    Check("transport", "cluster", "an all-gather brings every rank's part to all", "every byte", "known pattern"),
    Check("collective-data", "cluster", "an all-reduce gives every rank the sum", "every element", "computed"),
    Check(
        "collective-bandwidth",
        "cluster",
        "bus bandwidth of a large all-reduce",
        f"≥ 1/{limits.COLLECTIVE_SLACK:g} of it",
        "slowest pair measured",
    ),
    Check("loss-falls", "training", "a real small model learns", f"last ÷ first ≤ {limits.LOSS_FALL:g}", "default"),
    Check("parameters", "training", "all ranks end with the same parameters", "equal bit by bit", "DDP's promise"),
    Check(
        "loss-reference",
        "training",
        "distributed losses are those of one process",
        f"relative difference ≤ {limits.LOSS_TOLERANCE:g}",
        "same seed and data",
    ),
    Check(
        "silent-errors",
        "training",
        "every rank alone computes the same products, activations, loss and gradients",
        "equal bit by bit",
        "majority of like hardware and software, golden hashes",
    ),
    Check("products", "training", "matrix products, right and fast", f"≥ {limits.COMPUTE_SHARE:.2f} of it", PEERS),
    Check("memory-bandwidth", "training", "copy and triad in memory", f"≥ {limits.COMPUTE_SHARE:.2f} of it", PEERS),
    Check("sustained", "training", "speed under long load (burn-in)", "last quarter ≥ 0.9 of it", "first quarter"),
    Check(
        "acceptance",
        "training",
        "every way of training gives the same losses (standard, burn-in)",
        "relative difference ≤ 0.001; 0.05 in bfloat16",
        "one process, same seed and data",
    ),
    Check(
        "compute", "training", "speed of each node alone", f"≥ {limits.COMPUTE_SHARE:.2f} of it", "median of the peers"
    ),
    Check(
        "scaling",
        "training",
        "step time of the distributed training",
        f"≤ {limits.SCALING_SLACK:g} × the sum",
        "computation and communication measured apart",
    ),
)


def by_name(name: str) -> Check:
    """The check of that name; KeyError if there is none."""
    return {check.name: check for check in CHECKS}[name]


def render_list() -> str:
    """All checks as a table for the console."""
    rows = [("stage", "check", "what", "limit", "where the limit comes from")]
    rows += [(check.stage, check.name, check.summary, check.limit, check.origin) for check in CHECKS]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"


def render_page() -> str:
    """docs/checks.md; refresh it with `python -m validation.registry > docs/checks.md`."""
    lines = ["# The checks", "", "Written by `python -m validation.registry` from `validation/registry.py`.", ""]
    for stage in STAGES:
        lines += [f"## Stage {stage}", ""]
        for check in (check for check in CHECKS if check.stage == stage):
            lines += [f"### {check.name}", "", f"{check.summary[:1].upper()}{check.summary[1:]}.", ""]
            lines += [f"Limit: {check.limit}. Where it comes from: {check.origin}.", ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(render_page(), end="")
