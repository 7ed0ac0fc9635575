"""The certificate: what it holds, when it certifies, and that it is the same for the same run."""

from __future__ import annotations

import json
import unicodedata
from datetime import datetime, timedelta

import pytest
from pydantic import ValidationError

from inventory.hardware import HardwareLock
from tests.validation.sample_builder import Builder, Sample
from tests.validation.sample_run import (
    SAMPLES,
    certificate_of,
    hang,
    healthy,
    hostile,
    large,
    link_cut,
    slow_network,
    undecided,
)
from validation.certificate import build_certificate, certificate_json
from validation.certificate_model import Certificate
from validation.model import RECORD, CheckResult, Culprit, Judgement, Outcome, Record, RunRecord


def made(sample: Sample) -> Certificate:
    return Certificate.model_validate(build_certificate(sample.records, sample.judgement, sample.results_sha256))


def with_run(sample: Sample, **changes: object) -> Sample:
    run, *rest = sample.records
    return Sample([run.model_copy(update=changes), *rest], sample.judgement)


def test_it_holds_every_field_that_was_promised() -> None:
    """The fields that other programs rely on are there, with culprits and nodes in the promised shape."""
    sample = slow_network()
    document = build_certificate(sample.records, sample.judgement, sample.results_sha256)
    promised = (
        "cluster verdict level issued_at expires_at inventory_sha256 hardware_sha256 results_sha256 coverage substrate "
        "nodes links culprits run_id version statement"
    )
    assert set(promised.split()) <= set(document)
    assert {"kind", "subject", "cause", "evidence", "remedy"} <= set(document["culprits"][0])
    assert document["nodes"]["n3"]["verdict"] == "FAIL"
    assert {"measured", "required", "origin"} <= set(document["nodes"]["n3"]["checks"][0])
    assert document["results_sha256"] == sample.results_sha256


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "large"])
def test_the_same_run_gives_the_same_bytes(name: str) -> None:
    """Records that were written to a file and read again give a byte-identical certificate."""
    sample = SAMPLES[name]()
    first = certificate_json(build_certificate(sample.records, sample.judgement, sample.results_sha256))
    read = [RECORD.validate_json(record.model_dump_json()) for record in sample.records]
    judged = Judgement.model_validate_json(sample.judgement.model_dump_json())
    assert certificate_json(build_certificate(read, judged, sample.results_sha256)) == first
    assert first.endswith("}\n")
    assert list(json.loads(first)) == sorted(json.loads(first))


def test_its_times_come_from_the_records() -> None:
    """It is issued when the last stage ended by the records' own times, and is stale 30 days later."""
    certificate = made(healthy())
    assert certificate.started_at == "2026-10-03T10:15:00Z"
    assert certificate.issued_at == "2026-10-03T10:15:45Z"  # 6.2 + 19.4 + 4.1 + 14.8 s, rounded up
    issued, expires = (datetime.fromisoformat(text) for text in (certificate.issued_at, certificate.expires_at))
    assert expires - issued == timedelta(days=30)


def test_a_rehearsal_can_not_be_taken_for_hardware() -> None:
    """A passed rehearsal says so first and never calls the cluster certified; hardware does."""
    rehearsal, hardware = made(healthy()), made(healthy("hardware"))
    assert rehearsal.statement.startswith("REHEARSAL")
    assert "is certified" not in rehearsal.statement
    assert "certifies no real machine" in rehearsal.statement
    assert hardware.statement.startswith("Cluster lab is certified")
    assert made(healthy("simulation")).statement.startswith("SIMULATION")
    assert rehearsal.substrate == "rehearsal"


@pytest.mark.parametrize("make", [slow_network, link_cut, undecided])
def test_what_did_not_pass_says_not_certified(make: object) -> None:
    """FAIL and INCONCLUSIVE say "not certified" plainly."""
    certificate = made(make())  # type: ignore[operator] # one of three functions of no arguments
    assert not certificate.certified
    assert "is not certified" in certificate.statement


def test_a_partial_run_never_certifies() -> None:
    """With --only or --nodes a PASS of what ran does not certify the cluster."""
    certificate = made(with_run(healthy("hardware"), partial=True))
    assert not certificate.certified
    assert "the run was not complete" in certificate.statement


@pytest.mark.parametrize("change", [{"partial": True}, {"stages": ("node", "pairs")}])
def test_a_judge_alone_can_not_certify_half_a_run(change: dict[str, object]) -> None:
    """Whatever the judgement says, a run that left out a stage certifies nothing."""
    assert made(healthy("hardware")).certified
    assert not made(with_run(healthy("hardware"), **change)).certified


