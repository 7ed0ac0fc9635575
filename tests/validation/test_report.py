"""The HTML report: what comes first, that it loads nothing, and that nothing from a node becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from validation.certificate import build_certificate
from validation.model import CheckResult, Culprit, Judgement, Outcome
from validation.report import render_report

VOID = {"meta", "br", "hr", "input", "img", "link"}
ACTIVE = {"script", "img", "iframe", "object", "embed", "link", "a", "form", "base", "foreignobject", "image", "use"}


def page(sample: Sample) -> str:
    certificate = build_certificate(sample.records, sample.judgement, sample.results_sha256)
    return render_report(sample.records, sample.judgement, certificate)


class Reader(HTMLParser):
    """Collects elements, attributes and visible text, and whether every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


def assert_inert(html: str) -> None:
    reader = Reader(html)
    assert not reader.elements & ACTIVE
    assert not [name for name, _ in reader.attributes if name.startswith("on") or name in {"src", "href", "action"}]
    assert not reader.unbalanced
    assert not reader.open


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_page_is_whole_and_loads_nothing(name: str) -> None:
    """Every element is closed, nothing is active, nothing is loaded, and the browser is told to load nothing."""
    html = page(SAMPLES[name]())
    assert_inert(html)
    assert "default-src 'none'" in html
    assert "url(" not in html
    assert "@import" not in html
    assert "http" not in re.sub(r"http-equiv", "", html)


def test_the_same_run_gives_the_same_page() -> None:
    """Rendering twice gives the same bytes."""
    assert page(slow_network()) == page(slow_network())


def test_verdict_culprit_and_remedy_come_first() -> None:
    """The verdict, the culprit in plain words, the remedy and its evidence stand before any figure, in that order."""
    text = Reader(page(slow_network())).text
    places = [
        text.index(part)
        for part in (
            "Not certified: something failed",
            "n3: its network is slower than declared",
            "What to do now: Look at n3's cable",
            "3 of 3 retests low",
            "Every pair, both ways",
        )
    ]
    assert places == sorted(places)


def test_a_passed_hardware_run_is_certified_without_a_banner() -> None:
    """Hardware that passed reads "Certified", with its date of expiry and no word of a rehearsal."""
    text = Reader(page(healthy("hardware"))).text
    assert "✓ Certified" in text
    assert "This holds until 2 November 2026" in text
    assert "REHEARSAL" not in text


def test_a_rehearsal_wears_a_banner_and_prints_no_efficiency() -> None:
    """A rehearsal says so above everything and that its scaling says nothing; only hardware gets an efficiency."""
    rehearsal, hardware = Reader(page(healthy())).text, Reader(page(healthy("hardware"))).text
    assert rehearsal.index("REHEARSAL") < rehearsal.index("✓ Rehearsal passed")
    assert "efficiency says nothing about a cluster" in rehearsal
    assert "Scaling efficiency" not in rehearsal
    assert "Scaling efficiency" in hardware
    assert "certified" not in rehearsal.split("Every pair")[0].lower()


def test_many_culprits_do_not_push_each_other_off_the_screen() -> None:
    """Three culprits are shown, the others folded, and none is lost."""
    sample = slow_network()
    culprits = tuple(
        Culprit(kind="node", subject=f"n{at}", cause="clock", evidence=("late",) * 6, remedy="Set it.", node=f"n{at}")
        for at in range(1, 8)
    )
    html = page(Sample(sample.records, sample.judgement.model_copy(update={"culprits": culprits})))
    head, folded = html.split('<details class="more">')
    assert head.count('class="culprit"') == 3
    assert folded.count('class="culprit"') == 4
    assert "2 more pieces of evidence" in html


def test_an_undecided_run_says_what_would_decide_it() -> None:
    """Without a culprit the page says what to do to get an answer, and blames nobody."""
    text = Reader(page(undecided())).text
    assert "it could not be decided" in text
    assert "What to do now: settle what is open" in text
    assert text.index("settle what is open") < text.index("Bandwidth of n1–n3: the host was busy")


def test_the_matrix_shows_direction_number_and_cut() -> None:
    """A cell holds its per cent of the declared speed and the numbers behind it; a cut link a cross."""
    slow, cut = page(slow_network()), page(link_cut())
    assert re.search(r'<td class="s0" title="n1 → n3: 0\.04\d+ Gb/s of 1 Gb/s declared[^"]*">5</td>', slow)
    assert re.search(r'<td class="s5" title="n1 → n2: 0\.9\d+ Gb/s[^"]*">9\d</td>', slow)
    assert cut.count('title="n1 → n2: nothing arrived (timeout)">✕</td>') == 1


