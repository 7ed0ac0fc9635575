"""SVG elements whose every attribute and text is escaped, so that nothing from a node can become markup."""

from __future__ import annotations

import math

from markupsafe import Markup, escape

from validation.report_words import printable


def element(name: str, *children: Markup | str, **attributes: str | float) -> Markup:
    """One element; `class_` and `stroke_width` become class and stroke-width; numbers get at most two decimals."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value)) for key, value in attributes.items()
    )
    inside = Markup("").join(child if isinstance(child, Markup) else escape(printable(child)) for child in children)
    return Markup("<{name}{written}>{inside}</{name}>").format(name=name, written=written, inside=inside)


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return printable(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")


def drawing(width: float, height: float, label: str, *children: Markup) -> Markup:
    """A figure that scales to its column; `label` says to a screen reader what it shows."""
    return element(
        "svg", *children, viewBox=f"0 0 {width:.0f} {height:.0f}", role="img", aria_label=label, class_="figure",
    )  # fmt: skip


def text(x: float, y: float, content: str, *, anchor: str = "start", class_: str = "label") -> Markup:
    return element("text", content, x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def box(x: float, y: float, width: float, height: float, class_: str, title: str = "") -> Markup:
    inside = [element("title", title)] if title else []
    return element("rect", *inside, x=x, y=y, width=max(width, 0.0), height=height, class_=class_)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round values from at or below `low` to at or above `high`, at most about `most` of them."""
    span = high - low if high > low else abs(high) or 1.0
    rough = span / max(1, most - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [at * step for at in range(first, max(last, first + 1) + 1)]
