"""Print what a command has to say; whoever read it may be gone already, and a disk that takes it may be full."""

from __future__ import annotations

import os
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
