"""A run as a whole without any node: what is recorded, judged and told when nothing goes as planned."""

from __future__ import annotations

import dataclasses
import json
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from inventory.hardware import SIMULATED, HardwareLock
from inventory.model import Cluster, Gpu, Link, Network, Node
from tests.roles.sample import found, gpu, lock
from validation import cli, run_stages
from validation.launcher import FleetError
from validation.model import CheckResult, Culprit, Judgement, Outcome, ReachRecord, StageRecord
from validation.progress import Progress
from validation.remote import Remote
from validation.run import patient_signals
from validation.run_folder import RunFolder
from validation.run_options import RunOptions
from validation.run_stages import Run, as_it_computes, unfit_for_world
from validation.run_stages import run_stages as run_all
from validation.worlds import worlds

INVENTORY = """
from inventory.model import Cluster, Network, Node
CLUSTER = Cluster(
    name="dark", substrate="simulation", networks=(Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1),),
    nodes=(Node(name="head", address="10.0.0.2", roles=("controller",)), Node(name="n1", address="10.0.0.3")),
)
globals().update(CLUSTER.groups(__file__))
"""


@pytest.fixture
def dark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An inventory whose nodes can't be reached."""

    def refused(cluster: Cluster, nodes: list[Node], **more: Any) -> tuple[dict[str, Remote], dict[str, str]]:
        return {}, {node.name: f"root@{node.address}: connection refused" for node in nodes}

    monkeypatch.setattr("validation.run.connect_all", refused)
    file = tmp_path / "dark.py"
    file.write_text(INVENTORY, encoding="utf-8")
    return str(file)


def latest(tmp_path: Path) -> Path:
    return (tmp_path / "reports" / "dark" / "latest").resolve()


def stages_of(folder: Path) -> dict[str, tuple[str, str]]:
    records = RunFolder.open(folder).records()
    return {r.stage: (r.status, r.reason) for r in records if isinstance(r, StageRecord)}


