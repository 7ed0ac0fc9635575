"""Verdicts on whether a node can be reached and answers the probe at all."""

from __future__ import annotations

from validation.checks.node import Finding, ProbeError, Subject, answer, failed, not_applicable, passed


def reachable(subject: Subject) -> Finding:
    required = f"ssh to {subject.node.address} works"
    why = subject.fleet.unreachable.get(subject.name)
    if why is None:
        return passed("connected", required, "inventory")
    remedy = "look at the machine, its cable and its address; then: ssh to it by hand"
    return failed(why, required, "inventory", "unreachable", remedy)


def probe(subject: Subject) -> Finding:
    """The probe gave its document; if it could not run, that is the validator's matter, not a verdict on the node."""
    if subject.name in subject.fleet.unreachable:
        return not_applicable("node not reached")
    if why := subject.fleet.no_probe.get(subject.name):
        raise ProbeError(why)
    return passed(f"answered in {answer(subject.probe, 'probe')['seconds']} s", "python3 on the node", "probe")
