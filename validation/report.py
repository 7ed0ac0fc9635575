"""The report of a run: one HTML file without script or network, the verdict and what to do now first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from inventory.hardware import FoundNode, HardwareLock
from validation import report_figures, report_scaling
from validation.certificate_model import Certificate, CheckEntry, NodeEntry
from validation.model import SEVERITY, JournalRecord, Judgement, Outcome, Record, RunRecord
from validation.report_data import Direction, RunData, gather
from validation.report_scope import still_open
from validation.report_words import (
    OUTCOME_WORDS,
    SUBSTRATE_WORDS,
    byte_size,
    counted,
    gbps,
    headline,
    listed,
    percent,
    printable,
    seconds,
    significant,
)

TEMPLATES = Path(__file__).parent.parent / "files" / "report"
CULPRITS_IN_FULL = 3
"""More would push the last remedy off the first screen; the others are folded below."""
SLOWEST_SHOWN = 12
FINE = (Outcome.PASS, Outcome.NOT_APPLICABLE)
TONES = {Outcome.PASS: "pass", Outcome.FAIL: "fail"}


@dataclass(frozen=True)
class Fact:
    """One number of the strip below the verdict."""

    name: str
    value: str
    note: str
    tone: str = ""


@dataclass(frozen=True)
class NodeView:
    """A node with what did not pass in front."""

    name: str
    entry: NodeEntry
    hardware: str
    blamed: tuple[str, ...]
    """Sentences of the culprits that keep it out of service."""
    bad: tuple[CheckEntry, ...]
    good: tuple[CheckEntry, ...]

    @property
    def passed(self) -> int:
        return sum(check.outcome is Outcome.PASS for check in self.good)

    @property
    def tone(self) -> str:
        return TONES.get(self.entry.verdict, "open")


def render_report(records: Sequence[Record], judgement: Judgement, certificate: Mapping[str, Any]) -> str:
    """The whole page; the same records give the same bytes."""
    document, data = Certificate.model_validate(certificate), gather(records)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters.update(
        seconds=seconds,
        gbps=gbps,
        percent=percent,
        counted=counted,
        byte_size=byte_size,
        significant=significant,
        listed=listed,
        day=_day,
    )
    page = environment.get_template("report.html.jinja")
    return page.render(
        **_verdict(document, judgement), **_links(data, document), **_training(data), **_nodes(data, document),
        **_coverage(data, document),
        journals={one.node: one.lines for one in records if isinstance(one, JournalRecord)},
    )  # fmt: skip


def _shown(value: object) -> object:
    """Escaping makes text inert as markup; this does it for control and direction characters."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _day(text: str) -> str:
    return f"{datetime.fromisoformat(text):%-d %B %Y, %H:%M} UTC"


def _verdict(document: Certificate, judgement: Judgement) -> dict[str, Any]:
    checks = document.checks
    return {
        "c": document,
        "headline": headline(document.verdict, document.certified, document.substrate),
        "tone": "pass"
        if document.certified
        else TONES.get(document.verdict, "open")
        if not document.partial
        else "open",
        "culprits": document.culprits[:CULPRITS_IN_FULL],
        "drained": any(culprit.node for culprit in document.culprits),
        "more_culprits": document.culprits[CULPRITS_IN_FULL:],
        "undecided": still_open(judgement),
        "unexplained": [] if document.culprits else [check for check in checks if check.outcome in SEVERITY],
        "advice": [check for check in checks if check.advice],
        "lead": document.statement.removeprefix(SUBSTRATE_WORDS[document.substrate]).strip(),
        "facts": list(_facts(document)),
        "outcome_words": OUTCOME_WORDS,
    }


def _facts(document: Certificate) -> Iterator[Fact]:
    passed = sum(node.verdict is Outcome.PASS for node in document.nodes.values())
    total = len(document.nodes)
    failed = any(node.verdict is Outcome.FAIL for node in document.nodes.values())
    yield Fact("Nodes", f"{passed} of {total}", "passed", "pass" if passed == total else "fail" if failed else "open")
    tested, pairs = document.coverage["pairs_tested"], document.coverage["pairs_all"]
    if pairs:
        yield Fact("Pairs", f"{tested:,} of {pairs:,}", "measured both ways", "" if tested == pairs else "open")
    if document.collectives:
        best = max(document.collectives, key=lambda c: (c.nodes, c.bytes))
        note = f"bus bandwidth at {byte_size(best.bytes)}" if best.verified else "WRONG SUMS"
        yield Fact("Together", gbps(best.busbw_gbps), note, "" if best.verified else "fail")
    if document.trainings:
        best_run = document.trainings[-1]
        if best_run.samples_per_second is not None:
            note = f"trained on {counted(best_run.nodes, 'node')}"
            yield Fact("Training", f"{significant(best_run.samples_per_second)} samples/s", note)