def test_a_lost_rank_is_never_certified() -> None:
    """A rank that did not finish forbids a certificate even if the judgement overlooked it."""
    sample = hang()
    overlooked = sample.judgement.model_copy(update={"verdict": Outcome.PASS, "culprits": ()})
    assert not made(Sample(sample.records, overlooked)).certified


def test_its_hashes_follow_inventory_and_hardware() -> None:
    """Another inventory or another lock gives another hash, and a node's hash is the hardware lock's own."""
    sample = healthy()
    run = sample.records[0]
    assert isinstance(run, RunRecord)
    first = made(sample)
    other_lock = made(with_run(sample, lock={"nodes": {}}))
    renamed = made(with_run(sample, inventory={**run.inventory, "time_servers": ["10.77.0.1"]}))
    assert other_lock.hardware_sha256 != first.hardware_sha256
    assert other_lock.inventory_sha256 == first.inventory_sha256
    assert renamed.inventory_sha256 != first.inventory_sha256
    assert first.nodes["n1"].hardware_sha256 == HardwareLock.model_validate(run.lock).nodes["n1"].sha256
    assert made(with_run(sample, lock=None)).hardware_sha256 is None


def test_coverage_counts_outcomes_and_pairs() -> None:
    """Each outcome has its count, and a pair without bandwidth is not counted as tested."""
    certificate = made(link_cut())
    assert certificate.coverage["FAIL"] == 1
    assert certificate.coverage["SKIPPED"] == 2
    assert (certificate.coverage["pairs_tested"], certificate.coverage["pairs_all"]) == (5, 6)
    assert {outcome.value for outcome in Outcome} <= set(certificate.coverage)


def test_a_cut_link_is_a_link_and_not_its_nodes() -> None:
    """The link's entry fails with its error, in whichever order the judge names its ends; its nodes pass."""
    sample = link_cut()
    turned = [
        result.model_copy(update={"subject": "n2–n1"}) if result.subject == "n1–n2" else result
        for result in sample.judgement.results
    ]
    certificate = made(Sample(sample.records, sample.judgement.model_copy(update={"results": tuple(turned)})))
    link = next(link for link in certificate.links if link.link == "n1–n2")
    assert link.verdict is Outcome.FAIL
    assert {direction.error for direction in link.directions} == {"timeout"}
    assert {node.verdict for node in certificate.nodes.values()} == {Outcome.PASS}
    assert "n2–n1" not in {check.check for check in certificate.whole}


def test_a_node_is_shown_at_its_usual_speed_and_not_at_its_bad_partners() -> None:
    """One slow partner does not lower what a good node sends; the slow node's own speed shows."""
    certificate = made(slow_network())
    assert certificate.nodes["n1"].send_gbps == pytest.approx(0.94, abs=0.02)
    assert certificate.nodes["n3"].send_gbps == pytest.approx(0.048, abs=0.002)


def test_a_large_cluster_lists_only_links_that_are_not_plainly_good() -> None:
    """200 nodes do not give 19,900 entries, and none of the slow ones is lost."""
    certificate = Certificate.model_validate(certificate_of(large))
    assert {link.link for link in certificate.links} == {
        "–".join(sorted(("n7", node))) for node in certificate.nodes if node != "n7"
    }
    assert certificate.coverage["pairs_tested"] == 19_900
    assert [check.subject for check in certificate.whole] == ["lab", "lab"]


def test_wrong_data_is_never_plainly_good() -> None:
    """A fast cell whose bytes arrived wrong marks its direction as not verified."""
    sample = healthy()
    spoilt = [
        record.model_copy(update={"verified": False})
        if record.kind == "cell" and (record.src, record.dst, record.round) == ("n1", "n2", 0)
        else record
        for record in sample.records
    ]
    links = made(Sample(spoilt, sample.judgement)).links
    wrong = [d for link in links for d in link.directions if d.verified is not True]
    assert [(d.src, d.dst, d.verified) for d in wrong] == [("n1", "n2", False)]


def test_it_says_what_was_not_tested() -> None:
    """Stages that did not run, pairs that are unknown, nodes left out and missing GPUs are each a sentence."""
    said = "\n".join(made(link_cut()).not_tested)
    assert "Stage cluster" in said
    assert "n1 and n2 cannot reach each other" in said
    assert "1 of 6 pairs" in said
    assert "GPUs and NCCL" in said
    assert "level burn-in" in said
    left_out = "\n".join(made(with_run(healthy(), nodes=("n1",))).not_tested)
    assert "head, n2 and n3" in left_out
    assert not any("Stage" in line for line in made(healthy()).not_tested)


