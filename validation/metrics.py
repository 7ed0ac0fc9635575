"""The run as Prometheus metrics, for node_exporter's textfile collector; base units, no timestamps, stable order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from validation.certificate_model import Certificate
from validation.model import Outcome, Record, TrainingRecord
from validation.report_data import RunData, gather, samples_per_second

VERDICTS = (Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)
PAIR_SERIES_NODES = 64
"""Above this many nodes single pairs are left out (200 nodes have 39,800 directions); a series a node remains."""
_BYTES_PER_SECOND = 1e9 / 8
"""One Gb/s in the base unit."""


def render_metrics(certificate: Mapping[str, Any], records: Sequence[Record]) -> str:
    """Prometheus text of one run: verdicts, expiry, links, collectives, trainings."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Run(Certificate.model_validate(certificate), gather(records)))
    return generate_latest(registry).decode()


class _Run(Collector):
    def __init__(self, certificate: Certificate, data: RunData) -> None:
        self.certificate, self.data = certificate, data

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from _verdicts(self.certificate)
        yield from _culprits(self.certificate)
        yield from _links(self.certificate, self.data)
        yield from _collectives(self.certificate)
        yield from _trainings(self.certificate.cluster, self.data)
        yield from _durations(self.certificate.cluster, self.data)


def _family(name: str, help_text: str, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"klaster_{name}", help_text, labels=labels)


def _digits(value: float) -> float:
    """Six digits: the rest is binary noise."""
    return float(f"{value:.6g}")


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _verdicts(certificate: Certificate) -> Iterator[GaugeMetricFamily]:
    cluster, substrate = certificate.cluster, certificate.substrate
    info = _family("certificate_info", "What the last run was.", ["cluster", "substrate", "level", "run_id", "version"])
    info.add_metric([cluster, substrate, certificate.level, certificate.run_id, certificate.version], 1)
    yield info
    certified = _family(
        "certificate_certified", "1 if the cluster passed a whole run; look at substrate too.", ["cluster", "substrate"]
    )
    certified.add_metric([cluster, substrate], float(certificate.certified))
    yield certified
    verdict = _family(
        "certificate_verdict",
        "1 for the verdict of the last run, 0 for the others.",
        ["cluster", "substrate", "verdict"],
    )
    for outcome in VERDICTS:
        verdict.add_metric([cluster, substrate, outcome], float(certificate.verdict is outcome))
    yield verdict
    for name, text, moment in (
        ("issued", "End of the last run.", certificate.issued_at),
        ("expiry", "When the last verdict becomes stale.", certificate.expires_at),
    ):
        family = _family(f"certificate_{name}_timestamp_seconds", text, ["cluster"])
        family.add_metric([cluster], _timestamp(moment))
        yield family
    checks = _family("certificate_checks", "Judged checks by outcome.", ["cluster", "outcome"])
    for outcome in Outcome:
        checks.add_metric([cluster, outcome], certificate.coverage[outcome])
    yield checks
    pairs = _family("certificate_pairs", "Pairs of nodes: measured in both directions, and all.", ["cluster", "which"])
    pairs.add_metric([cluster, "tested"], certificate.coverage["pairs_tested"])
    pairs.add_metric([cluster, "all"], certificate.coverage["pairs_all"])
    yield pairs
    nodes = _family("node_verdict", "1 for the node's verdict, 0 for the others.", ["cluster", "node", "verdict"])
    for name in sorted(certificate.nodes):
        for outcome in VERDICTS:
            nodes.add_metric([cluster, name, outcome], float(certificate.nodes[name].verdict is outcome))
    yield nodes


def _culprits(certificate: Certificate) -> Iterator[GaugeMetricFamily]:
    count = _family("culprits", "Root causes found by the last run.", ["cluster"])
    count.add_metric([certificate.cluster], len(certificate.culprits))
    yield count
    info = _family(
        "culprit_info",
        "How many root causes of this kind and cause name the subject.",
        ["cluster", "kind", "subject", "cause"],
    )
    found = Counter((c.kind, c.subject, c.cause) for c in certificate.culprits)
    for (kind, subject, cause), times in sorted(found.items()):
        info.add_metric([certificate.cluster, kind, subject, cause], times)
    yield info


