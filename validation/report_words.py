"""How a run's findings are said in plain words, the same in certificate, report and console."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from validation.model import Outcome, Substrate

LINK_SEPARATOR = "–"
"""Joins the two ends of a link in a subject: n1–n2. No host name may hold it."""

VERDICT_WORDS = {
    Outcome.PASS: "Certified",
    Outcome.FAIL: "Not certified: something failed",
    Outcome.ERROR: "Not certified: the validator could not do its work",
    Outcome.INCONCLUSIVE: "Not certified: it could not be decided",
}

OUTCOME_WORDS = {
    Outcome.PASS: "passed",
    Outcome.FAIL: "failed",
    Outcome.ERROR: "broke",
    Outcome.INCONCLUSIVE: "undecided",
    Outcome.SKIPPED: "skipped",
    Outcome.NOT_APPLICABLE: "not applicable",
}

SUBSTRATE_WORDS: dict[Substrate, str] = {
    "hardware": "",
    "rehearsal": (
        "REHEARSAL on throwaway nodes of one machine: it proves the software's way, "
        "says nothing about any hardware and certifies no real machine."
    ),
    "simulation": "SIMULATION: no machine was measured, and no machine is certified by it.",
}


def printable(text: str) -> str:
    """Text from a node made safe to show: no escape sequence, no invisible or direction-changing character."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf", "Co", "Cs"}
        else "\ufffd"
        for character in text
    )


def headline(verdict: Outcome, certified: bool, substrate: Substrate) -> str:
    """The verdict in a few words; a rehearsal or a simulation never reads "certified"."""
    if verdict is Outcome.PASS and not certified:
        return "Not certified: the run was not complete"
    if certified and substrate != "hardware":
        return f"{substrate.capitalize()} passed"
    return VERDICT_WORDS[verdict]


def listed(items: Sequence[str], most: int = 6) -> str:
    """Names as a person lists them: n1, n2 and n3; long lists end in a count."""
    if len(items) > most:
        return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def counted(count: int, noun: str) -> str:
    """1 link, 2 links, 3 switches."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{count:,} {noun}{ending}"


def significant(value: float, digits: int = 3) -> str:
    """A number with three significant digits and no exponent: 0.0483, 1.23, 948."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10 ** (digits - 1):
        return f"{rounded:.0f}"
    return f"{rounded:.12f}".rstrip("0").rstrip(".")


def seconds(value: float) -> str:
    """A time span in the unit that reads best."""
    if value == 0:
        return "0 s"
    if value < 0.001:
        return f"{significant(value * 1e6)} µs"
    if value < 1:
        return f"{significant(value * 1e3)} ms"
    if value < 120:
        return f"{significant(value)} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def gbps(value: float) -> str:
    return f"{significant(value)} Gb/s"


def percent(share: float) -> str:
    """A share for people; below one per cent it must not read as nothing."""
    return f"{share * 100:.0f} %" if share >= 0.01 or share == 0 else "< 1 %"


def byte_size(value: int) -> str:
    """Bytes in decimal units, as network sizes are given."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if value >= factor:
            return f"{significant(value / factor)} {unit}"
    return f"{value} B"
