"""How a wrong inventory speaks: one line with the place, the value, what is allowed and the nearest right name."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol


class InventoryError(SystemExit):
    """The inventory is wrong; uncaught it prints its one line on stderr and ends the program with status 1.

    It is a SystemExit so that every program that loads an inventory, pyinfra included, ends with that one line
    and without a traceback, before it contacts a host.
    """

    def __init__(self, message: str) -> None:
        super().__init__(f"inventory error: {' '.join(message.split())}")
        self.message = str(self.code)


class _HasErrors(Protocol):
    def errors(self, *, include_url: bool = ...) -> list[Any]: ...


def nearest(word: str, valid: Iterable[str]) -> str:
    """Say the valid names and the one most like `word`: `(did you mean "x"? valid: x, y)`."""
    names = sorted(valid)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    return f"({hint}valid: {', '.join(names) or 'none'})"


def place_in_inventory() -> str:
    """The file and line of the user's inventory that is being executed, as `home.py:12: `, or an empty text."""
    ours = Path(__file__).parent
    frame = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file not in (ours / "model.py", ours / "errors.py") and "pydantic" not in file.parts:
            return f"{file.name}:{frame.f_lineno}: "
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""


def one_line(kind: str, values: Mapping[str, Any], fields: Iterable[str], error: _HasErrors) -> str:
    """Render pydantic's first complaint about a `kind` as one sentence in the words of the inventory."""
    first = error.errors(include_url=False)[0]
    more = len(error.errors(include_url=False)) - 1
    where = ".".join(str(part) for part in first["loc"])
    subject = kind if "name" not in values else f'{kind} "{values["name"]}"'
    if first["type"] == "extra_forbidden":
        text = f'{subject}: unknown field "{where}" {nearest(str(first["loc"][-1]), fields)}'
    elif first["type"] == "missing":
        text = f'{subject}: the field "{where}" is missing'
    elif first["type"] == "literal_error":
        valid = [part.strip(" '") for part in str(first["ctx"]["expected"]).replace(" or ", ", ").split(", ")]
        text = f'{subject}: {where} = {first["input"]!r} is not known {nearest(str(first["input"]), valid)}'
    elif first["type"] == "value_error":
        text = f"{subject}: {where + ': ' if where else ''}{first['ctx']['error']}"
    else:
        text = f"{subject}: {where} = {first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return text + (f" (and {more} more)" if more else "")
