"""Who connects to whom: a node nobody reaches, a node whose inbound is blocked, a cut link, or nothing at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from validation.model import CheckResult, Culprit, Outcome, ReachRecord
from validation.verdicts import limits
from validation.verdicts.evidence import LEAF_NODES, Directed, Evidence, link_name
from validation.verdicts.findings import Findings

VALIDATOR_ERRORS = ("no-listener", "no-answer")
"""The probe itself did not work there: that says nothing about the network."""
LARGE = "large-packets"
"""Small packets pass and large ones do not: an MTU that a part of the way can't carry."""
LARGE_REMEDY = (
    "Compare the MTU of {}'s interface, its switch port and the others (ip link; ping -M do -s 1472): "
    "small packets pass, those that fill a frame are lost."
)
FEW = 3
"""From so many dead partners on, most of them dead is the node's fault and not so many single links'."""


@dataclass
class Reach:
    """What connects; `dead` directed pairs are not measured any further."""

    findings: Findings = field(default_factory=Findings)
    dead: set[Directed] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    """Nodes named here, or without a working probe."""


def judge_reach(evidence: Evidence) -> Reach:
    reach = Reach()
    last: dict[Directed, ReachRecord] = {}
    gone = evidence.failed_nodes("pairs")
    for record in evidence.reaches:
        if not gone.intersection((record.src, record.dst)):
            last[record.src, record.dst] = record
    broken = {pair: r for pair, r in last.items() if not r.ok and r.error in VALIDATOR_ERRORS}
    dead = {pair: r for pair, r in last.items() if not r.ok and pair not in broken}
    reach.dead = {*dead, *broken}
    _broken_probe(broken, reach)
    tried = {pair for pair in last if pair not in broken}
    left = set(dead)
    if _all_dead(tried, left):
        _name_cluster(evidence, dead, reach)
        return reach
    _name_switches(evidence, tried, left, dead, reach)
    _name_nodes(tried, left, dead, reach)
    _name_links(tried, left, dead, reach)
    _results(evidence, tried, dead, reach)
    return reach


def _all_dead(tried: set[Directed], dead: set[Directed]) -> bool:
    """Most of at least three nodes reach nobody and are reached by nobody."""
    nodes = {name for pair in tried for name in pair}
    cut_off = nodes - {name for pair in tried if pair not in dead for name in pair}
    return len(nodes) >= limits.MAJORITY_NODES and len(cut_off) > limits.MAJORITY * len(nodes)


def _name_cluster(evidence: Evidence, dead: dict[Directed, ReachRecord], reach: Reach) -> None:
    facts = (f"{len(dead)} of {len(evidence.reaches)} connections between nodes fail: {_errors(dead.values())}",)
    remedy = "Check what all nodes share: the switch, a firewall on every node, addresses and network masks."
    reach.findings.culprits.append(
        Culprit(kind="cluster", subject=evidence.cluster, cause="unreachable", evidence=facts, remedy=remedy)
    )
    reach.findings.results.append(_row(evidence.cluster, Outcome.FAIL, facts[0], remedy))
    reach.findings.doubtful |= {name for pair in dead for name in pair}


def _name_switches(
    evidence: Evidence, tried: set[Directed], left: set[Directed], dead: dict[Directed, ReachRecord], reach: Reach
) -> None:
    """A leaf none of whose nodes connects to any other leaf; of two leaves nobody can say which one it is."""
    across: dict[str, list[Directed]] = defaultdict(list)
    for pair in sorted(tried):
        if evidence.crosses(pair):
            for node in pair:
                across[evidence.leaves.get(node, "")].append(pair)
    cut = [leaf for leaf, pairs in sorted(across.items()) if left.issuperset(pairs) and _many(leaf, pairs, evidence)]
    subjects = cut
    if len(across) > 1 and len(cut) == len(across):
        subjects = ["–".join(cut)] if len(cut) == 2 else ["spine"]
    for subject in subjects:
        told = cut if subject == "spine" else subject.split("–")
        mine = sorted({pair for leaf in told for pair in across[leaf]})
        both = "; with two leaves nothing tells which one it is" if "–" in subject else ""
        fact = f"all {len(mine)} connections across fail: {_errors(dead[pair] for pair in mine)}{both}"
        remedy = f"Check the uplinks of {subject.replace('–', ' and ')}: cables, ports, VLAN, the switch above."
        reach.findings.culprits.append(
            Culprit(kind="switch", subject=subject, cause="unreachable", evidence=(fact,), remedy=remedy)
        )
        reach.findings.results.append(_row(subject, Outcome.FAIL, fact, remedy))
        left -= set(mine)
        tried -= set(mine)


def _many(leaf: str, pairs: Iterable[Directed], evidence: Evidence) -> bool:
    """Nodes on both sides: a single one could be cut off by itself."""
    ends = {node for pair in pairs for node in pair}
    own = sum(evidence.leaves.get(node) == leaf for node in ends)
    return min(own, len(ends) - own) >= LEAF_NODES


