"""The console summary: what it says, that it fits, and that it stays short for large clusters."""

from __future__ import annotations

import re

import pytest

from tests.validation.sample_builder import Sample
from tests.validation.sample_run import (
    SAMPLES,
    certificate_of,
    healthy,
    hostile,
    large,
    link_cut,
    slow_network,
    undecided,
)
from validation.certificate import build_certificate
from validation.model import Outcome
from validation.summary import render_summary


def said(sample: Sample, *, width: int = 100, color: bool = False) -> str:
    certificate = build_certificate(sample.records, sample.judgement, sample.results_sha256)
    return render_summary(
        certificate, sample.judgement, report_path="reports/lab/latest/report.html", width=width, color=color
    )


@pytest.mark.parametrize("name", list(SAMPLES))
def test_no_line_is_wider_than_asked(name: str) -> None:
    """Every line fits the width, and never more than 100 columns are used."""
    sample = SAMPLES[name]()
    certificate = build_certificate(sample.records, sample.judgement, sample.results_sha256)
    for width in (40, 72, 100, 250):
        text = render_summary(certificate, sample.judgement, report_path="reports/latest/report.html", width=width)
        widest = max(text.splitlines(), key=len)
        assert len(widest) <= min(width, 100), widest


@pytest.mark.parametrize("name", list(SAMPLES))
def test_colour_changes_nothing_but_colour(name: str) -> None:
    """Without its colour codes a coloured summary is the plain one, and the plain one has no code."""
    plain, coloured = said(SAMPLES[name]()), said(SAMPLES[name](), color=True)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()] == plain.splitlines()


def test_a_failure_reads_verdict_culprit_evidence_remedy() -> None:
    """The verdict comes first, then who is to blame, why, and what to do; the report's place is last."""
    text = said(slow_network())
    places = [
        text.index(part)
        for part in ("NOT CERTIFIED", "n3: its network", "- 3 of 3 retests low", "Do: Look at n3's cable", "Node ")
    ]
    assert places == sorted(places)
    assert "n3 is out of service until it passes" in text
    assert text.splitlines()[-1].endswith("reports/lab/latest/report.html")


def test_the_bad_node_is_listed_first_with_its_numbers() -> None:
    """The failed node leads the table and shows its own slow speed; a good node shows its good one."""
    rows = [line.split() for line in said(slow_network()).splitlines() if line.startswith(("  n", "  head"))]
    assert rows[0][:2] == ["n3", "FAIL"]
    assert float(rows[0][5]) < 0.1
    assert all(float(row[5]) > 0.9 for row in rows[1:])


def test_a_cut_link_takes_nobody_out_of_service() -> None:
    """A link's culprit says that no node is taken out of service for it."""
    text = said(link_cut())
    assert "Link n1–n2" in text
    assert "no node is taken out of service" in text
    assert "FAIL" not in text.split("Node ")[1].split("Pairs")[0]


def test_a_rehearsal_never_reads_certified() -> None:
    """A passed rehearsal says REHEARSAL PASSED and what that does not prove; hardware says CERTIFIED."""
    assert "REHEARSAL PASSED" in said(healthy())
    assert "certifies no real machine" in " ".join(said(healthy()).split())
    assert "lab · CERTIFIED\n" in said(healthy("hardware"))
    assert "REHEARSAL" not in said(healthy("hardware"))


def test_two_hundred_nodes_stay_readable() -> None:
    """Passing nodes are one line, failed ones are rows."""
    text = render_summary(certificate_of(large), large().judgement)
    assert len(text.splitlines()) < 45
    assert "198 nodes passed and are not listed" in text
    assert re.search(r"^  n42 +FAIL", text, re.MULTILINE)


def test_a_verdict_without_a_culprit_still_has_a_reason() -> None:
    """Checks that did not pass are listed when nobody is named, with what was required."""
    text = said(undecided())
    assert "What did not pass" in text
    assert "n1–n3, bandwidth: 0.79 Gb/s (required: ≥ 0.85 Gb/s)" in text
    assert "Could not be decided" in text


def test_a_node_can_not_write_to_the_terminal() -> None:
    """Control sequences of a node are replaced, also with colours on."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", said(hostile(), color=True))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


def test_wrong_data_is_shouted() -> None:
    """Data that arrived other than sent is not called verified."""
    sample = healthy()
    spoilt = [r.model_copy(update={"verified": False}) if r.kind == "cell" else r for r in sample.records]
    assert "WRONG DATA ARRIVED" in said(Sample(spoilt, sample.judgement))
    assert "what arrived was verified" in said(sample)


def test_a_partial_pass_is_not_certified() -> None:
    """A run of a part that passed says that it was not complete."""
    sample = healthy("hardware")
    run = sample.records[0].model_copy(update={"partial": True})
    text = said(Sample([run, *sample.records[1:]], sample.judgement))
    assert "NOT CERTIFIED: THE RUN WAS NOT COMPLETE" in text
    assert sample.judgement.verdict is Outcome.PASS


def test_advice_is_counted_and_does_not_alarm() -> None:
    """Hints beside passed checks are counted in one line that points to the report."""
    sample = healthy()
    first, *rest = sample.judgement.results
    hint = first.model_copy(update={"advice": "start chrony"})
    text = said(Sample(sample.records, sample.judgement.model_copy(update={"results": (hint, *rest)})))
    assert "1 hint in the report" in text
    assert "hint" not in said(sample)
