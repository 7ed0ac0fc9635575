"""The certificate's own vocabulary: what stands in certificate.json and what each field means."""

from __future__ import annotations

from pydantic import Field

from validation.model import Frozen, Level, Outcome, Stage, Substrate


class Signature(Frozen):
    algorithm: str
    public_key: str = Field(description="Raw Ed25519 key, base64; whose it is must be known from elsewhere.")
    value: str = Field(description="Base64; over the document without this field (validation/signing.py).")


class CheckEntry(Frozen):
    subject: str
    check: str
    stage: Stage
    outcome: Outcome
    measured: str
    required: str
    origin: str = Field(description="Where the requirement came from.")
    evidence: str
    remedy: str
    advice: str


class DirectionEntry(Frozen):
    src: str
    dst: str
    bandwidth_gbps: float | None = Field(description="Upper quartile of its rounds: noise only takes away.")
    lowest_gbps: float | None = Field(description="Its worst round.")
    declared_gbps: float | None
    share: float | None = Field(description="Measured ÷ declared.")
    latency_p50_us: float | None
    latency_p99_us: float | None
    verified: bool | None = Field(description="Whether every byte arrived as sent; None: nothing to verify.")
    error: str


class LinkEntry(Frozen):
    """A pair of nodes; its verdict is None if the judge said nothing about it by itself."""

    link: str
    verdict: Outcome | None
    directions: tuple[DirectionEntry, ...]
    checks: tuple[CheckEntry, ...]


class NodeEntry(Frozen):
    verdict: Outcome = Field(description="Decides alone whether the node is put in or kept out of service.")
    hardware_sha256: str | None
    inventory_sha256: str = Field(description="Of what the inventory says of this node (inventory/node_part.py).")
    versions: dict[str, str] = Field(description="Kernel, driver, Slurm, torch … that it was certified with.")
    send_gbps: float | None = Field(description="Median over partners.")
    receive_gbps: float | None = Field(description="Median over partners.")
    slowest: DirectionEntry | None = Field(description="Its slowest measured direction.")
    step_seconds: float | None = Field(description="Its median step in the largest distributed training.")
    checks: tuple[CheckEntry, ...]


class CulpritEntry(Frozen):
    kind: str
    subject: str
    cause: str
    sentence: str
    evidence: tuple[str, ...]
    remedy: str
    node: str | None
    effect: str


class CollectiveEntry(Frozen):
    op: str
    nodes: int
    bytes: int
    busbw_gbps: float
    verified: bool


class TrainingEntry(Frozen):
    nodes: int
    global_batch: int
    steps: int
    samples_per_second: float | None
    step_seconds: float | None
    compute_seconds: float | None
    comm_seconds: float | None
    first_loss: float | None
    last_loss: float | None


class Certificate(Frozen):
    """The document; `certified` with `substrate` hardware is the only combination that speaks for a real machine."""

    cluster: str
    certified: bool
    verdict: Outcome
    substrate: Substrate
    statement: str = Field(description="The verdict as sentences.")
    level: Level
    partial: bool
    run_id: str
    version: str
    launcher: str
    started_at: str
    issued_at: str = Field(description="End of the run by its own records, UTC.")
    expires_at: str = Field(description="The verdict, good or bad, is stale after it.")
    inventory_sha256: str
    hardware_sha256: str | None = Field(description="None: there was no hardware lock.")
    results_sha256: str
    coverage: dict[str, int] = Field(description="Checks an outcome; pairs_tested (both directions) of pairs_all.")
    stages: dict[Stage, str] = Field(description="done; skipped or error with the reason; not finished; not run.")
    culprits: tuple[CulpritEntry, ...]
    nodes: dict[str, NodeEntry]
    links: tuple[LinkEntry, ...]
    whole: tuple[CheckEntry, ...] = Field(description="Checks of the cluster as a whole, and of services.")
    collectives: tuple[CollectiveEntry, ...]
    trainings: tuple[TrainingEntry, ...]
    undecided: tuple[str, ...]
    not_tested: tuple[str, ...]
    signature: Signature | None = None

    @property
    def checks(self) -> list[CheckEntry]:
        """Every check that the certificate lists: of nodes, then links, then the whole."""
        nodes = [check for node in self.nodes.values() for check in node.checks]
        return [*nodes, *(check for link in self.links for check in link.checks), *self.whole]


class NodeCertificate(Frozen):
    """What a run says about one node that passed; void when its hardware, its inventory or its versions change."""

    node: str
    cluster: str
    verdict: Outcome
    substrate: Substrate
    statement: str
    level: Level
    run_id: str
    version: str
    issued_at: str
    expires_at: str
    hardware_sha256: str
    inventory_sha256: str
    versions: dict[str, str]
    results_sha256: str
    coverage: dict[str, int] = Field(description="Its own checks: passed, of all.")
    signature: Signature | None = None