def test_a_hang_names_the_rank_and_clears_those_who_waited() -> None:
    """The rank, where it was, its state and its last lines are there, and so is who only waited."""
    text = Reader(page(hang())).text
    assert "n2 , rank 1, stage training: hang" in text
    assert "step 23, phase forward" in text
    assert "T (stopped)" in text
    assert "n1, n3 only waited for it" in text
    assert "step 22 loss 0.61" in text


def test_what_failed_stands_before_what_passed() -> None:
    """The failed node comes first and open; passed nodes are closed; passed checks of a failed node are folded."""
    nodes = page(slow_network()).split('<section id="nodes">')[1].split("</section>")[0]
    assert nodes.index("<b>n3</b>") < nodes.index("<b>head</b>")
    assert '<details class="node fail" open>' in nodes
    assert '<details class="node pass">' in nodes
    failed = nodes.split("<b>head</b>")[0]
    assert failed.index("bandwidth") < failed.index("8 checks passed")
    assert "declared 1 Gb/s × 0.80" in failed


def test_it_says_what_was_not_tested() -> None:
    """Skipped stages and what this level does not look for are listed with their reason."""
    text = Reader(page(link_cut())).text
    assert "Stage training (training on the nodes together): n1 and n2 cannot reach each other." in text
    assert "GPUs and NCCL" in text


def test_what_does_not_apply_is_folded_with_what_passed() -> None:
    """A check that does not apply is no reason for a node's verdict and is counted apart from the passed ones."""
    sample = slow_network()
    gpus = CheckResult(subject="n3", stage="node", check="gpus", outcome=Outcome.NOT_APPLICABLE, measured="no GPU")
    judged = sample.judgement.model_copy(update={"results": (*sample.judgement.results, gpus)})
    nodes = page(Sample(sample.records, judged)).split('<section id="nodes">')[1].split("<b>head</b>")[0]
    assert "8 checks passed, 1 not applicable" in nodes
    assert nodes.index("8 checks passed") < nodes.index("gpus")
    assert "8 of 9 checks" in nodes


def test_a_stage_that_did_not_run_is_said_once() -> None:
    """With a culprit named, a stage left out for it stands under "not tested" and not under "undecided" too."""
    sample = link_cut()
    twice = ("Stage cluster: n1 and n2 cannot reach each other.", "Latency of n3: run again.")
    judged = sample.judgement.model_copy(update={"undecided": twice})
    text = Reader(page(Sample(sample.records, judged))).text
    assert "Could not be decided Latency of n3" in text
    assert "Stage cluster:" not in text
    assert "Stage cluster (" in text


def test_two_hundred_nodes_stay_one_readable_file() -> None:
    """A large run is below 2 MB, draws the pairs as a picture and folds the nodes that passed."""
    html = render_report(large().records, large().judgement, certificate_of(large))
    assert len(html) < 2_000_000
    assert "198 nodes passed" in html
    assert '<table class="matrix">' not in html
    assert "from each of 200 nodes" in html


def test_kernel_and_slurm_stand_beside_the_failure() -> None:
    """What they said in the run's time is below the culprit's card and below the rank that stopped."""
    html = page(hang())
    assert html.count("Kernel and Slurm of n2 in this time") == 2
    card = html.partition("</article>")[2][:600]
    assert "n2 kernel: a kernel&#39;s line\n2026-10-03T10:16:03 n2 slurmd[812]: slurmd&#39;s line" in card
    assert "Kernel and Slurm of" not in page(healthy())


def test_hostile_text_is_shown_and_stays_text() -> None:
    """Markup and control sequences written by a node are shown as text, in every place where they can appear."""
    html = page(hostile())
    assert_inert(html)
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 10
    assert "\x1b" not in html
    assert "\u202e" not in html


@settings(max_examples=10, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_of_a_node_is_inert(text: str) -> None:
    """Whatever a node says, the page's structure does not change."""
    sample = hang()
    evil = f"</pre></details><svg onload=x>{text}"
    culprit = Culprit(kind="node", subject=evil, cause=evil, evidence=(evil,), remedy=evil, node="n2")
    assert_inert(page(Sample(sample.records, sample.judgement.model_copy(update={"culprits": (culprit,)}))))


def test_a_run_that_hardly_began_has_a_page() -> None:
    """With nothing measured the page has a verdict, says what did not run, and draws no empty figure."""
    run = Builder()
    run.begin()
    html = page(Sample(run.records, Judgement(verdict=Outcome.INCONCLUSIVE, undecided=("It was interrupted.",))))
    assert_inert(html)
    assert "<svg" not in html
    assert "It was interrupted." in html
    assert "Stage pairs" in html
