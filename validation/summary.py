"""The end of a run on the console: verdict, culprits and what to do, nodes, what was not tested."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from validation.certificate_model import Certificate, CulpritEntry, NodeEntry, TrainingEntry
from validation.model import SEVERITY, Judgement, Outcome
from validation.report_scope import still_open
from validation.report_words import OUTCOME_WORDS, byte_size, counted, gbps, headline, printable, seconds, significant

MAX_WIDTH = 100
MIN_WIDTH = 40
NODES_IN_FULL = 16
"""Above this many, passing nodes are one line; others are shown, up to BAD_NODES_IN_FULL."""
BAD_NODES_IN_FULL = 30
CULPRITS_IN_FULL = 10
_BOLD, _DIM, _GREEN, _RED, _YELLOW = "1", "2", "32", "31", "33"
_VERDICT_COLOURS = {Outcome.PASS: _GREEN, Outcome.FAIL: _RED}


def render_summary(
    certificate: Mapping[str, Any],
    judgement: Judgement,
    *,
    report_path: str = "",
    width: int = MAX_WIDTH,
    color: bool = False,
) -> str:
    """The summary as text with a newline at its end, no line longer than `width` but for a path."""
    document = Certificate.model_validate(certificate)
    page = _Page(max(MIN_WIDTH, min(width, MAX_WIDTH)), color)
    page.lines(_headline(page, document))
    page.lines(_culprits(page, document.culprits))
    if not document.culprits:
        page.lines(_bullets(page, "What did not pass", _unexplained(document)))
    page.lines(_nodes(page, document))
    page.lines(_whole(page, document))
    page.lines(_bullets(page, "Could not be decided", [printable(text) for text in still_open(judgement)]))
    page.lines(_bullets(page, "Not tested by this run", document.not_tested))
    if report_path:
        page.lines(["", f"Report  {printable(report_path)}"])
    return page.text()


class _Page:
    """Lines of one width; colour codes are put around whole pieces only, so that they never count as width."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self._color = width, color
        self._lines: list[str] = []

    def paint(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._color else text

    def wrap(self, text: str, indent: str = "", first: str | None = None) -> list[str]:
        """`text` folded to the width; the first line may begin otherwise."""
        start = indent if first is None else first
        return textwrap.wrap(" ".join(text.split()), self.width, initial_indent=start, subsequent_indent=indent) or [
            start.rstrip()
        ]

    def rule(self) -> str:
        return self.paint("─" * self.width, _DIM)

    def lines(self, lines: Sequence[str] | Iterator[str]) -> None:
        self._lines.extend(lines)

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._lines) + "\n"


def _headline(page: _Page, document: Certificate) -> Iterator[str]:
    colour = _GREEN if document.certified else _VERDICT_COLOURS.get(document.verdict, _YELLOW)
    said = headline(document.verdict, document.certified, document.substrate)
    length = _span_s(document)
    facts = [f"level {document.level}", counted(len(document.nodes), "node"), seconds(length)]
    yield page.rule()
    yield from (page.paint(line, _BOLD, colour) for line in page.wrap(f"{document.cluster} · {said.upper()}"))
    yield from page.wrap(" · ".join([*facts, f"run {document.run_id}", f"ended {document.issued_at}"]))
    if document.substrate != "hardware":
        yield from (page.paint(line, _DIM) for line in page.wrap(_limits(document)))
    if document.certified:
        yield from page.wrap(f"Valid until {document.expires_at}, or until a node's hardware changes.")
    yield page.rule()


def _limits(document: Certificate) -> str:
    """The sentence of the statement that says what the substrate can't prove."""
    return document.statement.split(". ")[0].rstrip(".") + "."


def _span_s(document: Certificate) -> float:
    ended, started = datetime.fromisoformat(document.issued_at), datetime.fromisoformat(document.started_at)
    return (ended - started).total_seconds()


def _culprits(page: _Page, culprits: Sequence[CulpritEntry]) -> Iterator[str]:
    if not culprits:
        return
    yield ""
    yield page.paint("What is wrong, and what to do now", _BOLD)
    for number, culprit in enumerate(culprits[:CULPRITS_IN_FULL], start=1):
        sentence = page.wrap(culprit.sentence, indent="     ", first=f"  {number}. ".ljust(5))
        yield from (page.paint(line, _BOLD) for line in sentence)
        for line in culprit.evidence:
            yield from page.wrap(line, indent="       ", first="     - ")
        if culprit.remedy:
            yield from page.wrap(f"Do: {culprit.remedy}", indent="         ", first="     ")
        yield from (page.paint(line, _DIM) for line in page.wrap(f"({culprit.effect})", indent="     "))
    if len(culprits) > CULPRITS_IN_FULL:
        yield f"  … and {len(culprits) - CULPRITS_IN_FULL} more in the report"


