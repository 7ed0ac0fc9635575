"""How a wrong inventory speaks: one line with the place, the value, what is allowed and the nearest right name."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pydantic

_PACKAGE = Path(__file__).parent
_OWN_CODE = frozenset(
    str(_PACKAGE / f"{name}.py")
    for name in (
        *("model", "spec", "errors", "complaints", "crosschecks", "words", "people", "gpu_stack", "containers"),
        "topology",
        "storage",
    )
)
_PYDANTIC = str(Path(pydantic.__file__).parent)


class InventoryError(SystemExit):
    """The inventory is wrong; uncaught it prints its one line on stderr and ends the program with status 1.

    It is a SystemExit so that every program that loads an inventory, pyinfra included, ends with that one line
    and without a traceback, before it contacts a host.
    """

    def __init__(self, message: str) -> None:
        super().__init__(f"inventory error: {' '.join(message.split())}")
        self.message = str(self.code)


@dataclass(frozen=True)
class Place:
    """Where in the user's inventory a part was written; two equal parts are equal wherever they stand."""

    file: str = field(compare=False)
    line: int = field(compare=False)

    def __str__(self) -> str:
        return f"{shown_path(self.file)}:{self.line}: " if self.file else ""


class Mismatch(ValueError):
    """Parts that do not fit together, and the place of the one to change."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.place = place


def shown_path(file: str) -> str:
    """The path as a person would type it: below the current folder without that folder."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def nearest(word: str, valid: Iterable[str]) -> str:
    """Say the valid names and the one most like `word`: `(did you mean "x"? valid: x, y)`."""
    names = sorted(valid)
    by_lower_case = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.6)
    hint = f'did you mean "{by_lower_case[close[0]]}"? ' if close else ""
    return f"({hint}valid: {', '.join(names) or 'none'})"


def place_in_inventory() -> Place:
    """The file and line that are being executed outside of this package's own code."""
    for frame in _frames():
        file = frame.f_code.co_filename
        if file not in _OWN_CODE and not file.startswith(_PYDANTIC):
            return Place(file, frame.f_lineno)
    return Place("", 0)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
