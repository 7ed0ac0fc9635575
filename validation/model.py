"""The vocabulary of validation: raw records that a run writes, and the judgement that is a pure function of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Stage = Literal["node", "pairs", "cluster", "training"]
STAGES: tuple[Stage, ...] = ("node", "pairs", "cluster", "training")
Level = Literal["quick", "standard", "burn-in"]
Substrate = Literal["hardware", "rehearsal", "simulation"]


class Outcome(StrEnum):
    """What became of a check; only PASS certifies, and not run is never a pass."""

    PASS = "PASS"  # noqa: S105 - an outcome, not a password
    FAIL = "FAIL"
    ERROR = "ERROR"
    """The check itself broke: the validator's fault or a missing tool, never the node's."""
    INCONCLUSIVE = "INCONCLUSIVE"
    SKIPPED = "SKIPPED"
    NOT_APPLICABLE = "NOT_APPLICABLE"


SEVERITY: tuple[Outcome, ...] = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)
"""Worst first: FAIL over ERROR over INCONCLUSIVE decides the exit status."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")
    """A flipped bit can make a loss infinite; JSON's null in its place could not be read back."""


# --- raw records: one JSON line each in results.jsonl ------------------------------------------------------------


class RunRecord(Frozen):
    """The first record: all that a later judgement needs to know besides the measurements."""

    kind: Literal["run"] = "run"
    run_id: str
    version: str
    level: Level
    stages: tuple[Stage, ...]
    nodes: tuple[str, ...] = Field(description="Nodes this run was asked to certify.")
    partial: bool = Field(description="True with --only or --nodes: the cluster is then never certified.")
    launcher: Literal["ssh", "slurm"]
    started_at: str = Field(description="UTC, ISO 8601.")
    inventory: dict[str, Any] = Field(description="Cluster.model_dump(mode='json').")
    lock: dict[str, Any] | None = Field(description="The hardware lock; None if there is none.")
    substrate: Substrate
    baselines: dict[str, Any] = {}


class StageRecord(Frozen):
    """A stage was run to its end, or why it was not."""

    kind: Literal["stage"] = "stage"
    stage: Stage
    status: Literal["done", "skipped", "error"]
    reason: str = ""
    seconds: float = Field(ge=0, description="Wall time.")


class NodeCheckRecord(Frozen):
    """One check of one node by the node stage; its own pure verdict is part of the record."""

    kind: Literal["node_check"] = "node_check"
    node: str
    check: str = Field(description="Registry name, e.g. clock-offset.")
    outcome: Outcome
    measured: str = ""
    required: str = ""
    origin: str = Field(default="", description="Where the requirement came from.")
    cause: str = Field(default="", description="One word or two with hyphens, e.g. clock, disk-full, name-resolution.")
    culprit_kind: str = Field(default="node", description="node, gpu, service, configuration, validator.")
    culprit: str = Field(default="", description="Subject, if not the node itself (a service on the head, say).")
    evidence: str = ""
    remedy: str = ""
    advice: str = ""
    facts: dict[str, str] = Field(default={}, description="What else is kept for the certificate, e.g. versions.")


class ReachRecord(Frozen):
    """One TCP connection attempt src → dst to a free high port that the destination listens on for it."""

    kind: Literal["reach"] = "reach"
    src: str
    dst: str
    port: int
    ok: bool
    connect_ms: float | None = None
    error: str = Field(default="", description="refused, timeout, no-route, no-listener (dst could not listen), …")
    round: int = 0


class CellRecord(Frozen):
    """One pair, one direction, in one round: src sends, dst receives and verifies every byte."""

    kind: Literal["cell"] = "cell"
    round: int = Field(description="Rounds count up through the whole run; pairs of one round run at the same time.")
    purpose: Literal["plan", "retest", "control", "fleet", "leaf"]
    src: str
    dst: str
    message_bytes: int = 0
    repetitions_gbps: tuple[float, ...] = Field(default=(), description="Payload bits ÷ time, Gb/s, each repetition.")
    latency_us: tuple[float, ...] = Field(default=(), description="Half round trips of small messages: p50, p99.")
    verified: bool | None = Field(default=None, description="Data arrived as sent; None if nothing arrived.")
    error: str = ""
    at_s: float = Field(description="Start, seconds since the run started.")
    idle_share: float | None = Field(default=None, description="Idle processor share of the two nodes, the lower.")


class FanInRecord(Frozen):
    """Two partners send to (or receive from) one node at the same time, beside one flow alone just before."""

    kind: Literal["fan_in"] = "fan_in"
    round: int
    target: str
    direction: Literal["in", "out"] = Field(description="in: the partners send to the target.")
    partners: tuple[str, str]
    single_gbps: float
    total_gbps: float
    error: str = ""
    at_s: float