def test_a_dark_cluster_fails_and_is_told(dark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With no node reachable the run ends with status 1, says so for every node, and skips what needs nodes."""
    assert cli.main([dark, "--out", str(tmp_path / "reports"), "--json"]) == 1
    captured = capsys.readouterr()
    certificate = json.loads(captured.out)
    assert certificate["verdict"] == "FAIL"
    assert {name: node["verdict"] for name, node in certificate["nodes"].items()} == {"head": "FAIL", "n1": "FAIL"}
    assert "no node was drained or resumed" in captured.err
    assert stages_of(latest(tmp_path)) == {
        "node": ("done", ""),
        **dict.fromkeys(("pairs", "cluster", "training"), ("skipped", "no compute node could be reached")),
    }


def test_judging_again_is_byte_identical(dark: str, tmp_path: Path) -> None:
    """--rejudge writes the same three files and gives the same status."""
    cli.main([dark, "--out", str(tmp_path / "reports")])
    files = [latest(tmp_path) / name for name in ("certificate.json", "report.html", "metrics.prom")]
    before = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    assert cli.main(["--rejudge", str(tmp_path / "reports" / "dark" / "latest")]) == 1
    assert [file.read_bytes() for file in files] == before


def test_an_interrupted_run_keeps_its_verdict(dark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a stage: what was measured is judged, the rest is recorded as interrupted, exit status 130."""

    def interrupt(run: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_stages, "_node_stage", interrupt)
    assert cli.main([dark, "--out", str(tmp_path / "reports")]) == 130
    assert stages_of(latest(tmp_path)) == {
        "node": ("error", "interrupted"),
        **dict.fromkeys(("pairs", "cluster", "training"), ("skipped", "interrupted")),
    }
    assert json.loads((latest(tmp_path) / "certificate.json").read_text("utf-8"))["verdict"] == "INCONCLUSIVE"


def test_a_stage_that_breaks_is_the_validators_fault(
    dark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception of ours becomes a record and exit status 2, with its traceback in the logs."""

    def broken(run: Run) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(run_stages, "_node_stage", broken)
    assert cli.main([dark, "--out", str(tmp_path / "reports"), "--only", "node"]) == 2
    assert stages_of(latest(tmp_path)) == {"node": ("error", "ZeroDivisionError: oops")}
    assert "oops" in (latest(tmp_path) / "logs" / "validator-errors.txt").read_text("utf-8")


def test_a_disk_that_fills_up_is_one_line_and_no_verdict(
    dark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run whose results can't be written ends with status 2, the file and the remedy, and no traceback."""
    create = RunFolder.create

    def full(*where: Any) -> RunFolder:
        folder = create(*where)
        folder.results.unlink()
        folder.results.symlink_to("/dev/full")
        return folder

    monkeypatch.setattr(RunFolder, "create", full)
    assert cli.main([dark, "--out", str(tmp_path / "reports")]) == 2
    said = capsys.readouterr().err
    assert "results.jsonl: No space left on device" in said.splitlines()[-1]
    assert "Traceback" not in said


def cluster(*compute: str) -> Cluster:
    head = Node(name="head", address="10.0.0.250", roles=("controller",))
    nodes = tuple(Node(name=name, address=f"10.0.0.{index}") for index, name in enumerate(compute, 1))
    network = Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1)
    return Cluster(name="c", networks=(network,), nodes=(head, *nodes))


@pytest.fixture
def make_run(tmp_path: Path) -> Any:
    def make(found: Cluster, *reached: str, nodes: tuple[str, ...] = ()) -> Run:
        folder = RunFolder.create(tmp_path, "c", datetime(2026, 1, 1, tzinfo=UTC))
        options = RunOptions(inventory="x", nodes=nodes)
        run = Run(options, found, HardwareLock(), folder, Progress(), "r1")
        run.remotes = {name: Remote(name, "root", None) for name in reached}  # type: ignore[arg-type]
        return run

    return make


def names(nodes: list[Node]) -> list[str]:
    return [node.name for node in nodes]


def test_the_head_is_a_partner_where_nodes_are_few(make_run: Any) -> None:
    """Two or three compute nodes alone can't say who is slow; four can."""
    few, many = cluster("a", "b"), cluster("a", "b", "c", "d")
    run = make_run(few, "head", "a", "b")
    assert (names(run.ranks), names(run.partners)) == (["a", "b"], ["head", "a", "b"])
    assert names(make_run(many, "head", "a", "b", "c", "d").partners) == ["a", "b", "c", "d"]
    assert names(make_run(few, "a", "b").partners) == ["a", "b"]


def test_a_node_alone_has_the_head_as_partner(make_run: Any) -> None:
    """--nodes a measures a with the head, and only a trains."""
    run = make_run(cluster("a", "b"), "head", "a", nodes=("a",))
    assert (names(run.ranks), names(run.partners), names(run.nodes)) == (["a"], ["head", "a"], ["a"])


def reach(src: str, dst: str, ok: bool) -> ReachRecord:
    return ReachRecord(src=src, dst=dst, port=40_000, ok=ok)


def test_a_dead_pair_is_tested_in_two_worlds() -> None:
    """A world is not even begun over a cut link: each end has one without the other; the last attempt counts."""
    records = [reach("a", "b", False), reach("a", "c", True), reach("c", "head", False)]
    assert worlds(records, ["a", "b", "c"]) == ([["a", "c"], ["b", "c"]], "")
    assert worlds(records, ["a", "c"]) == ([["a", "c"]], "")
    assert worlds([*records, reach("a", "b", True)], ["a", "b", "c"]) == ([["a", "b", "c"]], "")
    assert worlds([], []) == ([], "no compute node is left")


def test_nodes_without_a_partner_have_no_world() -> None:
    """Where a node reaches nobody, or too many links are cut, nothing is tried together, and it is said why."""
    groups, why = worlds([reach("a", "b", False)], ["a", "b"])
    assert (groups, why) == ([], "not all nodes reach each other: a → b")
    names = [f"n{number}" for number in range(12)]
    cut = [reach(a, b, False) for a in names[::2] for b in names[::2] if a != b]
    assert "not all nodes" in worlds(cut, names)[1]


def test_only_blamed_nodes_are_left_out_of_the_world() -> None:
    """A slow node trains with nobody; the ends of a slow link still do, and so does a node with a full disk."""

    def result(subject: str, stage: Any) -> CheckResult:
        return CheckResult(subject=subject, stage=stage, check="x", outcome=Outcome.FAIL)

    def culprit(subject: str, node: str | None) -> Culprit:
        return Culprit(kind="node", subject=subject, cause="x", evidence=(), remedy="", node=node)

    judgement = Judgement(
        verdict=Outcome.FAIL,
        results=(result("slow", "pairs"), result("a–b", "pairs"), result("full", "node")),
        culprits=(culprit("slow", "slow"), culprit("a–b", None), culprit("full", "full")),
    )
    assert unfit_for_world(judgement) == {"slow"}


def test_no_compute_node_no_measuring(make_run: Any) -> None:
    """Without a rank the measuring stages are skipped with the reason."""
    run = make_run(cluster("a"), "head")
    run.options = RunOptions(inventory="x", stages=("pairs", "training"))
    run_all(run)
    assert [(r.stage, r.status) for r in run.records] == [("pairs", "skipped"), ("training", "skipped")]


def test_a_second_signal_does_not_break_the_cleaning_up(capsys: pytest.CaptureFixture[str]) -> None:
    """The first signal interrupts, the next are ignored until the run is over; then all is as before."""
    before = signal.getsignal(signal.SIGTERM)
    cleaned = False
    with patient_signals():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGHUP)
            cleaned = True
    assert cleaned
    assert signal.getsignal(signal.SIGTERM) == before
    assert "cleaning up" in capsys.readouterr().err


