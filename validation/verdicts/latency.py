"""Latency of pairs against the better pairs: a lasting delay (p50), and a tail that tells of lost packets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Literal

from validation.model import CellRecord, CheckResult, Culprit, Outcome, WantedRound
from validation.verdicts import limits
from validation.verdicts.evidence import Evidence, link_name
from validation.verdicts.findings import Findings
from validation.verdicts.leaves import judge_leaves
from validation.verdicts.localise import Locator
from validation.verdicts.readings import Readings, to_reading

LOSS_REMEDY = (
    "look for errors and drops on NIC and switch port (ethtool -S, ip -s link), cable, duplex and traffic rules."
)
DELAY_REMEDY = "look for a wrong route, a busy or power-saving NIC, and traffic rules (tc qdisc) there."


def judge_latency(evidence: Evidence, without: Iterable[str], switches: Iterable[str] = ()) -> Findings:
    """`without`, `switches`: named already; latency there is not judged until they are repaired."""
    gone = set(without) | evidence.failed_nodes("pairs")
    bad = set(switches)
    cells = [
        c
        for c in evidence.cells
        if not gone.intersection((c.src, c.dst))
        and (c.latency_us or c.error)
        and not (bad and bad.intersection(("spine", *_leaves(c, evidence))) and evidence.crosses((c.src, c.dst)))
    ]
    findings = Findings()
    if any(cell.latency_us for cell in cells):
        _judge_delay(evidence, cells, findings)
        delayed = findings.blamed_nodes()
        _judge_tail(evidence, [c for c in cells if not delayed.intersection((c.src, c.dst))], findings)
    return findings


def _leaves(cell: CellRecord, evidence: Evidence) -> tuple[str, str]:
    return evidence.leaves.get(cell.src, ""), evidence.leaves.get(cell.dst, "")


# --- a lasting delay ---------------------------------------------------------------------------------------------


def _judge_delay(evidence: Evidence, cells: list[CellRecord], findings: Findings) -> None:
    usual = _better([c for c in cells if c.latency_us], 0)
    limit_us = max(limits.LATENCY_FLOOR_US, limits.LATENCY_FACTOR * usual)
    shares = [(c, min(1.0, limit_us / c.latency_us[0])) for c in cells if c.latency_us and c.latency_us[0] > 0]
    every = [to_reading(cell, share) for cell, share in shares if cell.purpose != "leaf"]
    of_leaves = [to_reading(cell, share) for cell, share in shares if cell.purpose == "leaf"]
    readings = Readings(every)
    leaves = judge_leaves(readings, of_leaves, evidence)
    findings.wanted += leaves.wanted
    if leaves.open or leaves.named:
        readings = Readings(reading for reading in every if not leaves.withheld(reading.pair))
    for leaf in sorted(leaves.named):
        fact = f"median latency across over {limit_us / 1000:.3g} ms, {usual / 1000:.3g} ms elsewhere"
        _blame(findings, "switch", leaf, "latency", fact, f"At the uplinks of {leaf}, {DELAY_REMEDY}", limit_us)
    for leaf in sorted(leaves.open):
        findings.undecided.append(f"Latency over {leaf} is high and not decided; run again when idle.")
        findings.results.append(_row(leaf, "latency", Outcome.INCONCLUSIVE, "high across", limit_us))
    found = Locator(readings, evidence, fan_ins=False).locate()
    findings.wanted += found.wanted
    for node in sorted(found.named_nodes()):
        mine = [c.latency_us[0] for c, share in shares if node in (c.src, c.dst) and share < 1.0]
        fact = f"median latency {median(mine) / 1000:.3g} ms with its partners, {usual / 1000:.3g} ms elsewhere"
        _blame(findings, "node", node, "latency", fact, f"On {node}, {DELAY_REMEDY}", limit_us)
    for a, b in sorted({(min(pair), max(pair)) for pair in found.links}):
        mine = [c.latency_us[0] for c, share in shares if {a, b} == {c.src, c.dst} and share < 1.0]
        fact = f"median latency {median(mine) / 1000:.3g} ms between them, {usual / 1000:.3g} ms elsewhere"
        _blame(findings, "link", link_name(a, b), "latency", fact, f"Between {a} and {b}, {DELAY_REMEDY}", limit_us)
    open_nodes = {unit.node for unit in found.open_units} - found.named_nodes()
    if open_nodes or found.unclear_cluster or any(why != "named" for why in found.open_pairs.values()):
        nodes = sorted(open_nodes) or sorted({name for pair in found.open_pairs for name in pair}) or [evidence.cluster]
        findings.doubtful |= open_nodes
        text = f"Latency of {', '.join(nodes)} is high but not steady or not to be told apart; run again when idle."
        findings.undecided.append(text)
        findings.results.append(_row(evidence.cluster, "latency", Outcome.INCONCLUSIVE, text, limit_us))
    elif not findings.culprits:
        slowest = max(c.latency_us[0] for c, _ in shares)
        note = f"p50 at most {slowest / 1000:.3g} ms"
        findings.results.append(_row(evidence.cluster, "latency", Outcome.PASS, note, limit_us))


def _better(cells: list[CellRecord], index: int) -> float:
    """The lower quartile over pairs of their medians: what a good pair of this fleet has."""
    by_pair: dict[str, list[float]] = {}
    for cell in cells:
        if len(cell.latency_us) > index:
            by_pair.setdefault(link_name(cell.src, cell.dst), []).append(cell.latency_us[index])
    medians = sorted(median(values) for values in by_pair.values())
    return medians[len(medians) // 4] if medians else 0.0


# --- a tail ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tail:
    """One measured cell that counts: idle enough, or good anyway."""

    a: str
    b: str
    bad: bool
    dead: bool


def _judge_tail(evidence: Evidence, cells: list[CellRecord], findings: Findings) -> None:
    limit_us = max(limits.TAIL_FLOOR_US, limits.TAIL_FACTOR * _better([c for c in cells if c.latency_us], 1))
    tails = [tail for cell in cells if (tail := _tail(cell, limit_us))]
    bad = [tail for tail in tails if tail.bad]
    suspects = sorted({name for tail in bad for name in (tail.a, tail.b)})
    nodes = sorted({name for tail in tails for name in (tail.a, tail.b)})
    over = sorted({evidence.leaves.get(name, "") for name in suspects} - {""})
    leaf = next((leaf for leaf in over if _leaf_loses(leaf, tails, evidence)), None)
    named = next((node for node in suspects if _node_loses(node, tails)), None)
    link = next((pair for pair in sorted({(t.a, t.b) for t in bad}) if _link_loses(pair, tails)), None)
    if leaf:
        mine = [t for t in tails if _over(leaf, t, evidence)]
        fact = f"{sum(t.bad for t in mine)} of {len(mine)} cells across with stalls over {limit_us / 1000:.0f} ms"
        _blame(findings, "switch", leaf, "loss", fact, f"At the uplinks of {leaf}, {LOSS_REMEDY}", limit_us)
    elif named and len(nodes) > 2:
        mine = [t for t in tails if named in (t.a, t.b)]
        cause: Literal["loss", "network-unsteady"] = "network-unsteady" if sum(t.dead for t in mine) >= 2 else "loss"
        fact = f"{sum(t.bad for t in mine)} of {len(mine)} cells with stalls over {limit_us / 1000:.0f} ms or no data"
        _blame(findings, "node", named, cause, fact, f"On {named}, {LOSS_REMEDY}", limit_us)
    elif link:
        mine = [t for t in tails if (t.a, t.b) == link]
        fact = f"{sum(t.bad for t in mine)} of {len(mine)} cells with stalls over {limit_us / 1000:.0f} ms or no data"
        subject = link_name(*link)
        _blame(findings, "link", subject, "loss", fact, f"Between {link[0]} and {link[1]}, {LOSS_REMEDY}", limit_us)
    elif bad:
        _open_tail(evidence, tails, bad, findings, limit_us)
    elif tails:
        findings.results.append(_row(evidence.cluster, "latency-tail", Outcome.PASS, "no stall", limit_us))


def _tail(cell: CellRecord, limit_us: float) -> Tail | None:
    repetitions = cell.repetitions_gbps
    stalled = len(repetitions) > 1 and min(repetitions) < limits.STALL * median(repetitions)
    dead = bool(cell.error) and not repetitions
    bad = dead or stalled or (len(cell.latency_us) > 1 and cell.latency_us[1] > limit_us)
    busy = cell.idle_share is not None and cell.idle_share < limits.BUSY_IDLE_SHARE
    a, b = sorted((cell.src, cell.dst))
    return None if bad and busy else Tail(a, b, bad, dead)


def _node_loses(node: str, tails: list[Tail]) -> bool:
    mine, others = [t for t in tails if node in (t.a, t.b)], [t for t in tails if node not in (t.a, t.b)]
    partners = {name for t in mine if t.bad for name in (t.a, t.b)} - {node}
    return len(partners) > 1 and _often(mine) and _rare(others)


def _over(leaf: str, tail: Tail, evidence: Evidence) -> bool:
    """Whether this cell went over the leaf's uplinks."""
    return evidence.crosses((tail.a, tail.b)) and leaf in (evidence.leaves.get(tail.a), evidence.leaves.get(tail.b))