class CollectiveRecord(Frozen):
    """One collective at one size over all ranks."""

    kind: Literal["collective"] = "collective"
    op: Literal["all_reduce"]
    nodes: tuple[str, ...]
    bytes: int
    seconds: tuple[float, ...] = Field(description="Each repetition, the slowest rank.")
    busbw_gbps: float = Field(description="Median: bytes·8/s × 2(n−1)/n, as nccl-tests defines it, Gb/s.")
    verified: dict[str, bool] = Field(description="Node → every element held the expected sum.")
    idle_share: float | None = None
    part_of: tuple[str, ...] = Field(default=(), description="The nodes of the slow collective that it takes apart.")


class TransportRecord(Frozen):
    """An all-gather over all ranks: data is carried, nothing is computed, and every part is known to its receivers."""

    kind: Literal["transport"] = "transport"
    nodes: tuple[str, ...]
    bytes: int = Field(description="Of each rank's part.")
    wrong: dict[str, tuple[str, ...]] = Field(description="Receiving node → nodes whose part did not arrive as sent.")


class TrainingRecord(Frozen):
    """One training run on some of the nodes; `world_size` 1 runs are the reference and the solo turns."""

    kind: Literal["training"] = "training"
    mode: Literal["reference", "ddp", "solo", "strong"] = Field(
        description="reference: one process, the same global batch as the largest DDP. solo: one node at a time. "
        "strong: as ddp, but the global batch is the same whatever the number of nodes."
    )
    nodes: tuple[str, ...]
    seed: int
    global_batch: int
    steps: int
    warmup_steps: int = Field(description="First steps left out of the times.")
    losses: tuple[float, ...] = Field(description="Mean over the global batch before each step's update.")
    step_seconds: dict[str, tuple[float, ...]] = Field(description="Node → each timed step.")
    compute_seconds: dict[str, tuple[float, ...]] = Field(default={}, description="Node → forward+backward+update.")
    comm_seconds: dict[str, tuple[float, ...]] = Field(default={}, description="Node → waiting in the collective.")
    data_seconds: dict[str, tuple[float, ...]] = Field(default={}, description="Node → waiting for the batch.")
    parameter_sha256: dict[str, str] = Field(description="Node → hash of all parameters after the last step.")
    gradient_bytes: int = Field(description="Bytes that one step all-reduces.")
    cpu_share: dict[str, float] = Field(default={}, description="Node → the rank's processor time ÷ wall time.")
    idle_share: float | None = Field(default=None, description="Idle processor share of the host(s), the lowest.")


class FingerprintRecord(Frozen):
    """What one rank computed by itself, bit by bit: the same work on every rank, before any reduction."""

    kind: Literal["fingerprint"] = "fingerprint"
    node: str
    rank: int
    local_rank: int
    device: str = Field(default="", description="The GPU's name; empty: the processor, whose model the lock knows.")
    seed: int
    steps: int = Field(description="Training steps an episode.")
    kinds: tuple[str, ...] = Field(description="What the parts of a digest are about, in the order of the work.")
    settings: tuple[str, ...] = Field(description="What made it deterministic.")
    software: dict[str, str] = Field(description="What besides the processor decides the bits.")
    digests: tuple[tuple[str, ...], ...] = Field(description="Episode → each of its passes; parts joined by dots.")
    error: str = Field(default="", description="Why the rank has no digests.")

    @property
    def steps_done(self) -> int:
        return self.steps * sum(len(passes) for passes in self.digests)


class SpeedRecord(Frozen):
    """One kind of work, alone on one node (or sustained on all at once): how fast, how evenly, and whether right."""

    kind: Literal["speed"] = "speed"
    what: str = Field(description="product-fp32, product-bf16, …; copy, triad.")
    node: str
    rank: int
    device: str = ""
    sustained: bool = Field(default=False, description="All nodes at once and for long: heat and power.")
    work: float = Field(description="Of one repetition: floating-point operations, or bytes read and written.")
    seconds: tuple[float, ...] = Field(default=(), description="Each repetition.")
    verified: bool = Field(default=True, description="The result is right, and every repetition gave the same bits.")
    cpu_share: float | None = Field(default=None, description="Processor time ÷ wall time ÷ threads.")
    idle_share: float | None = None
    error: str = Field(default="", description="Why there is no result.")


class AcceptanceRecord(Frozen):
    """One way to train (sharded, split, resumed, …) beside the plain training whose losses it must reproduce."""

    kind: Literal["acceptance"] = "acceptance"
    name: str = Field(description="fsdp, tensor-parallel, pipeline, checkpoint-resume, restart, …")
    nodes: tuple[str, ...]
    losses: tuple[float, ...]
    reference: tuple[float, ...] = Field(description="Of one process with the same seed and global batch.")
    tolerance: float = Field(description="Largest relative difference that is due to rounding.")
    seconds: float
    detail: str = ""
    error: str = Field(default="", description="Why it could not be done; then the losses are empty.")
    skipped: str = Field(default="", description="Why it can't be asked here.")


