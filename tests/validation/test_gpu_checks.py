"""Verdicts on simulated nodes of eight cards, each with one thing wrong: outcome, cause and culprit."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inventory.hardware import FoundGpu
from inventory.model import Gpu
from tests import nvidia
from validation.checks import gpu, gpu_load, gpu_numa
from validation.checks.node import Finding, Gathered, ProbeError
from validation.gpu_gather import parse_binding
from validation.model import Outcome
from validation.node_file import load

HEALTHY = Path(__file__).parents[1] / "recordings" / "node" / "healthy.json"
NODES = nvidia.FOLDER / "nodes"
CHECKS = {
    "gpus": gpu.gpus,
    "gpu-driver": gpu.gpu_driver,
    "gpu-health": gpu.gpu_health,
    "gpu-kernel-log": gpu.gpu_kernel_log,
    "gpu-nvlink": gpu.gpu_nvlink,
    "gpu-link": gpu_load.gpu_link,
    "gpu-compute": gpu_load.gpu_compute,
    "gpu-memory-bandwidth": gpu_load.gpu_memory_bandwidth,
    "gpu-copies": gpu_load.gpu_copies,
    "gpu-heat": gpu_load.gpu_heat,
    "gpu-numa": gpu_numa.gpu_numa,
}
VICTIM = f"GPU 0000:{0x1B + nvidia.LOST:02x}:00.0 of n3"
NEIGHBOUR = f"GPU 0000:{0x1B:02x}:00.0 of n3"
LOST, HANGS, MISMATCH = "gpu-lost", "driver-hangs", "driver-mismatch"


def answers(name: str) -> dict[str, Any]:
    """What the probe would say on the node of a recording."""
    found = {file.name: file.read_text(encoding="utf-8") for file in (NODES / name).iterdir()}
    mode, smi = found["mode"].strip(), {"status": 0, "stdout": found["smi.xml"], "stderr": ""}
    if mode == "mismatch":
        text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.163"
        smi = {"status": 18, "stdout": text, "stderr": ""}
    return {
        "gpu_smi": {"error": "no answer in 15 s"} if mode == "hangs" else {"ok": smi},
        "gpu_nvlink": {"ok": {"status": 0, "stdout": "", "stderr": ""}},
        "gpu_kernel": {"ok": found["kernel.log"]},
        "gpu_driver": {"ok": json.loads(found["driver.json"])},
        "gpu_load": {"ok": json.loads(found["load.json"])},
        "gpu_numa": {"ok": json.loads(found["numa.json"])},
    }


def fleet(name: str, **gpu_fields: Any) -> Gathered:
    """The recorded lab, whose n3 has the cards of a recording, locked as the healthy node has them."""
    healthy = load(HEALTHY)
    cards = tuple(
        FoundGpu(index=i, model=nvidia.MODEL, uuid=nvidia.uuid(i), memory_mib=nvidia.MEMORY_MIB, bus_id=nvidia.bus(i))
        for i in range(8)
    )
    locked = {**healthy.lock.nodes, "n3": healthy.lock.nodes["n3"].model_copy(update={"gpus": cards})}
    declared = (Gpu(model=nvidia.MODEL, count=8, **gpu_fields),)
    nodes = tuple(n.model_copy(update={"gpus": declared}) if n.name == "n3" else n for n in healthy.cluster.nodes)
    return dataclasses.replace(
        healthy,
        lock=healthy.lock.model_copy(update={"nodes": locked}),
        cluster=healthy.cluster.model_copy(update={"nodes": nodes}),
        probes={**healthy.probes, "n3": {**healthy.probes["n3"], **answers(name)}},
    )


def verdicts(gathered: Gathered) -> dict[str, Finding]:
    return {name: check(gathered.subject("n3")) for name, check in CHECKS.items()}


@pytest.mark.parametrize("name", list(nvidia.CHANGES))
def test_recordings_are_fresh(name: str) -> None:
    """The files are what `python -m tests.nvidia` writes."""
    assert {f.name: f.read_text(encoding="utf-8") for f in (NODES / name).iterdir()} == nvidia.files(name)


def test_eight_healthy_cards_pass() -> None:
    """Every check passes, generation 1 at rest included, and says what it measured."""
    found = verdicts(fleet("eight"))
    assert found.pop("gpu-nvlink").outcome is Outcome.NOT_APPLICABLE  # this model has none
    assert {one.outcome for one in found.values()} == {Outcome.PASS}
    assert all(one.measured and one.origin for one in found.values())


def test_nodes_without_cards_are_not_asked() -> None:
    """Where no card is declared or locked, no check applies."""
    gathered = fleet("eight")
    assert {check(gathered.subject("n1")).outcome for check in CHECKS.values()} == {Outcome.NOT_APPLICABLE}


FAULTS = [
    # recording → the checks that fail, their cause, the culprit
    ("seven-of-eight", {"gpus"}, LOST, VICTIM),
    ("xid-79", {"gpu-kernel-log"}, LOST, VICTIM),
    ("ecc-uncorrectable", {"gpu-health"}, "gpu-ecc", VICTIM),
    ("gen1-under-load", {"gpu-link"}, "gpu-link", VICTIM),
    ("driver-mismatch", {"gpus", "gpu-driver"}, MISMATCH, ""),
    ("hangs", {"gpus", "gpu-driver"}, HANGS, ""),
    ("slow-card", {"gpu-compute"}, "gpu-slow", VICTIM),
    ("wrong-results", {"gpu-compute"}, "gpu-wrong-results", VICTIM),
    ("broken-p2p", {"gpu-copies"}, "p2p", "peer copies on n3"),
    ("slow-copies", {"gpu-copies"}, "gpu-copies-slow", f"GPU 0 → {nvidia.LOST} of n3"),
    ("far-cores", {"gpu-numa"}, "gpu-binding", f"binding of {NEIGHBOUR}"),
    ("hot", {"gpu-heat"}, "gpu-heat", VICTIM),
]


@pytest.mark.parametrize(("name", "failing", "cause", "culprit"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_each_fault_has_its_verdict_and_culprit(name: str, failing: set[str], cause: str, culprit: str) -> None:
    """One fault fails its checks with one cause and one culprit; every other check passes, or is skipped
    where the driver does not answer."""
    found = verdicts(fleet(name))
    assert {check for check, one in found.items() if one.outcome is Outcome.FAIL} == failing
    assert {(found[check].cause, found[check].culprit) for check in failing} == {(cause, culprit)}
    assert all(found[check].remedy and found[check].required for check in failing)
    other = Outcome.SKIPPED if cause in (MISMATCH, HANGS) else Outcome.NOT_APPLICABLE  # NVLink: this model has none
    assert {found[check].outcome for check in set(CHECKS) - failing} == {Outcome.PASS, other}


@pytest.mark.parametrize(
    ("name", "check", "named"),
    [("unknown-value", "gpu-health", "remapped_row_pending: ERR!"), ("unknown-card", "gpus", "Graphics Device")],
)
def test_the_unknown_is_inconclusive_with_its_name(name: str, check: str, named: str) -> None:
    """A value or card that nobody knows is neither a pass nor a crash."""
    gathered = fleet(name)
    if name == "unknown-card":  # declared and locked under the name that it has
        nodes = tuple(
            n.model_copy(update={"gpus": (Gpu(model="Graphics Device", count=8),)}) if n.gpus else n
            for n in gathered.cluster.nodes
        )
        gathered = dataclasses.replace(gathered, cluster=gathered.cluster.model_copy(update={"nodes": nodes}))
    found = CHECKS[check](gathered.subject("n3"))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert named in found.measured


@pytest.mark.parametrize(
    ("second", "outcome", "measured"),
    [
        ("Link 0: 25 GB/s\nLink 1: 25 GB/s", Outcome.PASS, "2 GPUs with 2 links of 25 GB/s"),
        ("Link 0: 25 GB/s\nLink 1: <inactive>", Outcome.FAIL, "link 1 down"),
        ("Link 0: 25 GB/s", Outcome.FAIL, "1 links"),
    ],
)
def test_an_nvlink_that_is_down_names_its_card(second: str, outcome: Outcome, measured: str) -> None:
    """An inactive link, or one fewer than like cards have, is the card's at the end of it."""
    gathered = fleet("eight")
    first = f"GPU 0: X (UUID: {nvidia.uuid(0)})\nLink 0: 25 GB/s\nLink 1: 25 GB/s\n"
    said = {"status": 0, "stdout": f"{first}GPU 1: X (UUID: {nvidia.uuid(1)})\n{second}\n", "stderr": ""}
    probes = {**gathered.probes, "n3": {**gathered.probes["n3"], "gpu_nvlink": {"ok": said}}}
    found = gpu.gpu_nvlink(dataclasses.replace(gathered, probes=probes).subject("n3"))
    assert found.outcome is outcome
    assert measured in found.measured
    assert not found.culprit or found.culprit == "GPU 0000:1c:00.0 of n3"


