"""The four stages in their order: what each needs of the one before, and what is recorded when it can't be run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal

from inventory.hardware import HardwareLock
from inventory.model import Cluster, Node
from inventory.networks import has_link
from validation.golden import load_golden
from validation.model import CellRecord, Judgement, Outcome, Record, RunRecord, Stage, StageRecord
from validation.progress import Progress
from validation.remote import Remote
from validation.run_folder import RunFolder
from validation.run_options import RunOptions
from validation.slurm_state import SlurmNode
from validation.worlds import worlds

if TYPE_CHECKING:
    from validation.launcher import Fleet

HEAD_AS_PARTNER_BELOW = 4
"""With fewer compute nodes the head is a partner in stage pairs: two nodes alone decide nothing (rule 10)."""

UNFIT_BY = ("pairs", "training")


@dataclass
class Run:
    """What is known while a run goes on."""

    options: RunOptions
    cluster: Cluster
    lock: HardwareLock
    folder: RunFolder
    progress: Progress
    run_id: str
    launcher: Literal["ssh", "slurm"] = "ssh"
    remotes: dict[str, Remote] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)
    states: dict[str, SlurmNode] | None = None
    records: list[Record] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    stage: Stage | None = None
    interrupted: bool = False

    def emit(self, record: Record) -> None:
        """Keep a record, on disk first: what was measured survives whatever comes next."""
        self.folder.append(record)
        self.records.append(record)
        self.progress.note(record)

    def judge_now(self) -> Judgement:
        from validation.verdict import judge

        return judge(self.records)

    @property
    def nodes(self) -> list[Node]:
        """The nodes to be certified, in the inventory's order."""
        return [node for node in self.cluster.nodes if not self.options.nodes or node.name in self.options.nodes]

    @property
    def ranks(self) -> list[Node]:
        """Reached compute nodes of the run."""
        return [node for node in self.nodes if "compute" in node.roles and node.name in self.remotes]

    @property
    def partners(self) -> list[Node]:
        """Nodes of stage pairs: the ranks, and the head where they are few."""
        head = self.cluster.controller
        extra = len(self.ranks) < HEAD_AS_PARTNER_BELOW and head not in self.ranks and head.name in self.remotes
        extra = extra and has_link(self.cluster, head, "compute")
        return [node for node in self.cluster.nodes if node in self.ranks or (extra and node is head)]


def run_stages(run: Run) -> None:
    """All stages that were asked for; an exception in one is recorded and ends the run's measuring, not its verdict."""
    if "node" in run.options.stages:
        with recorded(run, "node"):
            _node_stage(run)
    wanted = [stage for stage in run.options.stages if stage != "node"]
    if not wanted:
        return
    if not run.ranks:
        for stage in wanted:
            skip(run, stage, "no compute node could be reached")
        return
    _measured_stages(run, wanted)


@contextmanager
def recorded(run: Run, stage: Stage) -> Iterator[None]:
    """Record a stage's end: done, or the error in it. An interruption is recorded too and goes on."""
    run.stage, began = stage, time.monotonic()
    try:
        yield
    except KeyboardInterrupt:
        run.emit(StageRecord(stage=stage, status="error", reason="interrupted", seconds=_since(began)))
        raise
    except Exception as error:  # whatever breaks in a stage is the validator's fault, told as such
        with (run.folder.logs / "validator-errors.txt").open("a", encoding="utf-8") as file:
            traceback.print_exc(file=file)
        reason = f"{type(error).__name__}: {error}"
        run.progress.step(stage, f"broke: {reason}")
        run.emit(StageRecord(stage=stage, status="error", reason=reason, seconds=_since(began)))
    else:
        run.emit(StageRecord(stage=stage, status="done", seconds=_since(began)))
    run.stage = None


def skip(run: Run, stage: Stage, reason: str) -> None:
    run.progress.step(stage, f"skipped: {reason}")
    run.emit(StageRecord(stage=stage, status="skipped", reason=reason, seconds=0))


def skip_the_rest(run: Run, reason: str) -> None:
    """Record every stage that was asked for and not begun."""
    begun = {record.stage for record in run.records if isinstance(record, StageRecord)}
    for stage in run.options.stages:
        if stage not in begun:
            skip(run, stage, reason)


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


def _node_stage(run: Run) -> None:
    from validation.node_gather import gather
    from validation.node_stage import judge_nodes

    names = [node.name for node in run.nodes]
    run.progress.step("node", f"asking {len(run.remotes)} nodes")
    gathered = gather(run.cluster, run.lock, run.remotes, run.unreachable, run.states)
    run.progress.step("node", f"testing {len(names)} nodes")
    judge_nodes(gathered, names, run.folder.logs, run.emit)


def as_it_computes(node: Node, lock: HardwareLock) -> Node:
    """A node whose cards are recordings has one rank, on its processor, and not one a card."""
    found = lock.nodes.get(node.name)
    return node.model_copy(update={"gpus": ()}) if found and found.simulated else node


def _measured_stages(run: Run, wanted: Sequence[Stage]) -> None:
    from validation.launcher import FleetError

    try:
        fleet = _start_ranks(run, run.partners if "pairs" in wanted else run.ranks, wanted[0])
    except FleetError as error:
        for stage in wanted:
            run.emit(StageRecord(stage=stage, status="error", reason=str(error), seconds=0))
        return
    with fleet:
        for stage in wanted:
            if stage != "pairs":
                leave_out(run, fleet)
                groups, reason = worlds(run.records, [node.name for node in fleet.compute_nodes])
                if reason:
                    skip(run, stage, reason)
                    continue
            with recorded(run, stage):
                if stage == "pairs" or len(groups) == 1:
                    _stage(run, stage, fleet)
                else:
                    _stage_by_groups(run, stage, fleet, groups)


