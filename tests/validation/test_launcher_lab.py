"""The launcher, the stages and the torch payloads on real nodes of the lab."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.lab.handle import Lab
from validation import launch_ssh
from validation.checks.cluster import run_cluster
from validation.checks.pairs import run_pairs
from validation.checks.training import run_training
from validation.launcher import Fleet, start_fleet
from validation.model import (
    CellRecord,
    CollectiveRecord,
    FanInRecord,
    Judgement,
    Outcome,
    Record,
    TrainingRecord,
    WantedFanIn,
)
from validation.remote import Remote, RemoteTimeout, connect_all

pytestmark = pytest.mark.lab
NAMES = ("head", "n1", "n2", "n3")


@pytest.fixture(scope="module")
def remotes(lab: Lab) -> Iterator[dict[str, Remote]]:
    found, reasons = connect_all(lab.cluster, lab.cluster.nodes)
    assert reasons == {}
    yield found
    for remote in found.values():
        remote.close()


class Trial:
    """A fleet on the lab's nodes and what it emitted."""

    def __init__(self, lab: Lab, remotes: dict[str, Remote], folder: Path, names: tuple[str, ...] = NAMES) -> None:
        self.run_id = f"test-{uuid.uuid4().hex[:8]}"
        self.records: list[Record] = []
        nodes = [lab.cluster.node(name) for name in names]
        self.fleet: Fleet = start_fleet(
            lab.cluster, remotes, nodes, launcher="ssh", run_id=self.run_id, logs=folder, emit=self.records.append
        )

    def of(self, kind: type) -> list[Record]:
        return [record for record in self.records if isinstance(record, kind)]


def left_behind(remote: Remote, run_id: str) -> str:
    """Processes and files of a run on a node; brackets and quotes keep this command from finding itself."""
    bracketed, quoted = f"[{run_id[0]}]{run_id[1:]}", f'{run_id[0]}""{run_id[1:]}'
    return remote.run(f"pgrep -af '{bracketed}'; ls -d /run/klaster/{quoted} 2>/dev/null; true", timeout_s=10).stdout


def test_stages_certify_healthy_nodes_and_leave_nothing(lab: Lab, remotes: dict[str, Remote], tmp_path: Path) -> None:
    """All three stages on real nodes: data verified, parameters bit-identical, losses as alone, then nothing left."""
    trial = Trial(lab, remotes, tmp_path)
    wishes = [WantedFanIn(target="n3", direction=way, partners=("n1", "n2")) for way in ("in", "out")]
    judgements = [Judgement(verdict=Outcome.INCONCLUSIVE, wanted=tuple(wishes)), Judgement(verdict=Outcome.PASS)]
    with trial.fleet as fleet:
        run_pairs(fleet, "quick", trial.records.append, lambda: judgements.pop(0))
        run_cluster(fleet, "quick", trial.records.append)
        run_training(fleet, "quick", trial.records.append)
    _check_network(trial)
    _check_training(trial)
    assert [left_behind(remote, trial.run_id) for remote in remotes.values()] == [""] * 4


def _check_network(trial: Trial) -> None:
    assert trial.fleet.lost == {}
    cells = [record for record in trial.records if isinstance(record, CellRecord)]
    assert {(cell.src, cell.dst) for cell in cells} == {(a, b) for a in NAMES for b in NAMES if a != b}
    assert all(cell.verified and not cell.error and len(cell.latency_us) == 2 for cell in cells)
    assert all(0.05 < median(cell.repetitions_gbps) < 1.5 for cell in cells), "the lab shapes to 1 Gb/s"
    fans = [record for record in trial.records if isinstance(record, FanInRecord)]
    assert [(fan.direction, fan.error) for fan in fans] == [("in", ""), ("out", "")]
    assert all(0.05 < fan.total_gbps < 1.5 for fan in fans), "one link carries both flows"
    collectives = [record for record in trial.records if isinstance(record, CollectiveRecord)]
    assert len(collectives) == 3
    assert all(set(one.verified.values()) == {True} for one in collectives)


def _check_training(trial: Trial) -> None:
    trainings = [record for record in trial.records if isinstance(record, TrainingRecord)]
    reference = next(one for one in trainings if one.mode == "reference")
    together = next(one for one in trainings if one.mode == "ddp" and len(one.nodes) == 3)
    assert together.losses == pytest.approx(reference.losses, rel=1e-4)
    assert together.losses[-1] < 0.7 * together.losses[0]
    assert len(set(together.parameter_sha256.values())) == 1
    assert all(sum(times) > 0 for times in together.comm_seconds.values())
    solos = [one for one in trainings if one.mode == "solo"]
    # A turn that noise slowed is repeated, so there may be more of them.
    assert [one.nodes for one in solos[:3]] == [("n1",), ("n2",), ("n3",)]
    hashes = {value for one in solos for value in one.parameter_sha256.values()}
    assert len(hashes) == 1, "the same work on the same processor gives the same bits"


