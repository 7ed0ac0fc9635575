"""Verdicts on a node's NVIDIA cards at work: what payloads/gpu_load.py measured, against the card and its peers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from validation.checks.gpu import NO_GPU, card, has_gpus, readable
from validation.checks.gpu_smi import bus_id, parse_kernel
from validation.checks.gpu_xid import meaning
from validation.checks.node import Finding, Subject, answer, failed, inconclusive, not_applicable, passed, problem

PEER_SHARE = 0.9
"""A like card at less than this of the median of its peers is slow: like cards differ by some 3 % (SuperBench)."""
LEAST_PEERS = 3
"""Cards of one model, the judged one included, that make a median worth something."""
PEERS = "median of like cards"
COPY_SHARE, COPY_WAY_BACK = 0.8, 0.5
"""Copies share links with whatever else goes on; a trained-down link costs half or more."""


def load(subject: Subject) -> dict[str, Any] | Finding:
    """What the payload measured; a payload that never came back is a finding about the cards."""
    if not has_gpus(subject):
        return not_applicable(NO_GPU)
    log = readable(subject)
    if isinstance(log, Finding):
        return log
    why = problem(subject.probe, "gpu_load")
    if "no answer" in why:
        remedy = "drain and reboot the node; a hang in peer copies: Gpu(no_p2p_because=…)"
        return failed(f"load: {why}", "an end", "validator's deadline", "gpu-hangs", remedy, culprit_kind="gpu")
    found: dict[str, Any] = answer(subject.probe, "gpu_load")
    return found


def _fleet_values(subject: Subject, model: str, read: Any) -> list[float]:
    """One quantity of every card of a model in the cluster."""
    values = []
    for probe in subject.fleet.probes.values():
        for one in probe.get("gpu_load", {}).get("ok", {}).get("cards", ()):
            value = read(one)
            if one["name"] == model and value is not None:
                values.append(float(value))
    return values


def _against_peers(subject: Subject, cards: Sequence[Mapping[str, Any]], read: Any, unit: str, cause: str) -> Finding:
    seen, few = [], False
    for one in cards:
        value = read(one)
        if value is None:
            continue
        peers = _fleet_values(subject, one["name"], read)
        seen.append(f"{bus_id(one['bus_id'])} {value:.4g} {unit}")
        if len(peers) < LEAST_PEERS:
            few = True
            continue
        middle = statistics.median(peers)
        if value < PEER_SHARE * middle:
            return failed(
                f"{bus_id(one['bus_id'])}: {value:.4g} {unit}", f"≥ {PEER_SHARE * middle:.4g} {unit}", PEERS, cause,
                "heat, power limit and clocks: nvidia-smi -q -d PERFORMANCE,CLOCK,POWER; then swap two cards and see "
                "whether the slowness goes with the card",
                culprit_kind="gpu", culprit=card(subject, bus_id(one["bus_id"])),
            )  # fmt: skip
    advice = "too few like cards to compare with: the figures stand alone" if few else ""
    return passed("; ".join(seen) or "nothing to measure", f"≥ {PEER_SHARE:.0%} of it", PEERS, advice=advice)


def gpu_compute(subject: Subject) -> Finding:
    """Matrix products are right in every precision, and as fast as those of like cards."""
    found = load(subject)
    if isinstance(found, Finding):
        return found
    for one in found["cards"]:
        wrong = sorted(kind for kind, right in one["gemm_ok"].items() if not right)
        if wrong:
            return failed(
                f"{bus_id(one['bus_id'])}: wrong results in {', '.join(wrong)}", "right results", "computed twice",
                "gpu-wrong-results", "take the card out of use: it corrupts trainings silently; replace it (RMA)",
                culprit_kind="gpu", culprit=card(subject, bus_id(one["bus_id"])),
            )  # fmt: skip
    kinds = sorted({kind for one in found["cards"] for kind in one["gemm_tflops"]})
    findings = [
        _against_peers(
            subject, found["cards"], lambda c, k=kind: c["gemm_tflops"].get(k), f"TFLOP/s {kind}", "gpu-slow"
        )
        for kind in kinds
    ]
    bad = [finding for finding in findings if finding.cause]
    if bad or not findings:
        return bad[0] if bad else passed("nothing to measure", "", PEERS)
    measured = "; ".join(finding.measured for finding in findings)
    return passed(measured, findings[0].required, PEERS, advice=findings[0].advice)


def gpu_memory_bandwidth(subject: Subject) -> Finding:
    """Copies inside each card's memory are as fast as those of like cards."""
    found = load(subject)
    if isinstance(found, Finding):
        return found
    return _against_peers(subject, found["cards"], lambda c: c.get("memory_gbytes_s"), "GB/s", "gpu-memory-slow")