def _start_ranks(run: Run, nodes: Sequence[Node], stage: Stage) -> Fleet:
    """A rank on each node, through Slurm where that was chosen; over ssh if Slurm can't, unless it was insisted on.

    A sick network or service takes srun down without a name; the nodes are idle, so ssh may look for the reason.
    """
    from validation.launcher import FleetError, start_fleet

    while True:
        run.progress.step(stage, f"starting {len(nodes)} workers through {run.launcher}")
        try:
            return start_fleet(
                run.cluster, run.remotes, [as_it_computes(node, run.lock) for node in nodes], launcher=run.launcher,
                run_id=run.run_id, logs=run.folder.logs, emit=run.emit, run_started=run.began,
            )  # fmt: skip
        except FleetError as error:
            if run.launcher == "ssh" or run.options.launcher == "slurm":
                raise
            run.progress.step(stage, f"Slurm could not start them ({error}): over ssh, then")
            run.launcher = "ssh"


def _stage(run: Run, stage: Stage, fleet: Fleet) -> None:
    from validation.checks.cluster import run_cluster
    from validation.checks.fingerprint import run_fingerprints
    from validation.checks.pairs import run_pairs
    from validation.checks.speed import run_speeds
    from validation.checks.training import run_training
    from validation.schedule import leaves_of, plan_rounds

    level = run.options.level
    if stage == "pairs":
        run.progress.step(stage, f"reaching {len(fleet.nodes)} nodes from each other")
        planned = plan_rounds([node.name for node in fleet.nodes], level, leaves_of(fleet.nodes))
        run.progress.expect_rounds(len(planned))
        run_pairs(fleet, level, run.emit, run.judge_now)
    elif stage == "cluster":
        run.progress.step(stage, f"all-reduce on {len(fleet.compute_nodes)} nodes")
        run_cluster(fleet, level, run.emit)
    else:
        run.progress.step(stage, "the same work on every node, compared bit by bit")
        run_fingerprints(fleet, level, run.emit)
        run_speeds(fleet, level, run.emit, own_machines=run.cluster.substrate == "hardware")
        leave_out(run, fleet)
        run.progress.step(stage, "training on 1 … all nodes")
        run_training(fleet, level, run.emit)
        _acceptance(run, fleet)


def _acceptance(run: Run, fleet: Fleet) -> None:
    from validation.checks.acceptance import run_acceptance, shared_folder

    if run.options.level == "quick" or not fleet.compute_nodes:
        return
    run.progress.step("training", "every way of training against one process")
    with shared_folder(run.cluster, run.remotes, fleet.compute_nodes[0], run.run_id) as (folder, why_not):
        run_acceptance(fleet, run.options.level, run.emit, folder, why_not)


def leave_out(run: Run, fleet: Fleet) -> None:
    """Take ranks that were found at fault by name out of the world: the others are certified without them."""
    unfit = unfit_for_world(run.judge_now())
    if unfit & {node.name for node in fleet.nodes}:
        run.progress.step("run", f"going on without {', '.join(sorted(unfit))}")
        fleet.nodes = tuple(node for node in fleet.nodes if node.name not in unfit)
        fleet.slowest_gbps = slowest_gbps(run.records, {node.name for node in fleet.nodes})


def slowest_gbps(records: Sequence[Record], names: set[str]) -> float | None:
    """The slowest measured direction among these nodes, by which large collectives are sized, Gb/s."""
    cells = (record for record in records if isinstance(record, CellRecord) and {record.src, record.dst} <= names)
    return min((median(cell.repetitions_gbps) for cell in cells if cell.repetitions_gbps), default=None)


def unfit_for_world(judgement: Judgement) -> set[str]:
    """Nodes blamed by name that failed in stage pairs, or that compute wrong results."""
    failed = {r.subject for r in judgement.results if r.stage in UNFIT_BY and r.outcome is Outcome.FAIL}
    return failed & {culprit.node for culprit in judgement.culprits if culprit.node}


def _stage_by_groups(run: Run, stage: Stage, fleet: Fleet, groups: Sequence[Sequence[str]]) -> None:
    """The stage once a group; a node that was lost in one is left out of the next."""
    every = fleet.nodes
    for group in groups:
        lost = set(fleet.lost)
        fleet.nodes = tuple(node for node in every if node.name in group and node.name not in lost)
        if len(fleet.ranks_of(fleet.nodes)) < len(fleet.nodes):
            fleet.stop()  # after a loss only the group before was started anew
        run.progress.step(stage, f"apart, since a link is cut: {', '.join(node.name for node in fleet.nodes)}")
        _stage(run, stage, fleet)
    fleet.nodes = tuple(node for node in every if node.name not in fleet.lost)
    fleet.stop()


def run_record(run: Run, started_at: str, version: str) -> RunRecord:
    return RunRecord(
        run_id=run.run_id,
        version=version,
        level=run.options.level,
        stages=run.options.stages,
        nodes=tuple(node.name for node in run.nodes),
        partial=run.options.partial,
        launcher=run.launcher,
        started_at=started_at,
        inventory=run.cluster.model_dump(mode="json"),
        lock=run.lock.model_dump(mode="json") if run.lock.nodes else None,
        substrate="simulation" if run.lock.simulated else run.cluster.substrate,
        baselines={"golden": load_golden(run.folder.golden)},
    )


def states_of(states: Mapping[str, SlurmNode] | None, nodes: Sequence[Node]) -> str:
    """Slurm's view in a few words, for the progress line."""
    if states is None:
        return "Slurm does not answer"
    drained = [node.name for node in nodes if node.name in states and states[node.name].drained]
    return f"drained in Slurm: {', '.join(drained)}" if drained else "all in service"
