"""Verdicts on a node's names, clock and network interfaces."""

from __future__ import annotations

from inventory.model import Link
from validation.checks.node import (
    Finding,
    Subject,
    addresses,
    answer,
    failed,
    inconclusive,
    not_applicable,
    output,
    passed,
    problem,
)
from validation.model import Outcome

CLOCK_LIMIT_S = 1.0
"""munge refuses at 300 s, certificates earlier; a node kept by a time daemon is within milliseconds."""
INVENTORY = "inventory"


def host_name(subject: Subject) -> Finding:
    found = answer(subject.probe, "system")["hostname"]
    if found == subject.name:
        return passed(found, subject.name, INVENTORY)
    remedy = f"run the deploy again, or on the node: hostnamectl set-hostname {subject.name}"
    return failed(found, subject.name, INVENTORY, "host-name", remedy)


def name_resolution(subject: Subject) -> Finding:
    """Every node's name must give its declared address here, and no other's: any of them may be taken."""
    required = "every node's name gives its declared address"
    if why := problem(subject.probe, "names"):
        return failed(why, required, INVENTORY, "name-resolution", "look at /etc/hosts and /etc/nsswitch.conf")
    found = subject.fleet.probes[subject.name]["names"]["ok"]
    wrong = []
    for node in subject.cluster.nodes:
        got = found.get(node.name, [])
        own = {node.address, *(link.address for link in node.links)}
        if node.address not in got or not own.issuperset(got):
            itself = " (itself)" if node.name == subject.name else ""
            wrong.append(f"{node.name}{itself} gives {', '.join(got) or 'nothing'}, declared {node.address}")
    if not wrong:
        return passed(f"{len(subject.cluster.nodes)} names right", required, INVENTORY)
    remedy = "correct /etc/hosts on the node (the deploy writes it): ranks would tell each other the wrong address"
    return failed("; ".join(wrong[:3]), required, INVENTORY, "name-resolution", remedy, evidence="; ".join(wrong))


def resolver(subject: Subject) -> Finding:
    """A name server that is listed must answer; a cluster without DNS lists none."""
    found = answer(subject.probe, "resolver")
    servers: dict[str, float | str] = found["servers"]
    if not servers:
        return not_applicable("no name server in /etc/resolv.conf")
    dead = [f"{server}: {said.removeprefix('error: ')}" for server, said in servers.items() if isinstance(said, str)]
    required = "each name server of /etc/resolv.conf answers within 1 s"
    if not dead:
        return passed(", ".join(f"{server} in {said} ms" for server, said in servers.items()), required, "resolv.conf")
    remedy = "start that name server or take it out of /etc/resolv.conf: each look-up waits for it"
    return failed("; ".join(dead), required, "/etc/resolv.conf of the node", "dns", remedy)


def clock_offset(subject: Subject) -> Finding:
    clock = subject.fleet.clocks.get(subject.name)
    if clock is None:
        return inconclusive("not measured", "run again", f"≤ {CLOCK_LIMIT_S:g} s", "control machine's clock")
    measured = f"{clock.offset_s:+.3f} s (± {clock.round_trip_s / 2:.3f} s)"
    required = f"within {CLOCK_LIMIT_S:g} s"
    if abs(clock.offset_s) - clock.round_trip_s / 2 <= CLOCK_LIMIT_S:
        return passed(measured, required, "control machine's clock")
    others = [other for name, other in subject.fleet.clocks.items() if name != subject.name]
    if others and all(abs(other.offset_s - clock.offset_s) < CLOCK_LIMIT_S for other in others):
        # All nodes agree with each other: one cause, the control machine's own clock, and no node is to blame.
        remedy = "set this control machine's clock: all nodes agree with each other and differ from it"
        return inconclusive(measured, remedy, required, "control machine's clock", cause="control-clock")
    remedy = "start chrony on the node and look at: chronyc tracking; chronyc sources"
    return failed(measured, required, "control machine's clock", "clock", remedy)


def time_daemon(subject: Subject) -> Finding:
    """A stopped daemon is advice as long as the clock is right; clock-offset fails otherwise."""
    required = "chronyd answers and follows a source"
    try:
        fields = output(subject.probe, "time").strip().split(",")
    except Exception as error:
        if "not there" in str(error):
            raise
        return passed("chronyd does not answer", required, "field-notes", advice=_time_advice(subject, str(error)))
    reference, stratum = (fields[1] or fields[0]), fields[2]
    if stratum == "0" or fields[-1] == "Not synchronised":
        advice = "chronyd follows no source: the clock will drift; look at: chronyc sources"
        return passed("not synchronised", required, "field-notes", advice=advice)
    return passed(f"follows {reference}, stratum {stratum}", required, "field-notes")


def _time_advice(subject: Subject, why: str) -> str:
    return f"systemctl enable --now chrony on {subject.name}: its clock is right today, it will drift ({why})"