def test_a_programs_fault_is_advice() -> None:
    """Xid 31 is a program's mistake: the node passes, and the message is shown."""
    found = verdicts(fleet("program-fault"))["gpu-kernel-log"]
    assert found.outcome is Outcome.PASS
    assert "Xid 31" in found.advice


def test_peer_copies_that_are_turned_off_may_be_broken() -> None:
    """With no_p2p_because the same recording passes, and the advice says the reason."""
    found = verdicts(fleet("broken-p2p", no_p2p_because="they hang"))["gpu-copies"]
    assert found.outcome is Outcome.PASS
    assert "they hang" in found.advice


def test_a_missing_card_of_an_old_kernel_message_is_its_evidence() -> None:
    """The lost card's finding shows what the kernel said of it."""
    gathered = fleet("seven-of-eight")
    kernel = {"ok": (NODES / "xid-79" / "kernel.log").read_text(encoding="utf-8")}
    probes = {**gathered.probes, "n3": {**gathered.probes["n3"], "gpu_kernel": kernel}}
    found = gpu.gpus(dataclasses.replace(gathered, probes=probes).subject("n3"))
    assert "Xid 79" in found.evidence


def test_a_load_that_could_not_run_blames_nobody() -> None:
    """Without torch on the node the checks under load are the validator's error, not a verdict."""
    gathered = fleet("eight")
    broken = {"error": "exit status 1: No module named 'torch'"}
    probes = {**gathered.probes, "n3": {**gathered.probes["n3"], "gpu_load": broken}}
    with pytest.raises(ProbeError, match="torch"):
        gpu_load.gpu_compute(dataclasses.replace(gathered, probes=probes).subject("n3"))