class FailureRecord(Frozen):
    """A rank that did not finish: it hung, died, or could not be started. Ranks that only waited have none.

    A "slurm-step" did not start through Slurm; the node was then tested over ssh.
    """

    kind: Literal["failure"] = "failure"
    stage: Stage
    node: str
    rank: int
    what: Literal["hang", "signal", "exit", "exception", "unreachable", "no-start", "slurm-step"]
    detail: str = Field(description="E.g. SIGKILL; exit status 1; the exception's last line.")
    step: str = Field(default="", description='Where it was, e.g. "ddp on 4 nodes, step 50, phase forward".')
    silent_s: float | None = Field(default=None, description="Seconds since its last heartbeat.")
    process_state: str = Field(default="", description="As the node says: T (stopped), D, R, S, gone.")
    waiting: tuple[str, ...] = Field(default=(), description="Nodes that waited for it and are not to blame.")
    memory_kill: bool = Field(default=False, description="The kernel's out-of-memory killer ended it.")
    log: str = Field(default="", description="Path below the run folder.")
    last_lines: tuple[str, ...] = ()


class JournalRecord(Frozen):
    """What the kernel and Slurm's daemons of a node that failed said during the run; shown beside the failure."""

    kind: Literal["journal"] = "journal"
    node: str
    lines: tuple[str, ...] = Field(description="The last ones, oldest first; or why the node could not be asked.")


Record = Annotated[
    RunRecord
    | StageRecord
    | NodeCheckRecord
    | ReachRecord
    | CellRecord
    | FanInRecord
    | CollectiveRecord
    | TransportRecord
    | TrainingRecord
    | FingerprintRecord
    | SpeedRecord
    | AcceptanceRecord
    | FailureRecord
    | JournalRecord,
    Field(discriminator="kind"),
]
RECORD: TypeAdapter[Record] = TypeAdapter(Record)


# --- the judgement -----------------------------------------------------------------------------------------------


class CheckResult(Frozen):
    """One judged check of one subject, ready to be shown."""

    subject: str = Field(description="Node name, link `a–b`, or the cluster's name.")
    stage: Stage
    check: str
    outcome: Outcome
    measured: str = ""
    required: str = ""
    origin: str = ""
    evidence: str = ""
    remedy: str = ""
    advice: str = ""


class Culprit(Frozen):
    """The part to blame: one root cause, with its symptoms as evidence."""

    kind: Literal["gpu", "node", "link", "switch", "service", "configuration", "cluster", "validator", "software"]
    subject: str = Field(description="n3; n1–n2; NFS on head; …")
    cause: str = Field(description="network, network-egress, network-ingress, unreachable, compute, hang, clock, …")
    evidence: tuple[str, ...]
    remedy: str
    node: str | None = Field(default=None, description="The node that is drained for it; None: nobody is.")


class WantedRound(Frozen):
    """Disjoint pairs to be measured at the same time, both directions; the first of each sends first."""

    want: Literal["round"] = "round"
    purpose: Literal["retest", "control", "fleet", "leaf"]
    pairs: tuple[tuple[str, str], ...]
    controls: tuple[tuple[str, str], ...] = Field(default=(), description="Those of `pairs` recorded as control.")
    spacing_s: float = Field(default=0.0, description="Least pause since the last round, so as to leave an episode.")


class WantedFanIn(Frozen):
    want: Literal["fan_in"] = "fan_in"
    target: str
    direction: Literal["in", "out"]
    partners: tuple[str, str]


class Judgement(Frozen):
    """What the records say. `wanted` is not empty while a suspicion can still be decided by measuring."""

    verdict: Outcome
    culprits: tuple[Culprit, ...] = ()
    results: tuple[CheckResult, ...] = ()
    nodes: dict[str, Outcome] = Field(default={}, description="Node → its own verdict: decides drain and resume.")
    wanted: tuple[WantedRound | WantedFanIn, ...] = ()
    undecided: tuple[str, ...] = Field(default=(), description="What could not be decided and the test that would.")


def worst(outcomes: list[Outcome]) -> Outcome:
    """The outcome of a whole: the severest; PASS only if at least one passed and nothing else but not-applicable."""
    for severe in SEVERITY:
        if severe in outcomes:
            return severe
    if Outcome.SKIPPED in outcomes or Outcome.PASS not in outcomes:
        return Outcome.INCONCLUSIVE
    return Outcome.PASS
