"""Faults of links: put in on the switch's end of a node's plug, or on the plug itself, from outside the node."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from lab.errors import CommandFailed, LabError
from lab.fault_model import Fault, Memory, Site
from lab.network import in_netns, shape_port
from lab.plan import NodePlan, Port, tbf
from lab.process import end, launch, recorded, run

SLOW = 0.1
"""Of the declared speed."""
HIGH_PORTS = "20000-65535"
"""Above those of Slurm, ssh and the exporters: where ranks listen."""
FLAPS = "while :; do ip -n {ns} link set {port} down; sleep 1; ip -n {ns} link set {port} up; sleep 4; done"


# --- rules: a table a fault, in the switch's bridge family --------------------------------------------------------


def table(site: Site) -> str:
    """klaster_fault_NAME_NODE: nobody else's table is touched."""
    return f"klaster_fault_{site.name}_{site.node.name}".replace("-", "_").replace(".", "_")


def put_rules(site: Site, *rules: str) -> None:
    """A table with these rules where frames pass between plugs; refused as a whole if the kernel can't do one."""
    name = table(site)
    lines = [f"add table bridge {name}", f"add chain bridge {name} forward {{ type filter hook forward priority -1; }}"]
    lines += [f"add rule bridge {name} forward {rule}" for rule in rules]
    site.switch("nft", "-f", "-", text_in="\n".join(lines) + "\n")


def drop_rules(site: Site, _: Memory) -> None:
    with suppress(CommandFailed):  # it is not there
        site.switch("nft", "delete", "table", "bridge", table(site))


def _in(node: NodePlan) -> str:
    return f"oifname {{ {', '.join(port.outer for port in node.ports)} }}"


def _out(node: NodePlan) -> str:
    return f"iifname {{ {', '.join(port.outer for port in node.ports)} }}"


def _between(site: Site, rule: str, *, both: bool = True) -> list[str]:
    a, b = site.node, site.other
    return [f"{_out(a)} {_in(b)} {rule}"] + [f"{_out(b)} {_in(a)} {rule}"] * both


UPLINK = 'iifname != "uplink" oifname != "uplink"'
"""The control machine's own connection is spared: it is no part of the cluster."""


def _drop_all(site: Site) -> None:
    put_rules(site, f"{_in(site.node)} drop", f"{_out(site.node)} drop")


def _isolate(site: Site) -> None:
    put_rules(site, f"{UPLINK} {_in(site.node)} drop", f"{UPLINK} {_out(site.node)} drop")


def _cut(site: Site) -> None:
    put_rules(site, *_between(site, "drop"))


def _cut_one_way(site: Site) -> None:
    """Connections from the first to the second are refused an answer; those the other way work."""
    put_rules(site, *_between(site, "tcp flags & (syn | ack) == syn drop", both=False))


def _firewall(site: Site) -> None:
    put_rules(site, f"{UPLINK} {_in(site.node)} tcp dport {HIGH_PORTS} tcp flags & (syn | ack) == syn drop")


def _firewall_out(site: Site) -> None:
    put_rules(site, f"{UPLINK} {_out(site.node)} tcp dport {HIGH_PORTS} tcp flags & (syn | ack) == syn drop")


def _loss(site: Site) -> None:
    some = "numgen random mod 100 < 1 drop"
    put_rules(site, f"{UPLINK} {_in(site.node)} {some}", f"{UPLINK} {_out(site.node)} {some}")


def _lose_on_link(site: Site) -> None:
    put_rules(site, *_between(site, "numgen random mod 100 < 3 drop"))


def _black_hole(site: Site) -> None:
    """Handshakes and small messages pass; whatever fills a frame does not."""
    size = "meta length > 1300 drop"
    put_rules(site, f"{UPLINK} {_in(site.node)} {size}", f"{UPLINK} {_out(site.node)} {size}")


def _corrupt(site: Site) -> None:
    """A byte far inside of some large packets, after which the checksum is corrected: TCP does not notice."""
    which = f"meta length > 1000 tcp dport {HIGH_PORTS} tcp sport {HIGH_PORTS} numgen random mod 50 == 0"
    put_rules(site, f"{UPLINK} {_in(site.node)} {which} @th,2400,8 set 0x5a")


# --- shapes -------------------------------------------------------------------------------------------------------


def _slow_link(site: Site) -> None:
    for port in site.node.ports:
        shape_port(site.plan, site.node, port, port.speed_mbit * SLOW)


def _slow_egress(site: Site) -> None:
    for port in site.node.ports:
        shape_port(site.plan, site.node, port, port.speed_mbit * SLOW, egress_only=True)


def _slow_ingress(site: Site) -> None:
    for port in site.node.ports:
        _tc(site.plan.instance.switch, port.outer, *tbf(port.speed_mbit * SLOW))


def _tc(netns: str, interface: str, *words: str) -> None:
    run(["tc", "-n", netns, "qdisc", "replace", "dev", interface, "root", *words])


def _unshape(site: Site, _: Memory) -> None:
    for port in site.node.ports:
        with suppress(CommandFailed):  # the node and its plug are gone
            shape_port(site.plan, site.node, port, port.speed_mbit)


def _slow_pair(site: Site) -> None:
    """Only what passes between two nodes: a police limit on the way through the switch."""
    rate = max(1, int(_first(site).speed_mbit * SLOW / 8))
    put_rules(site, *_between(site, f"limit rate over {rate} mbytes/second burst 256 kbytes drop"))


def _first(site: Site) -> Port:
    return site.node.ports[0]