def numa(**changes: Any) -> Gathered:
    """Eight healthy cards, whose machine's tables say something else."""
    gathered = fleet("eight")
    told = {**gathered.probes["n3"]["gpu_numa"]["ok"], **changes}
    probes = {**gathered.probes, "n3": {**gathered.probes["n3"], "gpu_numa": {"ok": told}}}
    return dataclasses.replace(gathered, probes=probes)


def test_where_cards_and_port_lie_is_told() -> None:
    """Each card's memory node, and its distance to the port that collectives use."""
    found = gpu_numa.gpu_numa(numa().subject("n3"))
    assert "0000:1b:00.0 node 0, distance to eth0 10" in found.measured
    assert "0000:22:00.0 node 1, distance to eth0 21" in found.measured


def test_a_machine_of_one_memory_node_has_nothing_to_bind() -> None:
    """One node: near is everything, whatever Slurm knows."""
    one = {"0": {"cpus": "0-15", "distance": [10]}}
    assert gpu_numa.gpu_numa(numa(nodes=one, slurmd="").subject("n3")).outcome is Outcome.PASS


def test_a_firmware_that_says_nothing_is_inconclusive() -> None:
    """A card on memory node -1 of a machine with two is nowhere; it is named."""
    cards = {"0000:1b:00.0": {"node": -1, "cpus": "0-63"}}
    found = gpu_numa.gpu_numa(numa(cards=cards).subject("n3"))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "0000:1b:00.0" in found.measured


def test_a_slurm_that_knows_no_cores_is_advice() -> None:
    """Without AutoDetect slurmd names the cards only."""
    found = gpu_numa.gpu_numa(numa(slurmd="slurmd: Gres Name=gpu Count=8 Index=0 File=/dev/nvidia0\n").subject("n3"))
    assert (found.outcome, "far ones" in found.advice) == (Outcome.PASS, True)


@pytest.mark.parametrize(("cpus", "outcome"), [("32,40-47", Outcome.PASS), ("31-32", Outcome.FAIL)])
def test_what_a_task_was_really_given_is_held_against_its_card(cpus: str, outcome: Outcome) -> None:
    """A task of a job with one card runs on the cores beside that card, and on no other."""
    gathered = numa()
    said = parse_binding(f"{nvidia.bus(nvidia.LOST)} |{cpus}\n{nvidia.bus(0)} {nvidia.bus(1)} |0-63\nno line\n")
    assert len(said) == 1, "a task that sees two cards says nothing"
    probes = {**gathered.probes, "n3": {**gathered.probes["n3"], "gpu_binding": {"ok": said}}}
    found = gpu_numa.gpu_numa(dataclasses.replace(gathered, probes=probes).subject("n3"))
    assert found.outcome is outcome
    if outcome is Outcome.FAIL:
        assert (found.cause, found.culprit) == ("gpu-binding", f"binding of {VICTIM}")