def test_corrupted_data_is_noticed(
    lab: Lab, remotes: dict[str, Remote], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte wrong in what n2 sends and adds: its cells and the collective fail to verify, no others."""
    changed = tmp_path / "payloads"
    shutil.copytree(launch_ssh.PAYLOADS, changed)
    _edit(changed / "pair_link.py", r"return pattern\(me, size\)\[(.*)\]", r"return _flip(me, pattern(me, size)[\1])")
    with (changed / "pair_link.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef _flip(me, data):\n    if me.node == 'n2' and 'messages' == me.progress.phase:\n")
        file.write("        data = data.clone()\n        data[-1] ^= 1\n    return data\n")
    _edit(changed / "collective.py", r"data = mine\.clone\(\)", "data = mine.clone(); data[7] += me.node == 'n2'")
    monkeypatch.setattr(launch_ssh, "PAYLOADS", changed)
    trial = Trial(lab, remotes, tmp_path, ("n1", "n2", "n3"))
    with trial.fleet as fleet:
        run_pairs(fleet, "quick", trial.records.append, lambda: Judgement(verdict=Outcome.PASS))
        run_cluster(fleet, "quick", trial.records.append)
    assert trial.fleet.lost == {}
    cells = [record for record in trial.records if isinstance(record, CellRecord)]
    assert {cell.verified for cell in cells if cell.src == "n2"} == {False}
    assert {cell.verified for cell in cells if "n2" not in (cell.src, cell.dst)} == {True}
    collectives = [record for record in trial.records if isinstance(record, CollectiveRecord)]
    assert all(set(one.verified.values()) == {False} for one in collectives), "every rank sees the wrong sum"


def _edit(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"))
    assert count == 1, f"{path.name}: {pattern} is there {count} times"
    path.write_text(text, encoding="utf-8")


def test_a_rank_stays_within_its_memory(lab: Lab, remotes: dict[str, Remote], tmp_path: Path) -> None:
    """A rank that has done pairs and a training never had more than 1 GiB."""
    trial = Trial(lab, remotes, tmp_path, ("n1", "n2"))
    with trial.fleet as fleet:
        run_pairs(fleet, "quick", trial.records.append, lambda: Judgement(verdict=Outcome.PASS))
        lead = fleet.lead("n1")
        command = {"op": "train", "mode": "solo", "title": "t", "seed": 1, "steps": 5, "shards": 1, "members": []}
        answer = fleet.ask("training", {lead.rank: command}, timeout_s=120)[lead.rank]
    assert 50 < answer["peak_mib"] < 1024


def test_training_runs_by_hand_as_its_first_lines_say(remotes: dict[str, Remote]) -> None:
    """`python3 train_ddp.py` works on a node without the launcher."""
    program = (launch_ssh.PAYLOADS / "train_ddp.py").read_bytes()
    done = remotes["n1"].run("OMP_NUM_THREADS=1 python3 - --steps 5", timeout_s=120, stdin=program)
    assert done.ok, done.stderr
    assert '"gradient_bytes"' in done.stdout


# --- remote ------------------------------------------------------------------------------------------------------


def test_commands_return_status_and_output(remotes: dict[str, Remote]) -> None:
    """Output, standard error, input and exit status arrive; large input and output too."""
    done = remotes["n1"].run("cat; echo err >&2; exit 3", timeout_s=20, stdin=b"x" * 300_000)
    assert (done.status, len(done.stdout), done.stderr) == (3, 300_000, "err\n")


def test_command_without_end_times_out(remotes: dict[str, Remote]) -> None:
    """A command that goes on is given up at its deadline, by name, and the connection still works."""
    with pytest.raises(RemoteTimeout, match="n1: no end within 1 s: sleep 30"):
        remotes["n1"].run("sleep 30", timeout_s=1)
    assert remotes["n1"].run("echo still here", timeout_s=20).stdout == "still here\n"


def test_put_writes_whole_files_with_their_mode(remotes: dict[str, Remote]) -> None:
    """A file appears whole, with its mode, and nothing temporary stays beside it."""
    remote, folder = remotes["n2"], f"/tmp/klaster-test-{uuid.uuid4().hex[:8]}"  # noqa: S108
    remote.run(f"mkdir {folder}", timeout_s=10)
    remote.put(b"a\x00b" * 50_000, f"{folder}/it's", mode=0o640)
    shown = remote.run(f"cd {folder}; ls -A; stat -c '%a %s' *; cd /; rm -r {folder}", timeout_s=10).stdout
    assert shown.split("\n")[:2] == ["it's", "640 150000"]


def test_stream_tells_lines_and_the_signal(remotes: dict[str, Remote]) -> None:
    """A long-lived program answers line by line; after SIGKILL its status says so."""
    stream = remotes["n3"].stream("sh -c 'echo $$; read a; echo got $a; kill -KILL $$'; exit $?")
    lines = stream.lines()
    assert next(lines).isdigit()
    stream.write(b"hello\n")
    assert next(lines) == "got hello"
    assert list(lines) == []
    assert stream.status() == 137
    stream.close()


def test_unreachable_node_has_a_reason(lab: Lab) -> None:
    """A node that is not there is a sentence beside its name; the others are connected."""
    nobody = lab.cluster.node("n1").model_copy(update={"name": "ghost", "address": "10.77.0.99"})
    found, reasons = connect_all(lab.cluster, [lab.cluster.node("n2"), nobody], timeout_s=3)
    assert list(found) == ["n2"]
    assert "root@10.77.0.99:22" in reasons["ghost"]
    found["n2"].close()
