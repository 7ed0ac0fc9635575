"""The metrics: names, base units, one verdict at a time, and text that a collector can read."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.validation.sample_builder import Sample
from tests.validation.sample_run import SAMPLES, certificate_of, healthy, hostile, large, slow_network
from validation.certificate import build_certificate
from validation.metrics import render_metrics

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def text_of(sample: Sample) -> str:
    certificate = build_certificate(sample.records, sample.judgement, sample.results_sha256)
    return render_metrics(certificate, sample.records)


def series(text: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Series, name: str, **labels: str) -> float:
    """The one series of that name with (at least) these labels."""
    matches = [v for (n, have), v in found.items() if n == f"klaster_{name}" and set(labels.items()) <= have]
    assert len(matches) == 1, f"{len(matches)} series {name} {labels}"
    return matches[0]


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_collector_can_read_it(name: str) -> None:
    """Every line is valid text format, every family has help and a name of ours, and no sample has a timestamp."""
    text = text_of(SAMPLES[name]())
    families = list(text_string_to_metric_families(text))
    assert families
    assert all(re.fullmatch(r"klaster_[a-z_]+", family.name) and family.documentation for family in families)
    assert all(sample.timestamp is None for family in families for sample in family.samples)


def test_the_same_run_gives_the_same_text() -> None:
    """Two renderings are byte-identical."""
    assert text_of(slow_network()) == text_of(slow_network())


def test_exactly_one_verdict_is_set() -> None:
    """Cluster and node verdicts are 1 for what was found and 0 for each other, so that a change is seen."""
    found = series(text_of(slow_network()))
    assert value(found, "certificate_verdict", verdict="FAIL") == 1
    assert value(found, "certificate_verdict", verdict="PASS") == 0
    assert value(found, "node_verdict", node="n3", verdict="FAIL") == 1
    assert value(found, "node_verdict", node="n1", verdict="FAIL") == 0
    assert value(found, "certificate_certified", substrate="rehearsal") == 0
    assert value(found, "culprits") == 1
    assert value(found, "culprit_info", kind="node", subject="n3", cause="network") == 1


def test_times_and_speeds_are_in_base_units() -> None:
    """Expiry in seconds since 1970, bandwidth in bytes a second, latency in seconds."""
    found = series(text_of(healthy()))
    issued, expiry = (value(found, f"certificate_{name}_timestamp_seconds") for name in ("issued", "expiry"))
    assert expiry - issued == 30 * 86_400
    assert issued == 1_791_022_545
    assert value(found, "pair_bandwidth_bytes_per_second", src="n1", dst="n2") == pytest.approx(0.94e9 / 8, rel=0.02)
    assert value(found, "pair_bandwidth_ratio", src="n1", dst="n2") == pytest.approx(0.94, rel=0.02)
    assert 20e-6 < value(found, "pair_latency_seconds", src="n1", dst="n2", percentile="50") < 100e-6
    assert value(found, "collective_bus_bandwidth_bytes_per_second", message_bytes="16000000", nodes="3") > 1e8
    assert value(found, "training_samples_per_second", nodes="3") == pytest.approx(192 / 0.049, rel=0.1)
    assert value(found, "training_step_seconds", nodes="3", node="n2", part="compute") == pytest.approx(0.03, rel=0.1)
    assert value(found, "stage_duration_seconds", stage="pairs") == 19.4


def test_two_hundred_nodes_do_not_flood_the_collector() -> None:
    """A large cluster gives a series a node instead of one a pair."""
    text = render_metrics(certificate_of(large), large().records)
    assert "klaster_pair_" not in text
    assert value(series(text), "node_slowest_link_ratio", node="n7") < 0.5
    assert len(text.splitlines()) < 3_000


def test_a_hostile_label_stays_a_label() -> None:
    """Quotes and line ends in a culprit's words can not add a metric."""
    sample = hostile()
    evil = 'x"} 1\nklaster_certificate_certified{cluster="lab",substrate="hardware"} 1'
    culprit = sample.judgement.culprits[0].model_copy(update={"subject": evil, "cause": evil})
    found = series(text_of(Sample(sample.records, sample.judgement.model_copy(update={"culprits": (culprit,)}))))
    assert value(found, "certificate_certified") == 0
    assert value(found, "culprit_info", subject=evil) == 1
