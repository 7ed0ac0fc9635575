"""The lab's network: bridges in a namespace of its own, a namespace a node, links shaped to their declared speed."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from lab.errors import CommandFailed, LabError
from lab.plan import Instance, NodePlan, Plan, Port, tbf
from lab.process import end, run

UNREACHABLE_METRIC = "4278198272"
NETNS = Path("/run/netns")


def in_netns(netns: str, *argv: str) -> list[str]:
    """A command line inside a namespace. Not `ip netns exec`: that one remounts /sys."""
    return ["nsenter", f"--net={NETNS / netns}", "--", *argv]


def connect(plan: Plan) -> None:
    """Make what is missing of the switch, this machine's plug and the place outside."""
    for cidr in plan.cidrs:  # first of all: from here on no packet for the lab can leave this machine
        run(["ip", "route", "replace", "unreachable", cidr, "metric", UNREACHABLE_METRIC])
    for netns in (plan.instance.switch, plan.instance.outside):
        _ensure_netns(netns)
    run(in_netns(plan.instance.switch, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"))
    for bridge in plan.bridges:
        if not _has_link(plan.instance.switch, bridge.name):
            # A bridge takes the smallest MTU of its ports unless it was set by hand.
            run(
                ["ip", "-n", plan.instance.switch, "link", "add", bridge.name, "mtu", str(bridge.mtu), "type", "bridge"]
            )
        run(
            [
                "ip",
                "-n",
                plan.instance.switch,
                "addr",
                "replace",
                f"{bridge.gateway}/{bridge.prefix}",
                "dev",
                bridge.name,
            ]
        )
        run(["ip", "-n", plan.instance.switch, "link", "set", bridge.name, "mtu", str(bridge.mtu), "up"])
    _plug_control(plan)
    _plug_outside(plan)


def refuse_foreign_addresses(plan: Plan) -> None:
    """Stop when this machine already has a way into the lab's range: it would be cut off from it."""
    for cidr in plan.cidrs:
        for line in run(["ip", "-4", "route", "show", "root", cidr]).splitlines():
            if plan.instance.control_interface not in line.split() and not line.startswith("unreachable"):
                raise LabError(f"this machine already has a route into {cidr} ({line.strip()}): change the inventory")


def _plug_control(plan: Plan) -> None:
    first, switch, interface = plan.bridges[0], plan.instance.switch, plan.instance.control_interface
    if not (Path("/sys/class/net") / interface).exists():
        run(["ip", "link", "add", interface, "type", "veth", "peer", "name", "uplink", "netns", switch])
    run(["ip", "-n", switch, "link", "set", "uplink", "mtu", str(first.mtu), "master", first.name, "up"])
    run(["ip", "addr", "replace", f"{plan.control}/{first.prefix}", "dev", interface])
    run(["ip", "link", "set", interface, "mtu", str(first.mtu), "up"])


def _plug_outside(plan: Plan) -> None:
    switch, outside = plan.instance.switch, plan.instance.outside
    if not _has_link(outside, "eth0"):
        run(["ip", "-n", switch, "link", "add", "outside", "type", "veth", "peer", "name", "eth0", "netns", outside])
    run(["ip", "-n", switch, "addr", "replace", f"{plan.outside_gateway}/{plan.outside_prefix}", "dev", "outside"])
    run(["ip", "-n", switch, "link", "set", "outside", "up"])
    run(["ip", "-n", outside, "addr", "replace", f"{plan.outside}/{plan.outside_prefix}", "dev", "eth0"])
    run(["ip", "-n", outside, "link", "set", "eth0", "up"])
    run(["ip", "-n", outside, "route", "replace", "default", "via", plan.outside_gateway])


def plug_node(plan: Plan, node: NodePlan) -> None:
    """Make what is missing of a node's namespace and links, and shape them as declared."""
    switch = plan.instance.switch
    _ensure_netns(node.netns)
    for port in node.ports:
        if not _has_link(switch, port.outer):
            mac = [] if plan.kind == "uml" else ["address", port.mac]  # that kernel has the address itself
            inner = ["name", port.inner, *mac, "mtu", str(port.mtu), "netns", node.netns]
            run(["ip", "-n", switch, "link", "add", port.outer, "mtu", str(port.mtu), "type", "veth", "peer", *inner])
        run(["ip", "-n", switch, "link", "set", port.outer, "master", port.bridge, "up"])
        if plan.kind == "uml":
            _leave_to_a_kernel(plan, node, port)
        else:
            run(["ip", "-n", node.netns, "addr", "replace", f"{port.address}/{port.prefix}", "dev", port.inner])
        run(["ip", "-n", node.netns, "link", "set", port.inner, "up"])
        shape_port(plan, node, port, port.speed_mbit)
    if plan.kind != "uml":
        run(["ip", "-n", node.netns, "route", "replace", "default", "via", plan.bridges[0].gateway])


def _leave_to_a_kernel(plan: Plan, node: NodePlan, port: Port) -> None:
    """A plug for a user-mode kernel: this machine has no address on it, and lets every frame and checksum alone."""
    run(["ip", "-n", node.netns, "link", "set", port.inner, "promisc", "on", "addrgenmode", "none"])
    for netns, interface in ((node.netns, port.inner), (plan.instance.switch, port.outer)):
        run(in_netns(netns, "ethtool", "-K", interface, "tx", "off"))


def shape_port(plan: Plan, node: NodePlan, port: Port, mbit: float, *, egress_only: bool = False) -> None:
    """Limit one plug, both ways unless told otherwise: on the node's end what it sends, on ours what it receives."""
    _qdisc(node.netns, port.inner, mbit)
    if not egress_only:
        _qdisc(plan.instance.switch, port.outer, mbit)


def shape(plan: Plan, node: NodePlan, mbit: float, *, egress_only: bool = False) -> None:
    for port in node.ports:
        shape_port(plan, node, port, mbit, egress_only=egress_only)


def _qdisc(netns: str, interface: str, mbit: float) -> None:
    run(["tc", "-n", netns, "qdisc", "replace", "dev", interface, "root", *tbf(mbit)])


def speeds_mbit(plan: Plan, node: NodePlan) -> list[tuple[float, float]]:
    """Each plug's present limits: what the node may send and what it may receive, Mb/s (0: none)."""
    return [(_limit(node.netns, port.inner), _limit(plan.instance.switch, port.outer)) for port in node.ports]


def _limit(netns: str, interface: str) -> float:
    found = json.loads(run(["tc", "-n", netns, "-j", "qdisc", "show", "dev", interface]))
    return float(next((q["options"]["rate"] * 8 / 1e6 for q in found if q["kind"] == "tbf"), 0))


CUTS = "bridge klaster_cuts"


def cut(plan: Plan, a: NodePlan, b: NodePlan) -> None:
    """Drop everything that passes between two nodes' plugs, on every network that both are in."""
    rules = [f"add table {CUTS}", f"add chain {CUTS} forward {{ type filter hook forward priority 0; }}"]
    for one in a.ports:
        for other in b.ports:
            if one.bridge == other.bridge:
                for i, o in ((one.outer, other.outer), (other.outer, one.outer)):
                    rules.append(f'add rule {CUTS} forward iifname "{i}" oifname "{o}" drop')
    run(in_netns(plan.instance.switch, "nft", "-f", "-"), text_in="\n".join(rules) + "\n")


def cuts(plan: Plan) -> list[tuple[str, str]]:
    """The pairs of nodes that are cut now, each once."""
    try:
        text = run(in_netns(plan.instance.switch, "nft", "list", "table", *CUTS.split()))
    except CommandFailed:
        return []
    owner = {port.outer: node.name for node in plan.nodes for port in node.ports}
    found = []
    for line in text.splitlines():
        words = [word.strip('"') for word in line.split()]
        if words[:1] == ["iifname"] and words[-1] == "drop":
            pair = tuple(sorted((owner.get(words[1], "?"), owner.get(words[3], "?"))))
            if pair not in found:
                found.append(pair)
    return [(a, b) for a, b in found]


def heal(plan: Plan) -> None:
    """Back to what the inventory declares: every link at its speed, none cut."""
    with suppress(CommandFailed):
        run(in_netns(plan.instance.switch, "nft", "delete", "table", *CUTS.split()))
    for node in plan.nodes:
        for port in node.ports:
            shape_port(plan, node, port, port.speed_mbit)


def disconnect(plan: Plan) -> None:
    """Take away every namespace, interface and route of the lab; what is already gone is fine."""
    for netns in our_namespaces(plan.instance):
        end(processes_in(netns))
        run(["ip", "netns", "delete", netns])
    with suppress(CommandFailed):  # its other end went with the namespace, most likely together with it
        run(["ip", "link", "delete", plan.instance.control_interface])
    for cidr in plan.cidrs:
        with suppress(CommandFailed):
            run(["ip", "route", "delete", "unreachable", cidr, "metric", UNREACHABLE_METRIC])


def processes_in(netns: str) -> list[int]:
    """Every process in one of our namespaces (none if there is no such namespace)."""
    try:
        return [int(pid) for pid in run(["ip", "netns", "pids", netns]).split()]
    except CommandFailed:
        return []


def our_namespaces(instance: Instance) -> list[str]:
    if not NETNS.is_dir():
        return []
    return sorted(
        e.name for e in NETNS.iterdir() if e.name == instance.switch or e.name.startswith(f"{instance.switch}-")
    )


def _ensure_netns(netns: str) -> None:
    path = NETNS / netns
    if (
        path.exists() and path.stat().st_dev == NETNS.stat().st_dev
    ):  # a mere file, left by an `ip netns add` that was killed half-way
        path.unlink()
    if not path.exists():
        run(["ip", "netns", "add", netns])
    run(["ip", "-n", netns, "link", "set", "lo", "up"])


def _has_link(netns: str, name: str) -> bool:
    return any(link["ifname"] == name for link in json.loads(run(["ip", "-n", netns, "-j", "link"])))