def interface(subject: Subject) -> Finding:
    """The declared address is on an interface, and traffic to each peer leaves from it."""
    required = f"{subject.node.address} on an interface, and used towards every peer"
    held = addresses(subject.probe)
    missing = [
        str(link.address)
        for link in (subject.cluster.link(subject.node), *subject.node.links)
        if link.address and link.address not in held
    ]
    if missing:
        measured = f"no interface has {', '.join(missing)}; found {', '.join(held)}"
        remedy = "give the interface its declared address, or correct the inventory"
        return failed(measured, required, INVENTORY, "address", remedy)
    others = [other for other in subject.cluster.nodes if other.name != subject.name]
    theirs = {other.address: other.name for other in others}
    theirs |= {link.address: other.name for other in others for link in other.links if link.address}
    if taken := {address: owner for address, owner in theirs.items() if address in held}:
        measured = "; ".join(f"{held[address]} has {address}, which is {owner}'s" for address, owner in taken.items())
        remedy = "take it off (ip address del): who answers for it is chance, and it shows as links that come and go"
        return failed(measured, required, INVENTORY, "address-conflict", remedy)
    sources: dict[str, str] = answer(subject.probe, "sources")
    wrong = {peer: source for peer, source in sources.items() if source != subject.node.address}
    if wrong:
        measured = "; ".join(f"to {peer} from {source} ({held.get(source, '?')})" for peer, source in wrong.items())
        remedy = "correct the routes (ip route get ADDRESS): traffic to these peers takes another interface"
        return failed(measured, required, INVENTORY, "route", remedy)
    return passed(f"{subject.interface} has {subject.node.address}", required, INVENTORY)


def mtu(subject: Subject) -> Finding:
    """Every interface that holds a declared address has the MTU of its network."""
    seen = []
    for link, name in _links(subject):
        if not name:
            what = f"no interface has {link.address}"
            return inconclusive(what, "see check interface", f"MTU {link.mtu}", INVENTORY)
        found = answer(subject.probe, "interfaces")[name]["mtu"]
        seen.append(f"{name} has MTU {found}")
        if found != str(link.mtu):
            remedy = f"run the deploy again, or on the node: ip link set {name} mtu {link.mtu}; or declare mtu={found}"
            return failed(seen[-1], f"MTU {link.mtu}", INVENTORY, "mtu", remedy)
    return passed("; ".join(seen), f"MTU {', '.join(str(link.mtu) for link, _ in _links(subject))}", INVENTORY)


def link_speed(subject: Subject) -> Finding:
    """What each NIC negotiated against what is declared; virtual interfaces say nothing that can be believed."""
    findings = [_one_speed(subject, link.speed_gbps or 0.0, name) for link, name in _links(subject)]
    for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE):
        for one in findings:
            if one.outcome is outcome:
                return one
    good = [one for one in findings if one.outcome is Outcome.PASS]
    if len(good) < 2:
        return good[0] if good else findings[0]
    advice = "; ".join(dict.fromkeys(one.advice for one in good if one.advice))
    return passed("; ".join(o.measured for o in good), "; ".join(o.required for o in good), INVENTORY, advice=advice)


def _links(subject: Subject) -> list[tuple[Link, str]]:
    """The node's links with the interface that holds each one's address, or an empty text."""
    cluster, held = subject.cluster, addresses(subject.probe)
    links = [cluster.link(subject.node, network) for network in cluster.networks]
    return [(link, held.get(link.address, "")) for link in links if link.address]


def _one_speed(subject: Subject, declared_gbps: float, interface: str) -> Finding:
    found = answer(subject.probe, "interfaces").get(interface)
    if not found or not found["physical"]:
        return not_applicable(f"{interface or 'no interface'} is not a physical interface: it reports no speed")
    speed = found["speed"]
    if not speed.lstrip("-").isdigit() or int(speed) <= 0:
        if subject.cluster.substrate != "hardware":
            return not_applicable(f"{interface} is no network card of its own: it reports no speed")
        return inconclusive("the driver reports no speed", "see: ethtool", f"{declared_gbps:g} Gb/s", INVENTORY)
    measured, required = f"{interface} at {int(speed) / 1000:g} Gb/s", f"≥ {declared_gbps:g} Gb/s"
    if int(speed) < declared_gbps * 1000:
        remedy = "change the cable or switch port (a bad pair makes a link fall back), or correct the declared speed"
        return failed(measured, required, INVENTORY, "link-speed", remedy)
    faster = int(speed) > declared_gbps * 1000
    advice = "the NIC is faster than declared; bandwidth is judged by the declared speed" if faster else ""
    return passed(measured, required, INVENTORY, advice=advice)


def link_flaps(subject: Subject) -> Finding:
    """The link is up now; whether it stayed so is seen at the end of the run, which adds a failure if it did not."""
    found = answer(subject.probe, "interfaces").get(subject.interface)
    if not found:
        return not_applicable("no interface has the declared address; see check interface")
    changes = found["carrier_changes"] or "unknown"
    return passed(f"{subject.interface} is up; {changes} changes of its carrier since boot", "it stays up", "kernel")


def decoy_interfaces(subject: Subject) -> Finding:
    """Further interfaces with an address, which collectives might choose unless they are told otherwise."""
    ours = {link.address for link in subject.node.links} | {subject.node.address}
    held = addresses(subject.probe)
    others = sorted({name for address, name in held.items() if address not in ours and not address.startswith("127.")})
    others = [name for name in others if name != subject.interface]
    required = "no other interface with an address, or runs pinned to the right one"
    if not others:
        return passed("none", required, "field-notes")
    advice = (
        f"{', '.join(others)} could be chosen by mistake; this run is pinned to {subject.interface}; for your own "
        f"runs: export NCCL_SOCKET_IFNAME=={subject.interface} GLOO_SOCKET_IFNAME={subject.interface}"
    )
    return passed(", ".join(others), required, "field-notes", advice=advice)
