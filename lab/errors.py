"""What can go wrong with the lab, each told in one line."""

from __future__ import annotations


class LabError(Exception):
    """The lab can't do what was asked; the text says what, the value found and the remedy, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class CommandFailed(LabError):
    """A program that the lab runs ended with another status than 0."""