def _leaf_loses(leaf: str, tails: list[Tail], evidence: Evidence) -> bool:
    """Often across, with several nodes on both sides, and rarely anywhere else."""
    mine = [t for t in tails if _over(leaf, t, evidence)]
    ends = {name for t in mine if t.bad for name in (t.a, t.b)}
    own = sum(evidence.leaves.get(name) == leaf for name in ends)
    others = [t for t in tails if not _over(leaf, t, evidence)]
    return min(own, len(ends) - own) > 1 and _often(mine) and _rare(others) and len(others) > 0


def _link_loses(pair: tuple[str, str], tails: list[Tail]) -> bool:
    return _often([t for t in tails if (t.a, t.b) == pair]) and _rare([t for t in tails if (t.a, t.b) != pair])


def _often(tails: list[Tail]) -> bool:
    bad = sum(t.bad for t in tails)
    return bad >= limits.TAIL_CELLS and bad >= limits.TAIL_SHARE * len(tails)


def _rare(tails: list[Tail]) -> bool:
    return sum(t.bad for t in tails) <= limits.TAIL_ELSEWHERE * len(tails)


def _open_tail(evidence: Evidence, tails: list[Tail], bad: list[Tail], findings: Findings, limit_us: float) -> None:
    """A few stalls: measure the pairs concerned some more, then either it is rare, or it stays undecided."""
    spent = len({c.round for c in evidence.cells if c.purpose == "retest"})
    pairs = sorted({(t.a, t.b) for t in bad})
    fact = f"{len(bad)} of {len(tails)} cells stalled"
    if spent < limits.TAIL_ROUNDS and evidence.pairs_open:
        pair = pairs[spent % len(pairs)]
        findings.wanted.append(WantedRound(purpose="retest", pairs=(pair,), spacing_s=0.0))
    if _rare(tails) or len(bad) < limits.TAIL_CELLS:
        advice = f"{fact}: rare, so nobody is named; watch retransmissions (nstat TcpRetransSegs)."
        findings.results.append(_row(evidence.cluster, "latency-tail", Outcome.PASS, fact, limit_us, advice))
        return
    text = f"Stalls ({fact}) on {', '.join(link_name(*pair) for pair in pairs[:6])}: not to be told whose; run again."
    findings.undecided.append(text)
    findings.results.append(_row(evidence.cluster, "latency-tail", Outcome.INCONCLUSIVE, text, limit_us))


