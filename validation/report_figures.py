"""The report's figures: scaling, step times, loss, and the pair matrix, each drawn from measured numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from markupsafe import Markup

from validation.model import TrainingRecord
from validation.report_data import Direction, RunData, step_seconds
from validation.report_svg import box, drawing, element, line, text, ticks
from validation.report_words import counted, gbps, seconds, significant

WIDTH = 440
_LEFT, _RIGHT = 74, 12
STEP_ROWS = 12
"""Nodes shown with their step times; in a larger cluster the slowest ones."""
MATRIX_NODES = 24
"""Up to here the matrix has a number in each cell; above, it is a picture of colours."""

_BINS = ((0.95, "s6"), (0.90, "s5"), (0.85, "s4"), (0.80, "s3"), (0.50, "s2"), (0.20, "s1"), (0.0, "s0"))
"""Shares of the declared speed by colour; 0.85 and 0.80 are the verdict's thresholds clear and low."""


@dataclass(frozen=True)
class Cell:
    """One direction in the matrix: its class (colour), what stands in it, and the sentence behind it."""

    shade: str
    shown: str
    title: str


def shade(found: Direction | None) -> str:
    """The class of a direction's cell: s0 (far too slow) to s6 (as declared), cut, wrong, unknown."""
    if found is None or not found.tried:
        return "unknown"
    if found.verified is False:
        return "wrong"
    if found.gbps is None:
        return "cut"
    share = found.share
    return "unknown" if share is None else next(name for least, name in _BINS if share >= least)


def cell(found: Direction | None) -> Cell:
    """What the matrix says of one direction."""
    if found is None:
        return Cell("self", "", "")
    way = f"{found.src} → {found.dst}"
    if not found.tried:
        return Cell("unknown", "–", f"{way}: not measured")
    if found.gbps is None:
        return Cell("cut", "✕", f"{way}: nothing arrived ({found.error})")
    shown = f"{found.share * 100:.0f}" if found.share is not None else significant(found.gbps)
    said = [f"{way}: {gbps(found.gbps)}"]
    if found.declared_gbps is not None:
        said.append(f"of {gbps(found.declared_gbps)} declared")
    if found.rounds > 1 and found.lowest_gbps is not None and found.highest_gbps is not None:
        said.append(f"({significant(found.lowest_gbps)} to {gbps(found.highest_gbps)} in {found.rounds} rounds)")
    if found.latency_p50_us is not None:
        said[-1] += f", latency {seconds(found.latency_p50_us / 1e6)}"
    if found.verified is False:
        return Cell("wrong", "!", f"{' '.join(said)}; data arrived other than it was sent")
    return Cell(shade(found), shown, " ".join(said))


def matrix(data: RunData, names: Sequence[str]) -> list[list[Cell]]:
    """Rows send, columns receive."""
    return [[cell(data.directions.get((src, dst))) for dst in names] for src in names]


def heat_map(data: RunData, names: Sequence[str]) -> Markup:
    """The matrix of a large cluster: a path a colour keeps 40,000 cells below half a megabyte."""
    paths: dict[str, list[str]] = {}
    for row, src in enumerate(names):
        for column, dst in enumerate(names):
            if src != dst:
                found = shade(data.directions.get((src, dst)))
                paths.setdefault(found, []).append(f"M{column} {row}h1v1h-1z")
    drawn = [element("path", d="".join(parts), class_=name) for name, parts in sorted(paths.items())]
    said = f"Bandwidth from each of {len(names)} nodes (rows) to each other (columns), as a share of what is declared"
    return drawing(len(names), len(names), said, *drawn)


def scaling(data: RunData) -> Markup | None:
    """A bar a cluster size: one step, split into computing and communicating; None without distributed trainings."""
    bars = [(t, total) for t in data.ddp if (total := step_seconds(t, t.step_seconds)) is not None]
    if not bars:
        return None
    marks = ticks(0.0, max(total for _, total in bars) * 1.02, 5)
    scale = (WIDTH - _LEFT - _RIGHT - 86) / marks[-1]
    height = 34 + 34 * len(bars)
    drawn = _grid(marks, scale, height - 24)
    for row, (training, total) in enumerate(bars):
        drawn += _scaling_bar(data, training, total, 10 + 34 * row, scale)
    return drawing(WIDTH, height, "Median step time by number of nodes, computing and communicating", *drawn)


def _grid(marks: Sequence[float], scale: float, bottom: float) -> list[Markup]:
    drawn = []
    for mark in marks:
        x = _LEFT + (mark - marks[0]) * scale
        drawn += [line(x, 4, x, bottom, "grid"), text(x, bottom + 16, _tick(mark, marks[-1]), anchor="middle")]
    return drawn


def _tick(value: float, largest: float) -> str:
    return f"{significant(value * 1000)} ms" if largest < 1 else f"{significant(value)} s"