def _name_nodes(tried: set[Directed], left: set[Directed], dead: dict[Directed, ReachRecord], reach: Reach) -> None:
    """The node with most dead connections first; what it explains is not held against the others."""
    while True:
        votes = {
            node: found for node in sorted({n for p in left for n in p}) if (found := _node_cause(node, tried, left))
        }
        if not votes:
            return
        node = max(sorted(votes), key=lambda name: sum(name in pair for pair in left))
        cause, remedy = votes[node]
        mine = {pair: dead[pair] for pair in left if node in pair}
        if {record.error.split(" ")[0] for record in mine.values()} == {LARGE}:
            cause, remedy = LARGE, LARGE_REMEDY.format(node)
        to, out = [p for p in mine if p[1] == node], [p for p in mine if p[0] == node]
        partners = len({n for pair in tried if node in pair for n in pair} - {node})
        facts = (
            f"{len(to)} of {partners} partners can't connect to {node}, it can't connect to {len(out)}: "
            f"{_errors(mine.values())}",
        )
        reach.findings.culprits.append(
            Culprit(kind="node", subject=node, cause=cause, evidence=facts, remedy=remedy, node=node)
        )
        reach.findings.results.append(_row(node, Outcome.FAIL, facts[0], remedy))
        reach.nodes.add(node)
        left -= set(mine)
        tried -= {pair for pair in tried if node in pair}


def _node_cause(node: str, tried: set[Directed], dead: set[Directed]) -> tuple[str, str] | None:
    """Cause and remedy if this node explains its dead connections better than single links do."""
    inbound, outbound = [p for p in tried if p[1] == node], [p for p in tried if p[0] == node]
    dead_in, dead_out = [p for p in inbound if p in dead], [p for p in outbound if p in dead]
    if len(inbound) < 2:
        return None
    all_in, all_out = len(dead_in) == len(inbound), len(dead_out) == len(outbound)
    most = len(dead_in) >= FEW and 2 * len(dead_in) > len(inbound)
    if all_in and all_out:
        return "unreachable", f"Look at {node}'s cable, NIC, address and firewall on the cluster's network."
    if (all_in or most) and not dead_out:
        return (
            "firewall-inbound",
            f"Open {node}'s high TCP ports to the cluster's network (nft list ruleset); it can connect to the others.",
        )
    if all_out and not dead_in:
        return "firewall-outbound", f"Let {node} connect to the others' high TCP ports (nft list ruleset)."
    if most:
        return "unreachable", f"Look at {node}'s cable, NIC, routes and firewall: most partners don't connect."
    return None


def _name_links(tried: set[Directed], left: set[Directed], dead: dict[Directed, ReachRecord], reach: Reach) -> None:
    for a, b in sorted({(min(pair), max(pair)) for pair in left}):
        ways = [pair for pair in ((a, b), (b, a)) if pair in left]
        facts = tuple(f"{src}→{dst}: {dead[src, dst].error or 'no connection'}" for src, dst in ways)
        both = len(ways) == 2
        large = all(dead[pair].error.startswith(LARGE) for pair in ways)
        nodes = {name for pair in tried for name in pair}
        told = (
            "both connect with other nodes" if len(nodes) > 2 else "with two nodes nothing tells the link from its ends"
        )
        remedy = (
            f"Check what only {a} and {b} share: cable, switch ports, routes, a traffic rule about the other's address."
            if both or large
            else f"Check the firewall of {ways[0][1]} about {ways[0][0]} (nft list ruleset): the other way works."
        )
        reach.findings.culprits.append(
            Culprit(
                kind="link",
                subject=link_name(a, b),
                cause=LARGE if large else "unreachable" if both else "firewall",
                evidence=tuple(fact for fact in (*facts, told) if fact),
                remedy=remedy,
            )
        )
        reach.findings.results.append(_row(link_name(a, b), Outcome.FAIL, "; ".join(facts), remedy))


def _broken_probe(broken: dict[Directed, ReachRecord], reach: Reach) -> None:
    by_node: dict[str, list[ReachRecord]] = defaultdict(list)
    for (src, dst), record in sorted(broken.items()):
        by_node[dst if record.error == "no-listener" else src].append(record)
    for node, records in by_node.items():
        note = f"the probe did not work on {node}: {records[0].error}"
        reach.findings.results.append(_row(node, Outcome.ERROR, note, "Read the rank's log; run again."))
        reach.findings.doubtful.add(node)


def _results(evidence: Evidence, tried: set[Directed], dead: dict[Directed, ReachRecord], reach: Reach) -> None:
    """One PASS a node that connects with everybody but those named."""
    concerned = {name for pair in dead for name in pair}
    partners: dict[str, set[str]] = defaultdict(set)
    for a, b in tried:
        partners[a].add(b)
        partners[b].add(a)
    for node in sorted(set(partners) - reach.nodes):
        count = len(partners[node])
        if node not in concerned or all(reach.nodes.intersection(pair) for pair in dead if node in pair):
            reach.findings.results.append(_row(node, Outcome.PASS, f"connects with {count} nodes, both ways", ""))


def _errors(records: Iterable[ReachRecord]) -> str:
    return ", ".join(sorted({record.error or "no connection" for record in records}))


def _row(subject: str, outcome: Outcome, note: str, remedy: str) -> CheckResult:
    return CheckResult(
        subject=subject, stage="pairs", check="reach", outcome=outcome, measured=note, remedy=remedy,
        required="every node connects to every node's high TCP ports", origin="training opens such ports between ranks",
    )  # fmt: skip