def _unexplained(document: Certificate) -> list[str]:
    """Checks that failed or broke though no culprit was named: a verdict without a reason helps nobody."""
    found = [
        f"{check.subject}, {check.check}: {check.measured or check.evidence or OUTCOME_WORDS[check.outcome]}"
        + (f" (required: {check.required})" if check.required else "")
        for check in document.checks
        if check.outcome in SEVERITY
    ]
    more = [f"… and {len(found) - CULPRITS_IN_FULL} more in the report"] if len(found) > CULPRITS_IN_FULL else []
    return found[:CULPRITS_IN_FULL] + more


def _nodes(page: _Page, document: Certificate) -> Iterator[str]:
    if not document.nodes:
        return
    bad = {name: node for name, node in document.nodes.items() if node.verdict is not Outcome.PASS}
    good = {name: node for name, node in document.nodes.items() if node.verdict is Outcome.PASS}
    folded = len(document.nodes) > NODES_IN_FULL
    shown = {**dict(list(bad.items())[: BAD_NODES_IN_FULL if folded else None]), **({} if folded else good)}
    rows = [_node_row(name, node) for name, node in shown.items()]
    yield ""
    if rows:
        yield from _table(page, ("Node", "Verdict", "Checks", "Sends", "Receives", "Step"), rows)
    if len(bad) > BAD_NODES_IN_FULL and folded:
        yield f"  … and {len(bad) - BAD_NODES_IN_FULL} more that did not pass: see the report"
    if folded and good:
        yield page.paint(f"  {counted(len(good), 'node')} passed{' and are not listed' if rows else ''}", _GREEN)


def _node_row(name: str, node: NodeEntry) -> tuple[str, ...]:
    judged = [check for check in node.checks if check.outcome not in (Outcome.SKIPPED, Outcome.NOT_APPLICABLE)]
    passed = sum(check.outcome is Outcome.PASS for check in judged)
    rates = [gbps(rate) if rate is not None else "–" for rate in (node.send_gbps, node.receive_gbps)]
    step = seconds(node.step_seconds) if node.step_seconds is not None else "–"
    checks = f"{passed} of {len(judged)}" if judged else "–"  # a run of the pairs alone judges links
    return (name, node.verdict.value, checks, *rates, step)


def _table(page: _Page, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Columns as wide as their content; those that do not fit the page are left out from the right."""
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    while sum(widths) + 2 * len(widths) > page.width and len(widths) > 2:
        widths.pop()
    yield page.paint(_columns(head, widths), _DIM)
    for row in rows:
        line = _columns(row, widths)
        outcome = Outcome(row[1])
        colour = _VERDICT_COLOURS.get(outcome, _YELLOW)
        yield line.replace(row[1].ljust(widths[1]), page.paint(row[1].ljust(widths[1]), colour), 1)


def _columns(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)).rstrip()


def _whole(page: _Page, document: Certificate) -> Iterator[str]:
    yield ""
    tested, total = document.coverage["pairs_tested"], document.coverage["pairs_all"]
    wrong = any(d.verified is False for link in document.links for d in link.directions)
    data = "WRONG DATA ARRIVED" if wrong else "what arrived was verified" if tested else "no data moved"
    yield from _row(page, "Pairs", f"{tested:,} of {total:,} measured in both directions, {data}")
    if document.collectives:
        best = max(document.collectives, key=lambda c: (c.nodes, c.bytes))
        good = "sums verified on every node" if best.verified else "WRONG SUMS"
        size = f"{byte_size(best.bytes)} on {counted(best.nodes, 'node')}"
        text = f"bus bandwidth {gbps(best.busbw_gbps)} at {size}, {good}"
        yield from _row(page, "All-reduce", text)
    if document.trainings:
        yield from _row(page, "Training", _training(document.trainings[-1]))
    counts = [f"{document.coverage[o]:,} {OUTCOME_WORDS[o]}" for o in Outcome if document.coverage[o]]
    yield from _row(page, "Checks", ", ".join(counts) or "none")
    advised = sum(bool(check.advice) for check in document.checks)
    if advised:
        yield from _row(
            page, "Advice", f"{counted(advised, 'hint')} in the report, none of which withholds a certificate"
        )


def _row(page: _Page, name: str, text: str) -> list[str]:
    return page.wrap(text, indent=" " * 14, first=f"  {name:<12}")


def _training(training: TrainingEntry) -> str:
    parts = [counted(training.nodes, "node")]
    if training.samples_per_second is not None:
        parts.append(f"{significant(training.samples_per_second)} samples/s")
    if training.step_seconds is not None:
        parts.append(f"{seconds(training.step_seconds)} a step")
    if training.first_loss is not None and training.last_loss is not None:
        parts.append(f"loss {significant(training.first_loss)} → {significant(training.last_loss)}")
    return ", ".join(parts)


def _bullets(page: _Page, title: str, items: Sequence[str]) -> Iterator[str]:
    if not items:
        return
    yield ""
    yield page.paint(title, _BOLD)
    for item in items:
        yield from page.wrap(item, indent="    ", first="  - ")
