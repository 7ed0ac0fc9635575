"""site.py killed at random moments on bare nodes: run again, it converges each time."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.deploys import deploy, deploy_killed_after
from tests.lab.handle import Lab
from tests.lab.trial import write_trial

KILLS = int(os.environ.get("KLASTER_KILLS", "10"))
SEED = int(os.environ.get("KLASTER_KILL_SEED", str(random.SystemRandom().randrange(10**6))))


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Lab]:
    """Two bare nodes, a head that computes and one more; gone afterwards."""
    lab = write_trial(tmp_path, 2)
    lab.lab("up", lab.inventory, timeout_s=900)
    try:
        yield lab
    finally:
        lab.lab("down")


def _first_deploy_s(lab: Lab) -> float:
    started = time.monotonic()
    deploy(lab)
    return time.monotonic() - started


@pytest.mark.full
def test_ten_kills_converge(bare: Lab) -> None:
    """Killed at a random moment from bare, the next run ends well and the one after it changes nothing."""
    chosen = random.Random(SEED)  # noqa: S311 - moments, not secrets
    length_s = _first_deploy_s(bare)
    told: list[str] = []
    bare_s = length_s
    while len(told) < KILLS:
        bare.lab("down")
        bare.lab("up", bare.inventory, timeout_s=300)
        moment_s = chosen.uniform(0.5, bare_s)
        if not deploy_killed_after(bare, moment_s):  # this one was faster: no kill, and a new bound for the moments
            bare_s = moment_s
            continue
        told.append(f"{moment_s:.1f} s")
        deploy(bare)
        again = deploy(bare)
        assert again.changed == 0, f"seed {SEED}, kills at {told}: the third run changed\n{again.output[-3000:]}"
    print(f"seed {SEED}: bare deploy {length_s:.0f} s; killed at {', '.join(told)}")
