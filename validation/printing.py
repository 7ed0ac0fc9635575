"""Print what a command has to say; whoever read it may be gone already, and a disk that takes it may be full."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from validation.run_options import UsageError


def tell(text: str, stream: TextIO) -> None:
    """Print and flush. A reader that has seen enough (`| head`) changes no exit status; UsageError for a full disk."""
    try:
        print(text, end="", file=stream, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python flushes once more at its end
        if not isinstance(error, BrokenPipeError):
            raise UsageError(f"what was to be printed could not be written: {error.strerror}") from None


def take_any_encoding() -> None:
    """A terminal that knows no "…" or "→" gets a question mark: no reason to break off after a run was measured."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def wants_color(stream: TextIO) -> bool:
    """A terminal that can, and nobody who asked for none (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