def _scaling_bar(data: RunData, training: TrainingRecord, total: float, y: float, scale: float) -> list[Markup]:
    compute = step_seconds(training, training.compute_seconds)
    comm = step_seconds(training, training.comm_seconds)
    drawn = [text(_LEFT - 8, y + 15, counted(len(training.nodes), "node"), anchor="end")]
    if compute is None:
        drawn.append(box(_LEFT, y, total * scale, 22, "bar", f"step {seconds(total)}"))
    else:
        rest = comm if comm is not None else max(0.0, total - compute)
        drawn.append(box(_LEFT, y, total * scale, 22, "bar-rest", f"whole step {seconds(total)}"))
        drawn.append(box(_LEFT, y, compute * scale, 22, "bar", f"computing {seconds(compute)}"))
        drawn.append(box(_LEFT + compute * scale, y, rest * scale, 22, "bar-comm", f"communicating {seconds(rest)}"))
    least = least_comm_seconds(data, training)
    if least is not None and compute is not None:
        x = _LEFT + (compute + least) * scale
        drawn.append(line(x, y - 3, x, y + 25, "bound"))
    drawn.append(text(_LEFT + total * scale + 8, y + 15, seconds(total), class_="number"))
    return drawn


def least_comm_seconds(data: RunData, training: TrainingRecord) -> float | None:
    """The least that one all-reduce of the gradients needs over the slowest measured direction: 2(n−1)/n · S / B."""
    count, slowest = len(training.nodes), data.slowest_gbps(training.nodes)
    if count < 2 or not slowest:
        return None
    return 2 * (count - 1) / count * training.gradient_bytes * 8 / (slowest * 1e9)


def step_times(training: TrainingRecord) -> Markup | None:
    """A strip a node: each timed step a dot, the middle half a box, the median a bar."""
    rows = [(node, times) for node in training.nodes if (times := training.step_seconds.get(node))]
    if not rows:
        return None
    if len(rows) > STEP_ROWS:
        slowest = {node for node, _ in sorted(rows, key=lambda row: -median(row[1]))[:STEP_ROWS]}
        rows = [row for row in rows if row[0] in slowest]
    marks = ticks(min(min(times) for _, times in rows), max(max(times) for _, times in rows), 5)
    scale = (WIDTH - _LEFT - _RIGHT - 12) / (marks[-1] - marks[0])
    height = 34 + 30 * len(rows)
    drawn = _grid(marks, scale, height - 24)
    for row, (node, times) in enumerate(rows):
        drawn += _strip(node, times, 21 + 30 * row, lambda value: _LEFT + (value - marks[0]) * scale)
    return drawing(WIDTH, height, "Step times of each node", *drawn)


def _strip(node: str, times: Sequence[float], y: float, place: Callable[[float], float]) -> list[Markup]:
    low, middle, high = quantiles(times, n=4) if len(times) > 1 else (times[0], times[0], times[0])
    said = f"{node}: median {seconds(middle)}, middle half {seconds(low)} to {seconds(high)}, {len(times)} steps"
    dots = "".join(
        f"M{place(value):.1f} {y + (at * 7 % 11 - 5) * 1.1:.1f}h.01" for at, value in enumerate(_thinned(times))
    )
    short = node if len(node) <= 9 else f"{node[:8]}…"
    return [
        text(_LEFT - 8, y + 4, short, anchor="end"),
        box(place(low), y - 9, max(place(high) - place(low), 1.0), 18, "quartiles", said),
        element("path", d=dots, class_="dots"),
        line(place(middle), y - 9, place(middle), y + 9, "median"),
    ]


def _thinned(times: Sequence[float], most: int = 200) -> Sequence[float]:
    """Evenly chosen steps of a long run, always with the slowest: a file nobody can open shows nothing."""
    if len(times) <= most:
        return times
    stride = -(-len(times) // most)
    return [*times[::stride], max(times)]


def losses(data: RunData) -> Markup | None:
    """Loss over steps of the largest distributed training, and of the single-process reference behind it."""
    largest = data.ddp[-1] if data.ddp else None
    if largest is None or len(largest.losses) < 2:
        return None
    reference = next((t for t in data.trainings if t.mode == "reference" and len(t.losses) > 1), None)
    curves = [("reference", reference.losses)] if reference else []
    curves.append(("loss", largest.losses))
    top = max(max(values) for _, values in curves)
    marks = ticks(0.0, top, 4)
    last = max(len(values) for _, values in curves) - 1
    x_scale, y_scale, bottom = (WIDTH - _LEFT - _RIGHT - 40) / last, 120 / marks[-1], 132
    drawn = []
    for mark in marks:
        y = bottom - mark * y_scale
        drawn += [line(_LEFT, y, WIDTH - _RIGHT, y, "grid"), text(_LEFT - 8, y + 4, significant(mark), anchor="end")]
    for name, values in curves:
        points = " ".join(
            f"{_LEFT + at * x_scale:.1f},{bottom - value * y_scale:.1f}" for at, value in enumerate(values)
        )
        drawn.append(element("polyline", points=points, class_=name))
    end = largest.losses[-1]
    drawn += [
        text(
            _LEFT + (len(largest.losses) - 1) * x_scale + 6,
            bottom - end * y_scale - 6,
            significant(end),
            class_="number",
        ),
        text(_LEFT, bottom + 18, "step 1"),
        text(_LEFT + last * x_scale, bottom + 18, f"step {last + 1}", anchor="end"),
    ]
    return drawing(WIDTH, bottom + 26, "Loss by step", *drawn)