def _links(certificate: Certificate, data: RunData) -> Iterator[GaugeMetricFamily]:
    cluster = certificate.cluster
    slowest = _family(
        "node_slowest_link_ratio",
        "Slowest measured direction of a node: measured divided by declared.",
        ["cluster", "node"],
    )
    for name, node in sorted(certificate.nodes.items()):
        if node.slowest and node.slowest.share is not None:
            slowest.add_metric([cluster, name], node.slowest.share)
    yield slowest
    if len(data.cluster.nodes) > PAIR_SERIES_NODES:
        return
    labels = ["cluster", "src", "dst"]
    bandwidth = _family("pair_bandwidth_bytes_per_second", "Payload from src to dst, upper quartile of rounds.", labels)
    ratio = _family("pair_bandwidth_ratio", "Measured divided by declared bandwidth from src to dst.", labels)
    latency = _family("pair_latency_seconds", "Half a round trip of a small message.", [*labels, "percentile"])
    for (src, dst), found in sorted(data.directions.items()):
        if found.gbps is not None:
            bandwidth.add_metric([cluster, src, dst], _digits(found.gbps * _BYTES_PER_SECOND))
        if found.share is not None:
            ratio.add_metric([cluster, src, dst], _digits(found.share))
        for percentile, value_us in (("50", found.latency_p50_us), ("99", found.latency_p99_us)):
            if value_us is not None:
                latency.add_metric([cluster, src, dst, percentile], _digits(value_us / 1e6))
    yield from (bandwidth, ratio, latency)


def _collectives(certificate: Certificate) -> Iterator[GaugeMetricFamily]:
    busbw = _family(
        "collective_bus_bandwidth_bytes_per_second",
        "Bus bandwidth by message size, as nccl-tests defines it.",
        ["cluster", "op", "nodes", "message_bytes"],
    )
    latest = {(c.op, c.nodes, c.bytes): c.busbw_gbps for c in certificate.collectives}
    for (op, nodes, size), value in sorted(latest.items()):
        busbw.add_metric([certificate.cluster, op, str(nodes), str(size)], _digits(value * _BYTES_PER_SECOND))
    yield busbw


def _trainings(cluster: str, data: RunData) -> Iterator[GaugeMetricFamily]:
    rate = _family(
        "training_samples_per_second", "Global batch divided by median step, without warm-up.", ["cluster", "nodes"]
    )
    loss = _family("training_last_loss", "Loss of the last step.", ["cluster", "nodes"])
    step = _family(
        "training_step_seconds", "Median step, and its parts, on each node.", ["cluster", "nodes", "node", "part"]
    )
    for training in data.ddp:
        size = str(len(training.nodes))
        found = samples_per_second(training)
        if found is not None:
            rate.add_metric([cluster, size], _digits(found))
        if training.losses:
            loss.add_metric([cluster, size], training.losses[-1])
        for node, part, value in _parts(training):
            step.add_metric([cluster, size, node, part], _digits(value))
    yield from (rate, loss, step)


def _parts(training: TrainingRecord) -> Iterator[tuple[str, str, float]]:
    parts = (
        ("all", training.step_seconds),
        ("compute", training.compute_seconds),
        ("communication", training.comm_seconds),
    )
    for node in sorted(training.nodes):
        yield from ((node, part, median(times[node])) for part, times in parts if times.get(node))


def _durations(cluster: str, data: RunData) -> Iterator[GaugeMetricFamily]:
    run = _family("run_duration_seconds", "Length of the last run.", ["cluster"])
    run.add_metric([cluster], data.duration_s)
    yield run
    stages = _family("stage_duration_seconds", "Length of each stage of the last run.", ["cluster", "stage"])
    lengths: dict[str, float] = {}
    for record in data.stages:
        lengths[record.stage] = lengths.get(record.stage, 0.0) + record.seconds
    for stage, length in lengths.items():
        stages.add_metric([cluster, stage], length)
    yield stages