def test_slow_copies_are_judged_by_like_nodes() -> None:
    """The same two places in three like nodes: what is slow in all of them is how they are built."""
    gathered = fleet("slow-copies")
    slow, fast = gathered.probes["n3"]["gpu_load"], fleet("eight").probes["n3"]["gpu_load"]

    def among(*others: Any) -> Gathered:
        named = {f"n{i}": {**gathered.probes[f"n{i}"], "gpu_load": load} for i, load in enumerate(others, 1)}
        return dataclasses.replace(gathered, probes={**gathered.probes, **named})

    found = gpu_load.gpu_copies(among(fast, fast).subject("n3"))
    assert (found.cause, found.origin) == ("gpu-copies-slow", "median of the same two cards in like nodes")
    assert gpu_load.gpu_copies(among(slow, slow).subject("n3")).outcome is Outcome.PASS


def with_card(change: Callable[[dict[str, str]], None], *cards: int) -> Gathered:
    """Eight healthy cards, of which some say something else in nvidia-smi -q."""
    node = nvidia.healthy()
    for index in cards:
        change(node.cards[index])
    gathered = fleet("eight")
    smi = {"status": 0, "stdout": nvidia.files_of(node)["smi.xml"], "stderr": ""}
    probes = {**gathered.probes, "n3": {**gathered.probes["n3"], "gpu_smi": {"ok": smi}}}
    return dataclasses.replace(gathered, probes=probes)


WORDS = {"product_architecture"}
"""Not judged: only to know a card whose name is not known."""
LEFT_OUT = {"display_active", "mig_mode/current_mig", "pci/pci_bus_id"}
"""Older drivers and other cards do not have the first two; the place stands in an attribute, too."""
ONE_OF_MANY = {path for path in nvidia.card(0) if path.startswith(("ecc_errors/", "clocks_event_reasons/"))}


@pytest.mark.parametrize("path", sorted(set(nvidia.card(0)) - WORDS))
@pytest.mark.parametrize("text", ["[Unknown Error]", "ERR!", "GPU is lost", "a new word"])
def test_no_field_with_an_unknown_value_passes(path: str, text: str) -> None:
    """Whatever field it is: the card is named, and nothing crashes."""
    found = verdicts(with_card(lambda card: card.update({path: text}), nvidia.LOST))
    bad = [one for one in found.values() if one.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)]
    assert bad
    assert any("0000:20:00.0" in one.measured or text in one.measured for one in bad)


@pytest.mark.parametrize("path", sorted(set(nvidia.card(0)) - WORDS - LEFT_OUT - ONE_OF_MANY))
def test_no_card_that_says_less_than_its_like_passes(path: str) -> None:
    """A field that is gone on one card of eight is named with it."""
    found = verdicts(with_card(lambda card: card.pop(path), nvidia.LOST))
    bad = [one for one in found.values() if one.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)]
    assert any("0000:20:00.0" in one.measured for one in bad)


def test_counters_of_an_unknown_name_are_no_health() -> None:
    """ECC is on and nobody knows its counters: a driver that renamed them must not make every card healthy."""

    def renamed(card: dict[str, str]) -> None:
        for path in [path for path in card if path.startswith("ecc_errors/")]:
            card[path.replace("_uncorrectable", "_beyond_repair")] = card.pop(path)

    found = verdicts(with_card(renamed, *range(8)))["gpu-health"]
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "ecc_errors" in found.measured


def test_a_link_that_is_not_told_under_load_is_no_pass() -> None:
    """Without generation or width while copying nothing is known of the link."""
    gathered = fleet("eight")
    load = copy.deepcopy(gathered.probes["n3"]["gpu_load"])
    load["ok"]["cards"][0]["under_load"]["link_gen"] = None
    probes = {**gathered.probes, "n3": {**gathered.probes["n3"], "gpu_load": load}}
    found = gpu_load.gpu_link(dataclasses.replace(gathered, probes=probes).subject("n3"))
    assert (found.outcome, "0000:1b:00.0 gen None" in found.measured) == (Outcome.INCONCLUSIVE, True)
