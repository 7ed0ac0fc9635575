"""Verdicts on a node's services: systemd units, munge, Slurm."""

from __future__ import annotations

from validation.checks.node import (
    Finding,
    Subject,
    answer,
    failed,
    inconclusive,
    not_applicable,
    output,
    passed,
    problem,
    units,
)

REQUIRED = {
    "controller": ("munge.service", "slurmctld.service"),
    "compute": ("munge.service", "slurmd.service"),
}
ASKED = ("munge.service", "slurmctld.service", "slurmd.service", "chrony.service", "ssh.service", "ssh.socket")
UNFIT = frozenset({"DOWN", "NOT_RESPONDING", "FAIL", "FAILING", "INVAL", "INVALID_REG", "UNKNOWN", "REBOOT_ISSUED"})


def services(subject: Subject) -> Finding:
    found = units(subject.probe)
    wanted = sorted({unit for role in subject.node.roles for unit in REQUIRED[role]})
    states = {unit: _unit_state(found.get(unit, {})) for unit in wanted}
    down = {unit: state for unit, state in states.items() if state != "active"}
    required = f"active: {', '.join(wanted)}"
    if not down:
        return passed(f"active: {', '.join(wanted)}", required, "roles of the node")
    first = next(iter(down))
    cause = f"{first.removesuffix('.service')}-down"
    remedy = f"on the node: systemctl status {first}; journalctl -u {first} -n 50; systemctl start {first}"
    measured = ", ".join(f"{unit} is {state}" for unit, state in down.items())
    return failed(measured, required, "roles of the node", cause, remedy, culprit_kind="service")


def _unit_state(unit: dict[str, str]) -> str:
    if unit.get("LoadState") in (None, "not-found"):
        return "not installed"
    return unit.get("ActiveState", "unknown")


def failed_units(subject: Subject) -> Finding:
    """Other failed units are advice: they are not what this cluster is certified for."""
    lines = output(subject.probe, "failed_units").strip().splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    if not names:
        return passed("none", "none", "systemd")
    return passed(", ".join(names), "none", "systemd", advice=f"failed units: systemctl status {' '.join(names)}")


def munge(subject: Subject) -> Finding:
    """A credential made here is decoded here and on the other node asked, and the other way round: one key for all."""
    required = "credentials decode on both sides"
    found = answer(subject.probe, "munge")
    if found["status"] != 0:
        remedy = "start munge: systemctl status munge; its key is /etc/munge/munge.key"
        return failed(_last(found), required, "munge", "munge", remedy, culprit_kind="service")
    if found["decoded"]["status"] != 0:
        remedy = "restart munge: systemctl restart munge"
        return failed(_last(found["decoded"]), required, "munge", "munge", remedy, culprit_kind="service")
    complaints = {
        f"{source} → {target}": said
        for source, targets in subject.fleet.munge.items()
        for target, said in targets.items()
        if subject.name in (source, target) and said
    }
    partners = {
        source if target == subject.name else target
        for source, targets in subject.fleet.munge.items()
        for target in targets
        if subject.name in (source, target)
    }
    if not partners:
        return passed("own round trip", required, "munge", advice="no other node could be asked to decode")
    if not complaints:
        return passed(f"round trip with {', '.join(sorted(partners))}", required, "munge")
    if _partner_is_odd(subject, complaints):
        return passed("own round trip", required, "munge", advice=f"not with {', '.join(sorted(partners))}")
    remedy = "the key or the clock differs: copy the key by running the deploy again, then systemctl restart munge"
    measured = "; ".join(f"{pair}: {said}" for pair, said in complaints.items())
    return failed(measured, required, "munge", "munge", remedy, culprit_kind="service")


def _partner_is_odd(subject: Subject, complaints: dict[str, str]) -> bool:
    """True if the node asked to decode fails with every other node too: then it, not this one, is to blame."""
    if len(subject.fleet.probes) <= 2:
        return False
    asked = [target for source, targets in subject.fleet.munge.items() for target in targets if source == subject.name]
    for partner in asked:
        others = [
            said
            for source, targets in subject.fleet.munge.items()
            for target, said in targets.items()
            if partner in (source, target)
        ]
        if len(asked) == 1 and others and all(others):
            return True
    return False


def _last(found: dict[str, object]) -> str:
    lines = str(found["stderr"] or found["stdout"]).strip().splitlines()
    return lines[-1] if lines else f"exit status {found['status']}"


def slurm_controller(subject: Subject) -> Finding:
    """The controller answers this node; if its daemon is down there, that is the controller's fault."""
    head = subject.cluster.controller.name
    required = f"slurmctld on {head} answers"
    if problem(subject.probe, "slurm_ping").startswith("no answer"):
        said = "scontrol ping does not end"
    else:
        found = answer(subject.probe, "slurm_ping")
        said = (found["stdout"] or found["stderr"]).strip()
        if found["status"] == 0 and "UP" in said:
            return passed(said.splitlines()[0], required, "slurm.conf")
    remedy = f"look at slurmctld on {head} (journalctl -u slurmctld), then at the firewall between them"
    if _controller_is_down(subject):
        culprit = f"slurmctld on {head}"
        return failed(said, required, "slurm.conf", "slurmctld-down", remedy, culprit_kind="service", culprit=culprit)
    return failed(said, required, "slurm.conf", "slurmctld-unreachable", remedy)


def _controller_is_down(subject: Subject) -> bool:
    probe = subject.fleet.probes.get(subject.cluster.controller.name)
    if probe is None or problem(probe, "services"):
        return False
    return _unit_state(units(probe).get("slurmctld.service", {})) != "active"


def slurm_state(subject: Subject) -> Finding:
    """Slurm holds the node for usable; a drain by this product is expected, one by somebody else stays and is told."""
    if not subject.computes:
        return not_applicable("takes no jobs")
    required = "registered, not down"
    if subject.fleet.slurm is None:
        return inconclusive("Slurm's controller did not answer", "see check slurm-controller", required, "slurmctld")
    node = subject.fleet.slurm.get(subject.name)
    if node is None:
        return failed("Slurm does not know this node", required, "slurmctld", "not-in-slurm", "run the deploy again")
    if node.states & UNFIT:
        remedy = f"on the node: journalctl -u slurmd -n 50; then scontrol show node {subject.name}"
        return failed(node.text, required, "slurmctld", "slurm-state", remedy, culprit_kind="service")
    theirs = node.drained and not node.ours
    advice = f"drained by somebody else ({node.reason}): it stays drained whatever the verdict" if theirs else ""
    return passed(node.text, required, "slurmctld", advice=advice)


def cgroup(subject: Subject) -> Finding:
    """Without the memory controller a job can take a node's whole memory; Slurm then enforces nothing."""
    if not subject.computes:
        return not_applicable("takes no jobs")
    if problem(subject.probe, "cgroup").startswith("not there"):
        found: list[str] = []
    else:
        found = list(answer(subject.probe, "cgroup"))
    missing = [name for name in ("cpuset", "cpu", "memory") if name not in found]
    measured = f"cgroup v2 controllers: {', '.join(found) or 'none'}"
    advice = f"Slurm cannot enforce limits without: {', '.join(missing)}" if missing else ""
    return passed(measured, "cpuset, cpu, memory", "field-notes", advice=advice)
