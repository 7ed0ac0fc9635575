"""The one list of checks: name, stage, what it is about, its limit and where the limit comes from."""

from __future__ import annotations

from dataclasses import dataclass

from validation.model import STAGES, Stage


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
    Check("mtu", "node", "the interface has the declared MTU", "equal", "inventory"),
    Check("link-speed", "node", "the NIC negotiated the declared speed", "at least", "inventory"),
    Check("decoy-interfaces", "node", "no other interface can be chosen by mistake", "else advice", "field experience"),
    Check("hardware", "node", "processors and memory as locked", "memory within 5 %", "hardware lock"),
    Check("gpus", "node", "GPUs as declared and locked", "equal, by UUID", "inventory, hardware lock"),
    Check("disk-space", "node", "/, /tmp, /var have space and inodes", "1 GiB or 5 %; 2 % of inodes", "default"),
    Check("storage-mounts", "node", "declared storage is mounted and answers", "mount and type", "inventory"),
    Check("limits", "node", "limits of a job", "4,096 open files", "slurmd's own limits"),
    Check("shared-memory", "node", "shared memory is large enough", "1 GiB or half of memory", "NCCL, data loaders"),
    Check("versions", "node", "torch, numpy, Python, Slurm as elsewhere", "equal", "majority of the nodes"),
    Check("packages", "node", "no package is half-configured", "none", "dpkg --audit"),
    Check("identity", "node", "accounts have the same uid everywhere", "equal", "inventory, majority of the nodes"),
    Check("services", "node", "munge and Slurm's daemons run", "active", "roles of the node"),
    Check("failed-units", "node", "no systemd unit failed", "else advice", "systemd"),
    Check("munge", "node", "credentials decode here and on another node", "both ways", "munge"),
    Check("slurm-controller", "node", "slurmctld answers the node", "UP", "slurm.conf"),
    Check("slurm-state", "node", "Slurm holds the node for usable", "registered, not down", "slurmctld"),
    Check("cgroup", "node", "Slurm can enforce limits", "else advice", "field experience"),
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