def gpu_link(subject: Subject) -> Finding:
    """PCIe generation and width while copying: at rest a card falls back to generation 1, and that is no fault."""
    found = load(subject)
    if isinstance(found, Finding):
        return found
    log = readable(subject)
    assert not isinstance(log, Finding)
    limits = {one.uuid: one for one in log.gpus}
    seen, advice = [], []
    for one in found["cards"]:
        most, busy, where = limits.get(one["uuid"]), one["under_load"], bus_id(one["bus_id"])
        gen, width = busy.get("link_gen"), busy.get("link_width")
        seen.append(f"{where} gen {gen} ×{width}")
        if most is None or gen is None or width is None:
            unsaid = f"{where} gen {gen} ×{width}" if most else f"{where} {one['uuid']}: no such card in nvidia-smi -q"
            remedy = "nvidia-smi -q -d PERFORMANCE; this driver does not say the link: look at lspci -vv (LnkSta)"
            return inconclusive(unsaid, remedy, "what card and slot can", "nvidia-smi", "gpu-unknown")
        if most.link_gen_max and gen < most.link_gen_max:
            return _slow_link(subject, where, f"gen {gen}", f"gen {most.link_gen_max}", one)
        wider = max(_fleet_values(subject, one["name"], lambda c: c["under_load"].get("link_width")), default=0)
        if width < wider:
            return _slow_link(subject, where, f"×{width}", f"×{wider:.0f}, as like cards have", one)
        if most.link_width_max and width < most.link_width_max:
            advice.append(f"{where} has {width} of {most.link_width_max} lanes: the slot or its neighbour")
    return passed("; ".join(seen), "what card and slot can", "nvidia-smi", advice="; ".join(advice))


def _slow_link(subject: Subject, where: str, measured: str, required: str, one: Mapping[str, Any]) -> Finding:
    speed = one.get("h2d_gbytes_s")
    return failed(
        f"{where}: {measured} under load" + (f", {speed:.3g} GB/s to the card" if speed else ""), required,
        "nvidia-smi while copying", "gpu-link", "reseat the card, try another slot or riser, look at the BIOS setting",
        culprit_kind="gpu", culprit=card(subject, where),
    )  # fmt: skip


def gpu_copies(subject: Subject) -> Finding:
    """Copies between cards arrive as sent; where they do not, NCCL must not use them."""
    found = load(subject)
    if isinstance(found, Finding):
        return found
    if not found["peers"]:
        return not_applicable("one GPU")
    declared = [gpu.no_p2p_because for gpu in subject.node.gpus if gpu.no_p2p_because]
    wrong = [pair for pair in found["peers"] if not pair["ok"]]
    measured = ", ".join(f"{p['src']}→{p['dst']} {p['gbytes_s']:.3g} GB/s" for p in found["peers"] if p["ok"])
    if not wrong:
        if slow := slow_copies(subject, found["peers"]):
            return slow
        advice = "copies are right, and the inventory turns them off (no_p2p_because)" if declared else ""
        return passed(measured, "data as sent", "seeded pattern", advice=advice)
    pairs = ", ".join(f"GPU {pair['src']} → {pair['dst']} {pair['error'] or 'wrong data'}" for pair in wrong)
    if declared:
        return passed(pairs, "turned off", "inventory", advice=f"copies between cards are off: {declared[0]}")
    return failed(
        pairs, "data as sent", "seeded pattern", "p2p",
        f'write Gpu(no_p2p_because="copies between cards were wrong on {subject.name}") and deploy: NCCL then goes '
        "through the host's memory",
        culprit_kind="configuration", culprit=f"peer copies on {subject.name}",
    )  # fmt: skip