@cache
def _no_netem(_: Site | None) -> str:
    try:
        run(["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    except CommandFailed:
        return "this machine's kernel has no netem (sch_netem), and nothing else here delays packets"
    return ""


def netem(speed_mbit: float) -> tuple[str, ...]:
    return ("netem", "delay", "20ms", "10ms", "limit", "20000", "rate", f"{speed_mbit:g}mbit")


def _delay(site: Site) -> None:
    for port in site.node.ports:
        for netns, interface in ((site.node.netns, port.inner), (site.plan.instance.switch, port.outer)):
            _tc(netns, interface, *netem(port.speed_mbit))


# --- the plug itself ----------------------------------------------------------------------------------------------


def _set_mtu(site: Site) -> None:
    for port in site.node.ports:
        run(["ip", "-n", site.node.netns, "link", "set", port.inner, "mtu", "9000"])


def _unset_mtu(site: Site, _: Memory) -> None:
    for port in site.node.ports:
        with suppress(CommandFailed):
            run(["ip", "-n", site.node.netns, "link", "set", port.inner, "mtu", str(port.mtu)])


def _flap(site: Site) -> None:
    script = FLAPS.format(ns=site.plan.instance.switch, port=_first(site).outer)
    with open("/dev/null", "wb") as log:  # noqa: PTH123 - a device
        launch(["sh", "-c", script], site.record, log)


def _steady(site: Site, _: Memory) -> None:
    if pid := recorded(site.record):
        end([pid])
    site.record.unlink(missing_ok=True)
    with suppress(CommandFailed):
        run(["ip", "-n", site.plan.instance.switch, "link", "set", _first(site).outer, "up"])


def _plug_out(site: Site) -> None:
    for port in site.node.ports:
        run(["ip", "-n", site.plan.instance.switch, "link", "set", port.outer, "down"])


def _plug_in(site: Site, _: Memory) -> None:
    for port in site.node.ports:
        with suppress(CommandFailed):
            run(["ip", "-n", site.plan.instance.switch, "link", "set", port.outer, "up"])


def _decoy(site: Site) -> None:
    netns = site.node.netns
    run(["ip", "-n", netns, "link", "add", "docker0", "type", "bridge"])
    run(["ip", "-n", netns, "addr", "add", "172.17.0.1/16", "dev", "docker0"])
    run(["ip", "-n", netns, "link", "set", "docker0", "up"])


def _undecoy(site: Site, memory: Memory) -> None:
    if not memory["there"]:
        with suppress(CommandFailed):
            run(["ip", "-n", site.node.netns, "link", "delete", "docker0"])


def _decoy_before(site: Site) -> Memory:
    if there := _interface(site, "docker0"):
        raise LabError(f"{site.node.name} has a docker0 of its own already")
    return {"there": there}


def _interface(site: Site, name: str) -> bool:
    try:
        run(in_netns(site.node.netns, "ip", "link", "show", name))
    except CommandFailed:
        return False
    return True


def _same_address(site: Site) -> None:
    """The second node takes the address of the first as well: who answers is chance."""
    port, theirs = _first(site), site.other
    run(["ip", "-n", theirs.netns, "addr", "add", f"{port.address}/{port.prefix}", "dev", theirs.ports[0].inner])


def _own_address(site: Site, _: Memory) -> None:
    port, theirs = _first(site), site.other
    with suppress(CommandFailed):
        run(["ip", "-n", theirs.netns, "addr", "del", f"{port.address}/{port.prefix}", "dev", theirs.ports[0].inner])
    for node in site.plan.nodes:
        with suppress(CommandFailed):  # what the others learned meanwhile
            run(["ip", "-n", node.netns, "neigh", "flush", "all"])


FAULTS = (
    Fault("slow-link", "The link carries a tenth of its declared speed, both ways.", _slow_link, _unshape),
    Fault("slow-egress", "What the node sends passes at a tenth of the declared speed.", _slow_egress, _unshape),
    Fault("slow-ingress", "What the node receives passes at a tenth of that.", _slow_ingress, _unshape),
    Fault("slow-pair", "Only between two nodes the speed is a tenth.", _slow_pair, drop_rules, takes="pair"),
    Fault("loss", "One packet in a hundred to and from the node is lost.", _loss, drop_rules),
    Fault("loss-pair", "Of the packets between two nodes 3 % are lost.", _lose_on_link, drop_rules, takes="pair"),
    Fault("delay", "Every packet takes 20 ± 10 ms longer.", _delay, _unshape, unable=_no_netem),
    Fault("unreachable", "Nothing passes to or from the node.", _drop_all, drop_rules),
    Fault("isolated", "Nothing passes between the node and the others; you still reach it.", _isolate, drop_rules),
    Fault("cut", "Nothing passes between two nodes.", _cut, drop_rules, takes="pair"),
    Fault("cut-one-way", "The first node can't connect to the second.", _cut_one_way, drop_rules, takes="pair"),
    Fault("firewall", "High ports of the node are closed; ssh is open.", _firewall, drop_rules),
    Fault("firewall-outbound", "The node can't connect to high ports of the others.", _firewall_out, drop_rules),
    Fault("mtu", "The node's interface has MTU 9000.", _set_mtu, _unset_mtu),
    Fault("black-hole", "Packets that fill a frame vanish; small ones pass.", _black_hole, drop_rules),
    Fault("corrupt-packets", "Bytes in packets to the node change; checksums fit.", _corrupt, drop_rules),
    Fault("flapping", "The node's link goes down for a second every five.", _flap, _steady),
    Fault("link-down", "The node's plug is pulled.", _plug_out, _plug_in),
    Fault("decoy", "A docker0 with an address that collectives could choose.", _decoy, _undecoy, _decoy_before),
    Fault("same-address", "The second node has the first one's address.", _same_address, _own_address, takes="pair"),
)  # fmt: skip
