"""What was found out about leaf switches, as culprits, rows and open questions."""

from __future__ import annotations

from statistics import median

from validation.model import Culprit, Outcome
from validation.verdicts import limits
from validation.verdicts.bandwidth_rows import OPEN_WORDS, bandwidth_row
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings
from validation.verdicts.leaves import Leaves

DECIDES = (
    "swap the uplinks' ports and cables of one leaf and run pairs again: the fault moves with them or stays; "
    "nodes on a third leaf would tell, too"
)


def tell_leaves(leaves: Leaves, evidence: Evidence, findings: Findings) -> None:
    for leaf, ways in sorted(leaves.named.items()):
        _name(leaf, len(ways) == 2, leaves, evidence, findings)
    for leaf, why in sorted(leaves.open.items()):
        what = f"the way between {leaf.replace('–', ' and ')}" if leaves.trunk else f"switch {leaf}"
        remedy = DECIDES if why == "trunk" else "run again"
        findings.undecided.append(f"Bandwidth over {what}: {OPEN_WORDS.get(why, why)}; {remedy}.")
        note = f"nodes are low across, but {OPEN_WORDS.get(why, why)}"
        findings.results.append(bandwidth_row(leaf, Outcome.INCONCLUSIVE, "", "", note, remedy))
    _undeclared(evidence, findings)


def _name(leaf: str, both_ways: bool, leaves: Leaves, evidence: Evidence, findings: Findings) -> None:
    count = sum(found == leaf for found in leaves.of.values())
    gbps = [gbps for pair, gbps in evidence.pair_gbps.items() if leaves.withheld(pair) == leaf]
    facts: tuple[str, ...]
    level = f"median {median(gbps):.3g} Gb/s" if gbps else "nothing comes through"
    if leaf == "spine":
        cause, facts = "spine", (f"all leaves are low across and good inside: {level} across",)
        remedy = "Check the switch above the leaves, and whether the declared oversubscription is what is built."
    elif leaf in leaves.whole:
        cause, facts = "switch", (f"its {count} nodes are low with each other and with all others: {level}",)
        remedy = f"Check switch {leaf}: its load, port speeds, errors and firmware; then power-cycle or replace it."
    else:
        way = "" if both_ways else ", one way only"
        cause, facts = "uplink", (f"its {count} nodes are low with nodes on other leaves{way} ({level}), good inside",)
        remedy = f"Check the uplinks of {leaf}: one that is down or slow, errors on cable and optics, port channel."
    facts = (*facts, f"low in {limits.LEAF_ROUNDS} spaced rounds that loaded it fully, beside good controls")
    findings.culprits.append(Culprit(kind="switch", subject=leaf, cause=cause, evidence=facts, remedy=remedy))
    required = f"{limits.LOW:.2f} of the declared speed over the oversubscription"
    findings.results.append(bandwidth_row(leaf, Outcome.FAIL, level, required, facts[0], remedy))


def _undeclared(evidence: Evidence, findings: Findings) -> None:
    """Leaves over which pairs were low that nothing is declared about: one question for all of them."""
    missing = {
        evidence.leaves.get(node, "")
        for pair, gbps in evidence.pair_gbps.items()
        if evidence.dilution(pair) is None and gbps < limits.CLEAR * (evidence.declared_gbps(*pair) or 0.0)
        for node in pair
        if not evidence.oversubscription(evidence.leaves.get(node, ""))
    }
    if missing:
        names = ", ".join(sorted(missing))
        text = f"Bandwidth across leaves: the oversubscription of {names} is not declared; say it in the inventory."
        findings.undecided.append(text)
