"""Verdicts on a node's services: systemd units, munge, Slurm."""

from __future__ import annotations

from validation.checks.node import (
    Finding,
    Probe,
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
from validation.model import Outcome

REQUIRED = {
    "controller": ("munge.service", "slurmctld.service"),
    "compute": ("munge.service", "slurmd.service"),
}
ASKED = ("munge.service", "slurmctld.service", "slurmd.service", "chrony.service", "ssh.service", "ssh.socket")
LIMIT_MIB, TAKES_MIB = 64, 256
"""What a job may have, and what it takes: Python needs some 10 MiB, the rest is written to, so that it counts."""
KILLED = 137
"""128 + SIGKILL."""
UNFIT = frozenset({"DOWN", "NOT_RESPONDING", "FAIL", "FAILING", "INVAL", "INVALID_REG", "UNKNOWN", "REBOOT_ISSUED"})


def services(subject: Subject) -> Finding:
    found = units(subject.probe)
    wanted = sorted({unit for role in subject.node.roles for unit in REQUIRED.get(role, ())})
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
    if not _active(subject.probe, "munge.service"):
        # One cause, one culprit: a daemon that is not there says nothing about its key.
        return inconclusive("munge is not running", "see check services", required, "munge")
    if problem(subject.probe, "munge").startswith("no answer"):
        remedy = "restart munge: systemctl restart munge; its process is stopped or stuck"
        return failed("munge does not answer", required, "munge", "munge", remedy, culprit_kind="service")
    found = answer(subject.probe, "munge")
    if found["status"] != 0:
        remedy = "start munge: systemctl status munge; its key is /etc/munge/munge.key"
        return failed(_last(found), required, "munge", "munge", remedy, culprit_kind="service")
    if found["decoded"]["status"] != 0:
        remedy = "restart munge: systemctl restart munge"
        return failed(_last(found["decoded"]), required, "munge", "munge", remedy, culprit_kind="service")
    tried = _exchanges(subject)
    good = sorted({partner for partner, said in tried if not said})
    bad = {partner: said for partner, said in tried if said}
    if not tried:
        return passed("own round trip", required, "munge", advice="no other node could be asked to decode")
    if not bad:
        return passed(f"round trip with {', '.join(good)}", required, "munge")
    measured = "; ".join(f"with {partner}: {said}" for partner, said in sorted(bad.items()))
    if good or _is_odd(subject, bad):
        return passed(f"round trip with {', '.join(good) or 'itself'}", required, "munge", advice=measured)
    remedy = "the key or the clock differs: copy the key by running the deploy again, then systemctl restart munge"
    alone = len(subject.fleet.probes) == 2
    culprit = f"munge between {' and '.join(sorted([subject.name, *bad]))}" if alone else ""
    return failed(measured, required, "munge", "munge", remedy, culprit_kind="service", culprit=culprit)


def _exchanges(subject: Subject, of: str = "") -> list[tuple[str, str]]:
    """(partner, complaint or empty text) of every credential that went to or came from a node."""
    name = of or subject.name
    return [
        (target if source == name else source, said)
        for source, targets in subject.fleet.munge.items()
        for target, said in targets.items()
        if name in (source, target)
    ]


def _is_odd(subject: Subject, bad: dict[str, str]) -> bool:
    """True if the only partner fails with all of several nodes: then it, not this one, is to blame."""
    if len(bad) != 1:
        return False
    others = _exchanges(subject, of=next(iter(bad)))
    return len({name for name, _ in others}) > 1 and all(said for _, said in others)


def _last(found: dict[str, object]) -> str:
    lines = str(found["stderr"] or found["stdout"]).strip().splitlines()
    return lines[-1] if lines else f"exit status {found['status']}"


def slurm_controller(subject: Subject) -> Finding:
    """The controller answers this node; if its daemon is down there, that is the controller's fault."""
    head = subject.cluster.controller.name
    required = f"slurmctld on {head} answers"
    if subject.computes and not _active(subject.probe, "slurmd.service"):
        # Without slurmd a configless node has no slurm.conf: asking would only repeat what check services says.
        return inconclusive("slurmd is not running", "see check services", required, "slurm.conf")
    if munge(subject).outcome is not Outcome.PASS:
        return inconclusive("munge does not work here", "see check munge", required, "slurm.conf")
    if problem(subject.probe, "slurm_ping").startswith("no answer"):
        said = "scontrol ping does not end"
    else:
        found = answer(subject.probe, "slurm_ping")
        said = ((found["stdout"] or found["stderr"]).strip().splitlines() or ["no output"])[0]
        if found["status"] == 0 and "UP" in said:
            return passed(said, required, "slurm.conf")
    remedy = f"look at slurmctld on {head} (journalctl -u slurmctld), then at the firewall between them"
    if _controller_is_down(subject):
        culprit = f"slurmctld on {head}"
        return failed(said, required, "slurm.conf", "slurmctld-down", remedy, culprit_kind="service", culprit=culprit)
    return failed(said, required, "slurm.conf", "slurmctld-unreachable", remedy)


def _controller_is_down(subject: Subject) -> bool:
    """Its own machine says so: the daemon does not run, or does not answer there either."""
    probe = subject.fleet.probes.get(subject.cluster.controller.name)
    if probe is None or problem(probe, "services"):
        return False
    stuck = problem(probe, "slurm_ping").startswith("no answer") and not problem(probe, "munge")
    return stuck or not _active(probe, "slurmctld.service")


def _active(probe: Probe, unit: str) -> bool:
    return _unit_state(units(probe).get(unit, {})) == "active"


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


def memory_limit(subject: Subject) -> Finding:
    """A job that takes more memory than it asked for is ended by the kernel, and not the node by the job."""
    if not subject.computes:
        return not_applicable("takes no jobs")
    if "memory_limit" not in subject.probe:
        return not_applicable("Slurm limits no memory in this cluster: some node's kernel can't (see check cgroup)")
    if why := problem(subject.probe, "memory_limit"):
        return not_applicable(f"could not be tried: {why}")
    required = f"a job of {LIMIT_MIB} MiB that takes {TAKES_MIB} is killed"
    status = answer(subject.probe, "memory_limit")["status"]
    if status == 0:
        remedy = "scontrol show config | grep -E 'ConstrainRAMSpace|TaskPlugin'; run the deploy again, restart slurmd"
        return failed(f"it had {TAKES_MIB} MiB", required, "slurm.conf", "memory-not-limited", remedy,
                      culprit_kind="service", culprit=f"slurmd on {subject.name}")  # fmt: skip
    if status != KILLED:
        return inconclusive(f"it ended with status {status}", "try it by hand: srun --mem=64", required, "slurm.conf")
    return passed("killed", required, "slurm.conf")
