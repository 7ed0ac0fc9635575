"""A link that went down during the run is found by the kernel's own count."""

from __future__ import annotations

import subprocess

from validation.link_watch import changed, command
from validation.model import Outcome


def test_only_nodes_whose_carrier_changed_are_named() -> None:
    """A count that grew fails the node; equal counts and nodes that no longer answer say nothing."""
    records = changed({"n1": 2, "n2": 2, "n3": 5}, {"n1": 2, "n3": 9})
    assert [(r.node, r.outcome, r.cause) for r in records] == [("n3", Outcome.FAIL, "link-flapping")]
    assert "4 times" in records[0].measured


def test_the_command_finds_the_interface_by_its_address() -> None:
    """Only interfaces with a declared address are counted; the loopback has one here."""
    script = command(["127.0.0.1"])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip().isdigit()
    nobody = subprocess.run(["sh", "-c", command(["203.0.113.9"])], capture_output=True, text=True, check=False)
    assert nobody.stdout == ""