def test_a_skipped_check_is_one_line_with_its_reason() -> None:
    """A check skipped on many subjects for one reason is said once."""
    sample = healthy()
    skipped = tuple(
        CheckResult(subject=node, stage="node", check="gpu", outcome=Outcome.SKIPPED, evidence="no driver")
        for node in ("n1", "n2")
    )
    judged = sample.judgement.model_copy(update={"results": (*sample.judgement.results, *skipped)})
    assert "Check gpu: skipped on 2 subjects (no driver)." in made(Sample(sample.records, judged)).not_tested


def test_control_characters_of_a_node_do_not_reach_it() -> None:
    """Escape sequences and direction overrides in evidence are replaced."""
    sample = hostile()
    text = certificate_json(build_certificate(sample.records, sample.judgement, sample.results_sha256))
    said = "".join(made(sample).culprits[0].evidence)
    assert not any(unicodedata.category(character) in {"Cc", "Cf"} for character in said)
    assert "\\u001b" not in text


def test_an_interrupted_run_has_a_certificate_too() -> None:
    """A run that ended right after its beginning gives a certificate that certifies nothing."""
    run = Builder()
    run.begin()
    certificate = made(Sample(run.records, Judgement(verdict=Outcome.INCONCLUSIVE)))
    assert not certificate.certified
    assert certificate.issued_at == certificate.started_at
    assert set(certificate.stages.values()) == {"not run"}


def test_a_stage_that_broke_off_is_not_called_untouched() -> None:
    """Pairs that were measured before an interruption are "not finished", not "not run"."""
    run = Builder()
    run.begin()
    run.pairs()
    broken_off: list[Record] = [record for record in run.records if record.kind != "stage"]
    certificate = made(Sample(broken_off, Judgement(verdict=Outcome.INCONCLUSIVE)))
    assert certificate.stages["pairs"] == "not finished"
    assert certificate.stages["cluster"] == "not run"
    assert any("Stage pairs" in line and "did not come to its end" in line for line in certificate.not_tested)


def test_a_noisy_round_does_not_lower_what_a_pair_can_do() -> None:
    """Of five rounds, three disturbed, the pair's speed is the undisturbed one and the worst is kept beside it."""
    run = Builder()
    run.begin()
    run.pairs(rounds=5)
    noisy = [
        record.model_copy(update={"repetitions_gbps": (0.47, 0.48, 0.6)})
        if record.kind == "cell" and (record.src, record.dst) == ("n1", "n2") and record.round < 3
        else record
        for record in run.records
    ]
    links = made(Sample(noisy, Judgement(verdict=Outcome.INCONCLUSIVE))).links
    way = next(d for link in links for d in link.directions if (d.src, d.dst) == ("n1", "n2"))
    assert way.bandwidth_gbps == pytest.approx(0.94, abs=0.01)
    assert way.lowest_gbps == 0.48


def test_results_without_a_run_are_refused() -> None:
    """Without the run's own record there is nothing to certify, and the error says what must be there."""
    with pytest.raises(ValueError, match="must begin with one"):
        build_certificate([], Judgement(verdict=Outcome.PASS), "")


def test_the_model_refuses_unknown_fields() -> None:
    """A field that the model does not know is a mistake and not silently carried along."""
    sample = healthy()
    document = build_certificate(sample.records, sample.judgement, sample.results_sha256)
    with pytest.raises(ValidationError, match="extra"):
        Certificate.model_validate({**document, "extra": 1})


@pytest.mark.parametrize(
    ("kind", "subject", "cause", "sentence"),
    [
        ("node", "n3", "network-egress", "n3: it sends slower than its network is declared"),
        ("link", "n1–n2", "unreachable", "Link n1–n2: no connection can be made between the two"),
        ("node", "n3", "quantum-flux", "n3: quantum flux"),
        ("service", "slurmd on n3", "slurmd-down", "slurmd on n3: slurmd is not running"),
        ("cluster", "lab", "network", "lab: nearly every node is slower than its network is declared, all alike"),
    ],
)
def test_a_culprit_is_said_in_a_sentence(kind: str, subject: str, cause: str, sentence: str) -> None:
    """Known causes read as plain words by the kind of culprit, unknown ones as they are."""
    culprit = Culprit.model_validate(
        {"kind": kind, "subject": subject, "cause": cause, "evidence": (), "remedy": "look"}
    )
    sample = slow_network()
    judged = sample.judgement.model_copy(update={"culprits": (culprit,)})
    assert made(Sample(sample.records, judged)).culprits[0].sentence == sentence
