"""Silent errors, compute checks and every way of training on real nodes of the lab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.handle import Lab
from tests.simulator.run import run_record
from tests.validation.test_launcher_lab import Trial, left_behind, remotes
from validation.checks.acceptance import run_acceptance, shared_folder
from validation.checks.fingerprint import run_fingerprints
from validation.checks.speed import run_speeds
from validation.model import AcceptanceRecord, FingerprintRecord, Outcome, SpeedRecord
from validation.remote import Remote
from validation.verdict import judge

__all__ = ["remotes"]
pytestmark = pytest.mark.lab
RANKS = ("n1", "n2", "n3")
HOOK = "/usr/lib/python3/dist-packages/klaster_bit_flip.pth"
FLIP = """\
import sys, importlib.abc, importlib.util
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        run = spec.loader.exec_module
        def exec_module(torch):
            run(torch)
            right, calls = torch.matmul, [0]
            def wrong(*given, **named):
                out = right(*given, **named)
                calls[0] += 1
                if calls[0] % EVERY == 0 and out.dtype == torch.float32:
                    out.detach().reshape(-1)[:1].view(torch.int32).bitwise_xor_(1)
                return out
            torch.matmul = wrong
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def flipped(remotes: dict[str, Remote]) -> Iterator[None]:
    """The lowest bit of every 7th product on n3 is wrong, put in from outside of the payloads."""
    code = FLIP.replace("EVERY", "7")
    module = HOOK.replace(".pth", ".py")
    remotes["n3"].run(f"cat > {module} && echo 'import klaster_bit_flip' > {HOOK}", timeout_s=20, stdin=code.encode())
    yield
    remotes["n3"].run(f"rm -f {HOOK} {module}", timeout_s=20)


def named(trial: Trial) -> list[tuple[str | None, str]]:
    judgement = judge([run_record(RANKS, stages=("training",)), *trial.records])
    return [(culprit.node, culprit.cause) for culprit in judgement.culprits]


def test_healthy_nodes_compute_the_same_bits(
    lab: Lab, remotes: dict[str, Remote], tmp_path: Path
) -> None:  # fmt: skip
    """No rank differs, products and sums in memory are right, and nothing is left behind."""
    trial = Trial(lab, remotes, tmp_path, RANKS)
    with trial.fleet as fleet:
        run_fingerprints(fleet, "quick", trial.records.append)
        run_speeds(fleet, "quick", trial.records.append, own_machines=False)
    prints = [one for one in trial.records if isinstance(one, FingerprintRecord)]
    assert len({one.digests for one in prints}) == 1
    assert [one.steps_done for one in prints] == [40] * 3
    assert all(one.verified and not one.error for one in trial.records if isinstance(one, SpeedRecord))
    assert [cause for _, cause in named(trial) if cause == "silent-data-corruption"] == []
    assert [left_behind(remotes[node], trial.run_id) for node in RANKS] == [""] * 3


def test_a_flipped_bit_names_its_node(
    lab: Lab, remotes: dict[str, Remote], tmp_path: Path, flipped: None
) -> None:  # fmt: skip
    """One wrong bit in one product of seven: n3 by the majority, nobody else."""
    trial = Trial(lab, remotes, tmp_path, RANKS)
    with trial.fleet as fleet:
        run_fingerprints(fleet, "quick", trial.records.append)
    assert named(trial) == [("n3", "silent-data-corruption")]


def test_every_way_of_training_gives_the_same_losses(
    lab: Lab, remotes: dict[str, Remote], tmp_path: Path
) -> None:  # fmt: skip
    """FSDP, split models, checkpoints by fewer ranks, a killed rank: the losses of one process, nothing left behind."""
    trial = Trial(lab, remotes, tmp_path, RANKS)
    with trial.fleet as fleet, shared_folder(lab.cluster, remotes, fleet.nodes[0], trial.run_id) as (folder, why):
        run_acceptance(fleet, "standard", trial.records.append, folder, why)
    found = [one for one in trial.records if isinstance(one, AcceptanceRecord)]
    assert [(one.name, one.error, one.skipped) for one in found if one.error or one.skipped] == []
    rows = judge([run_record(RANKS, stages=("training",)), *trial.records]).results
    assert {row.outcome for row in rows if row.check == "acceptance"} == {Outcome.PASS}
    assert not remotes["n1"].run(f"ls -d {folder}", timeout_s=20).ok