def _links(data: RunData, document: Certificate) -> dict[str, Any]:
    names = [node.name for node in data.cluster.nodes]
    measured = any(found.tried for found in data.directions.values())
    small = len(names) <= report_figures.MATRIX_NODES
    return {
        "names": names,
        "matrix": report_figures.matrix(data, names) if measured and small and len(names) > 1 else None,
        "heat_map": report_figures.heat_map(data, names) if measured and not small else None,
        "slowest": _slowest(data),
        "judged_links": [link for link in document.links if any(c.outcome in SEVERITY for c in link.checks)],
        "unjudged_links": _unjudged(document),
        "cell": report_figures.cell,
    }


def _unjudged(document: Certificate) -> dict[str, list[str]]:
    """Links that were not judged, by the reason for it; not those that stand there for another check."""
    found: dict[str, list[str]] = {}
    for link in document.links:
        shown = any(check.outcome in SEVERITY for check in link.checks)
        for check in link.checks:
            if check.outcome is Outcome.SKIPPED and not shown:
                found.setdefault(check.evidence or check.measured or "no reason given", []).append(link.link)
    return {reason: list(dict.fromkeys(links)) for reason, links in found.items()}


def _slowest(data: RunData) -> list[Direction]:
    """Directions below the verdict's "clear", worst first."""
    low = [d for d in data.directions.values() if d.tried and report_figures.shade(d) not in ("s4", "s5", "s6")]
    return sorted(low, key=lambda d: (d.share or 0.0, d.src, d.dst))[:SLOWEST_SHOWN]


def _training(data: RunData) -> dict[str, Any]:
    largest = data.ddp[-1] if data.ddp else None
    return {
        "scaling": report_figures.scaling(data),
        "has_bound": any(report_figures.least_comm_seconds(data, training) for training in data.ddp),
        "scaling_rows": report_scaling.rows(data),
        "scaling_sentence": report_scaling.sentence(data),
        "largest": largest,
        "step_times": report_figures.step_times(largest) if largest else None,
        "step_rows": report_figures.STEP_ROWS,
        "losses": report_figures.losses(data),
        "has_reference": any(training.mode == "reference" for training in data.trainings),
        "failures": data.failures,
    }


def _nodes(data: RunData, document: Certificate) -> dict[str, Any]:
    lock = HardwareLock.model_validate(data.run.lock) if data.run.lock else HardwareLock()
    blamed = {name: tuple(c.sentence for c in document.culprits if c.node == name) for name in document.nodes}
    views = [_node(name, entry, lock.nodes.get(name), blamed[name]) for name, entry in document.nodes.items()]
    return {
        "bad_nodes": [view for view in views if view.entry.verdict is not Outcome.PASS],
        "good_nodes": [view for view in views if view.entry.verdict is Outcome.PASS],
        "bad_whole": _bad(document.whole),
        "good_whole": _good(document.whole),
    }


def _bad(checks: Sequence[CheckEntry]) -> tuple[CheckEntry, ...]:
    """What withholds a verdict, and what was skipped after it."""
    found = (check for check in checks if check.outcome not in FINE)
    return tuple(sorted(found, key=lambda check: check.outcome not in SEVERITY))


def _good(checks: Sequence[CheckEntry]) -> tuple[CheckEntry, ...]:
    found = (check for check in checks if check.outcome in FINE)
    return tuple(sorted(found, key=lambda check: check.outcome is not Outcome.PASS))


def _node(name: str, entry: NodeEntry, found: FoundNode | None, blamed: tuple[str, ...]) -> NodeView:
    return NodeView(
        name=name,
        entry=entry,
        hardware=_hardware(found) if found else "not in the hardware lock",
        blamed=blamed,
        bad=_bad(entry.checks),
        good=_good(entry.checks),
    )


def _hardware(found: FoundNode) -> str:
    parts = [found.cpu_model, counted(found.cpus, "CPU"), f"{found.memory_mib / 1024:.0f} GiB memory"]
    cards: dict[str, int] = {}
    for gpu in found.gpus:
        cards[gpu.model] = cards.get(gpu.model, 0) + 1
    parts += [f"{count} × {model}" for model, count in cards.items()]
    return ", ".join(part for part in parts if part)


def _coverage(data: RunData, document: Certificate) -> dict[str, Any]:
    total = sum(record.seconds for record in data.stages) or 1.0
    return {
        "counts": [(o, OUTCOME_WORDS[o], document.coverage[o]) for o in Outcome if document.coverage[o]],
        "timeline": [(record, 100 * record.seconds / total) for record in data.stages],
        "duration_s": data.duration_s,
        "run": _run_facts(data.run),
    }


def _run_facts(run: RunRecord) -> list[tuple[str, str]]:
    return [
        ("Run", run.run_id),
        ("klaster", run.version),
        ("Level", run.level),
        ("Started through", run.launcher),
        ("Stages asked for", ", ".join(run.stages)),
    ]
