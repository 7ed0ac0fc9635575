"""Fixtures for all tests: the rehearsal lab, for tests marked `lab`."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import hypothesis
import pytest

from lab.holder import CHECKOUT, read_holder
from tests.lab.handle import ROOT, Lab

LAB_INVENTORY = "inventory/lab.py"


def pytest_configure() -> None:
    """Property tests have no deadline an example: on a shared machine it would measure the neighbours.

    A shell starts its background jobs deaf to SIGINT, and so their children: tests of Ctrl-C must hear it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("klaster", deadline=None)
    hypothesis.settings.load_profile("klaster")


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab of inventory/lab.py, up and healed. Taken down at the end, unless it was up before: then it stays."""
    handle = Lab(str(ROOT / LAB_INVENTORY))
    held = read_holder()
    was_ours = held is not None and held.checkout == str(CHECKOUT)
    handle.lab("up", handle.inventory, timeout_s=900)
    handle.lab("heal")
    report = request.config.pluginmanager.get_plugin("terminalreporter")
    if report:
        told = "was up already: tests use it, and it stays up" if was_ours else "is up for the tests"
        report.write_line(f"\nthe lab of {LAB_INVENTORY} {told}")
    try:
        yield handle
    finally:
        handle.lab("heal" if was_ours else "down")