def _blame(
    findings: Findings,
    kind: Literal["node", "link", "switch"],
    subject: str,
    cause: str,
    fact: str,
    remedy: str,
    limit_us: float,
) -> None:
    node = subject if kind == "node" else None
    findings.culprits.append(
        Culprit(kind=kind, subject=subject, cause=cause, evidence=(fact,), remedy=remedy, node=node)
    )
    check = "latency" if cause == "latency" else "latency-tail"
    findings.results.append(_row(subject, check, Outcome.FAIL, fact, limit_us, remedy=remedy))


def _row(
    subject: str, check: str, outcome: Outcome, measured: str, limit_us: float, advice: str = "", remedy: str = ""
) -> CheckResult:
    floor = limits.LATENCY_FLOOR_US if check == "latency" else limits.TAIL_FLOOR_US
    factor = limits.LATENCY_FACTOR if check == "latency" else limits.TAIL_FACTOR
    return CheckResult(
        subject=subject, stage="pairs", check=check, outcome=outcome, measured=measured,
        required=f"{'p50' if check == 'latency' else 'p99'} ≤ {limit_us / 1000:.3g} ms",
        origin=f"{factor:g} × the better pairs, at least {floor / 1000:g} ms", advice=advice, remedy=remedy,
    )  # fmt: skip