def test_simulated_cards_get_no_rank_each() -> None:
    """A node with eight recorded cards takes part with one rank, on its processor; real cards keep theirs."""
    node = Node(name="n1", address="10.0.0.2", gpus=(Gpu(model="NVIDIA A10G", count=8),))
    real, recorded = gpu(), gpu().model_copy(update={"uuid": f"{SIMULATED}1"})
    assert as_it_computes(node, lock(n1=found(gpus=(real,)))).gpu_count == 8
    assert as_it_computes(node, lock(n1=found(gpus=(recorded,)))).gpu_count == 0
    assert as_it_computes(node, lock()) is node


def test_a_head_outside_of_the_compute_network_is_no_partner() -> None:
    """With few compute nodes the head is a partner in pairs, if it has an address where they are measured."""
    fast = Network(name="fast", cidr="10.88.0.0/24", speed_gbps=10, purposes=("compute",))
    links = (Link(network="fast", address="10.88.0.2"),)
    head, n1 = (
        Node(name="head", address="10.0.0.1", roles=("controller",)),
        Node(name="n1", address="10.0.0.2", links=links),
    )
    lan = Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1)

    def partners(*networks: Network) -> list[str]:
        cluster = Cluster(name="c", networks=networks, nodes=(head, n1))
        remotes = dict.fromkeys(("head", "n1"), cast(Remote, None))
        run = Run(RunOptions("x"), cluster, lock(), cast(RunFolder, None), cast(Progress, None), "r", remotes=remotes)
        return [node.name for node in run.partners]

    assert partners(lan, fast) == ["n1"]
    assert partners(lan, fast.model_copy(update={"purposes": ()})) == ["head", "n1"]


@pytest.mark.parametrize(("asked", "through"), [("auto", ["slurm", "ssh"]), ("slurm", ["slurm"]), ("ssh", ["ssh"])])
def test_ranks_that_slurm_can_not_start_are_started_over_ssh(
    make_run: Any, monkeypatch: pytest.MonkeyPatch, asked: str, through: list[str]
) -> None:
    """A sick network ends srun without a name: ssh then looks for the reason, unless Slurm was insisted on."""
    tried = []

    def start(*_: Any, launcher: str, **more: Any) -> str:
        tried.append(launcher)
        if launcher == "slurm":
            raise FleetError("the Slurm job ended: CANCELLED")
        return "a fleet"

    monkeypatch.setattr("validation.launcher.start_fleet", start)
    run = make_run(cluster("a", "b"), "a", "b")
    run.options = dataclasses.replace(run.options, launcher=asked)
    run.launcher = "ssh" if asked == "ssh" else "slurm"
    if asked == "slurm":
        with pytest.raises(FleetError):
            run_stages._start_ranks(run, run.ranks, "pairs")
    else:
        assert cast(str, run_stages._start_ranks(run, run.ranks, "pairs")) == "a fleet"
    assert tried == through