def slow_copies(subject: Subject, pairs: Sequence[Mapping[str, Any]]) -> Finding | None:
    """A direction far below the same two places in like nodes, or, in fewer nodes than that, below its way back.

    Pairs of one node are not compared with each other: NVLink, one switch and two sockets are different on purpose.
    """
    rates = {(one["src"], one["dst"]): float(one["gbytes_s"]) for one in pairs}
    for (src, dst), rate in rates.items():
        like = _like_pairs(subject, src, dst)
        required, origin = COPY_SHARE * statistics.median(like or [0.0]), "median of the same two cards in like nodes"
        if len(like) < LEAST_PEERS:
            required, origin = COPY_WAY_BACK * rates.get((dst, src), 0.0), "the other direction"
        if rate < required:
            return failed(
                f"GPU {src} → {dst} {rate:.3g} GB/s", f"≥ {required:.3g} GB/s", origin, "gpu-copies-slow",
                "nvidia-smi topo -m against a like node; nvidia-smi nvlink --status; PCIe slot, riser and BIOS (ACS)",
                culprit_kind="gpu", culprit=f"GPU {src} → {dst} of {subject.name}",
            )  # fmt: skip
    return None


def _like_pairs(subject: Subject, src: int, dst: int) -> list[float]:
    """The rate of these two places in every node whose cards are the same, this one included."""
    here = [one["name"] for one in subject.fleet.probes[subject.name]["gpu_load"]["ok"]["cards"]]
    rates = []
    for probe in subject.fleet.probes.values():
        load = probe.get("gpu_load", {}).get("ok", {})
        if [one["name"] for one in load.get("cards", ())] == here:
            rates += [p["gbytes_s"] for p in load["peers"] if (p["src"], p["dst"], p["ok"]) == (src, dst, True)]
    return [float(rate) for rate in rates]


def gpu_heat(subject: Subject) -> Finding:
    """No card slows down by heat or power under load, and no new message of the driver came meanwhile."""
    found = load(subject)
    if isinstance(found, Finding):
        return found
    events, _ = parse_kernel(found.get("kernel", ()))
    for event in events:
        said = meaning(event)
        if said.severity == "hardware":
            return failed(
                f"{event.bus_id}: {event.text} under load", "no message", "kernel log", said.cause, said.remedy,
                culprit_kind="gpu", culprit=card(subject, event.bus_id),
            )  # fmt: skip
    seen = []
    for one in found["cards"]:
        busy, where = one["under_load"], bus_id(one["bus_id"])
        seen.append(f"{where} {busy.get('temperature_c')} °C {busy.get('power_w')} W {busy.get('sm_clock_mhz')} MHz")
        bad = [reason for reason in busy.get("slowed_by", ()) if reason != "sw_power_cap"]
        if bad:
            heat = any("thermal" in reason for reason in bad)
            return failed(
                f"{where}: {', '.join(bad)} at {busy.get('temperature_c')} °C", "full clocks", "nvidia-smi under load",
                "gpu-heat" if heat else "gpu-power",
                "fan, dust, air flow" if heat else "power supply and cables; power_cap_watts lowers the draw",
                culprit_kind="gpu", culprit=card(subject, where),
            )  # fmt: skip
    return passed("; ".join(seen), "not slowed by heat or power", "nvidia-smi under load")
