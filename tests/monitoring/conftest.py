"""One watched lab for all long tests of monitoring: its deploy takes minutes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.handle import Lab
from tests.monitoring.live import watched_lab


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three nodes with a directory, a registry and simulated cards, deployed, certified once by the nightly program."""
    with watched_lab(tmp_path_factory.mktemp("watched")) as lab:
        yield lab
