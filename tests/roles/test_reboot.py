"""When a node may be rebooted."""

from __future__ import annotations

import pytest

from roles.operations.reboot import Due, obstacle, parse_due


def test_the_state_is_read() -> None:
    """Reason, boot, Slurm's flags and running jobs; what is not there is empty."""
    lines = ["reason=nouveau has the cards", "boot=abc", "slurm=IDLE+DRAIN", "jobs=0"]
    assert parse_due(lines) == Due("nouveau has the cards", "abc", "IDLE+DRAIN", 0)
    assert parse_due(["reason=", "boot=abc", "slurm=", "jobs=0"]) == Due("", "abc", "", 0)


@pytest.mark.parametrize(
    ("due", "words"),
    [
        (Due("x", "b", "IDLE+DRAIN", 0), ""),
        (Due("x", "b", "", 0), ""),
        (Due("x", "b", "IDLE", 0), "in service"),
        (Due("x", "b", "MIXED", 2), "2 jobs"),
        (Due("x", "b", "MIXED+DRAIN", 1), "1 jobs"),
    ],
)
def test_only_a_drained_idle_node_is_rebooted(due: Due, words: str) -> None:
    """A job or a node in service defers the reboot with the reason; without Slurm there is nobody to disturb."""
    assert words in obstacle(due)
    assert bool(obstacle(due)) is bool(words)
