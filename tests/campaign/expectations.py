"""What each fault must lead to: the verdict, whom it names, who may be drained. V: the victim, P: its partner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FAIL, PASS, ERROR, INCONCLUSIVE = "FAIL", "PASS", "ERROR", "INCONCLUSIVE"


@dataclass(frozen=True)
class Part:
    """A culprit that is right: its kind, its subject (V, P, V–P, head; * is any) and the causes that say it well."""

    kind: str
    subject: str
    causes: tuple[str, ...] = ("*",)


@dataclass(frozen=True)
class Expected:
    """`culprits`: one of these must be named; `also`: may be named besides. No culprit: nobody may be named."""

    fault: str
    number: str
    verdicts: tuple[str, ...]
    culprits: tuple[Part, ...] = ()
    also: tuple[Part, ...] = ()
    stages: str = "node"
    """The stages that show it; a campaign runs these only where it is told to be brief."""
    on: str = "V"
    """The nodes it is put into: V, VP (a fault between two), head, or nothing for the machine."""
    drains: bool = True
    """Whether V may be drained for it."""
    short: bool = False
    """Whether it is part of the short campaign."""


def node(*causes: str) -> tuple[Part, ...]:
    return (Part("node", "V", causes or ("*",)),)


def service(*causes: str) -> tuple[Part, ...]:
    """A service of the node itself."""
    return (Part("service", "V", causes or ("*",)),)


LINK = (Part("link", "V–P"),)
SLOW = ("network", "latency", "loss", "network-unsteady")
SHARED_ADDRESS = (Part("node", "P", ("address-conflict",)),)
NO_TORCH = (*node("torch-missing"), Part("validator", "*"))
PROGRAM = (Part("software", "*"),)
HEAD_SERVICE = (Part("service", "head", ("slurmctld-down",)),)

EXPECTED = (
    # --- links
    Expected("slow-link", "F01", (FAIL,), node("network"), stages="pairs", short=True),
    Expected("slow-egress", "F02", (FAIL,), node("network-egress"), stages="pairs", short=True),
    Expected("slow-ingress", "", (FAIL,), node("network-ingress"), stages="pairs"),
    Expected("slow-pair", "", (FAIL,), LINK, on="VP", drains=False, stages="pairs"),
    Expected("loss", "F04", (FAIL,), node(*SLOW), stages="pairs"),
    Expected("loss-pair", "", (FAIL,), LINK, on="VP", drains=False, stages="pairs"),
    Expected("delay", "F05", (FAIL,), node("latency"), stages="pairs"),
    Expected("unreachable", "F06", (FAIL,), node("unreachable"), stages=""),
    Expected("isolated", "", (FAIL,), node("unreachable"), stages="pairs"),
    Expected("link-down", "", (FAIL,), node("unreachable"), stages=""),
    Expected("cut", "F07", (FAIL,), LINK, stages="pairs", on="VP", drains=False, short=True),
    Expected("cut-one-way", "", (FAIL,), LINK, on="VP", drains=False, stages="pairs"),
    Expected("firewall", "F08", (FAIL,), node("firewall-inbound"), stages="pairs", short=True),
    Expected("firewall-outbound", "", (FAIL,), node("firewall-outbound"), stages="pairs"),
    Expected("mtu", "F09", (FAIL,), node("mtu"), short=True),
    Expected("black-hole", "", (FAIL,), node("large-packets", "mtu", "network"), stages="pairs", short=True),
    Expected("corrupt-packets", "", (FAIL,), node("data-corruption", "data-corruption-ingress"), stages="pairs"),
    Expected("flapping", "F11", (FAIL,), node("link-flapping", "unreachable", "hang", *SLOW), stages="pairs"),
    Expected("same-address", "", (FAIL,), SHARED_ADDRESS, on="VP"),
    # --- names, time, accounts, versions, services
    Expected("decoy", "F13", (PASS,), stages=""),
    Expected("loopback-name", "F14", (FAIL,), node("name-resolution"), short=True),
    Expected("wrong-name", "", (FAIL,), node("name-resolution")),
    Expected("dead-resolver", "F16", (FAIL,), node("dns"), short=True),
    Expected("clock", "F17", (FAIL,), node("clock")),
    Expected("time-daemon", "F18", (PASS,), stages=""),
    Expected("uid", "F20", (FAIL,), node("identity")),
    Expected("host-name", "", (FAIL,), node("host-name")),
    Expected("torch-version", "F36", (FAIL,), node("consistency"), short=True),
    Expected("numpy-version", "F36", (FAIL,), node("consistency")),
    Expected("half-configured", "", (FAIL,), node("packages")),
    Expected("slurmd-stopped", "F41", (FAIL,), service("slurmd-down"), short=True),
    Expected("slurmctld-stopped", "", (FAIL,), HEAD_SERVICE, on="head", drains=False, stages=""),
    Expected("wrong-gres", "F41", (FAIL,), (*service(), *node(), Part("configuration", "V"))),
    Expected("munge-stopped", "", (FAIL,), service("munge-down", "munge")),
    Expected("munge-key", "", (FAIL,), service("munge"), stages=""),
    Expected("missing-tool", "F45", (ERROR,), (Part("validator", "*"),), stages="node", drains=False, short=True),
    Expected("missing-scontrol", "F45", (ERROR,), (Part("validator", "*"),), drains=False),
    Expected("missing-torch", "", (FAIL, ERROR), NO_TORCH, stages="node,training"),
    # --- resources
    Expected("slow-cpu", "F26", (FAIL,), node("compute"), stages="training", short=True),
    Expected("low-memory", "F28", (FAIL,), node("out-of-memory"), stages="training"),
    Expected("slow-disk", "F25", (FAIL,), node("disk-slow")),
    Expected("disk-full", "F24", (FAIL,), node("disk-full"), short=True),
    Expected("inodes-full", "F24", (FAIL,), node("inodes-full")),
    Expected("scratch-full", "F24", (FAIL,), node("disk-full")),
    Expected("read-only", "", (FAIL,), node("disk-read-only")),
    Expected("small-shm", "F38", (FAIL,), node("shared-memory"), short=True),
    Expected("few-files", "F37", (FAIL,), node("limits"), short=True),
    Expected("little-locked", "F37", (PASS,), stages=""),
    # --- ranks
    Expected("rank-killed", "F29", (FAIL,), node("killed"), stages="training", short=True),
    Expected("rank-stopped", "F30", (FAIL,), node("hang"), stages="training", short=True),
    Expected("rank-exits", "", (FAIL,), node("crash"), stages="training"),
    Expected("rank-crashes", "", (FAIL,), node("crash"), stages="training"),
    Expected("rank-spins", "", (FAIL,), node("hang"), stages="training"),
    Expected("skipped-collective", "F35", (FAIL,), PROGRAM, stages="training", drains=False, short=True),
    Expected("bit-flip", "F31", (FAIL,), node("silent-data-corruption"), stages="training"),
    Expected("storage-stuck", "", (FAIL,), node("storage-stale", "mount")),
    Expected("storage-gone", "", (FAIL,), node("mount")),
    # --- the machine
    Expected("busy-machine", "C3", (PASS, INCONCLUSIVE), on="", stages=""),
)  # fmt: skip
LATER = {
    "rare-bit-flip": "F32 shows at level burn-in only, which lasts longer than a campaign's turn",
    "nfs-stopped": "F23 needs a cluster whose storage is its own NFS server; the container lab has an External one",
    "gpu-*": "F42 is played by recordings against an inventory with GPUs: tests/end_to_end/gpu_only.py",
}
"""Faults of the lab that this campaign does not put in, and why."""


def by_fault(name: str) -> Expected:
    return next(expected for expected in EXPECTED if expected.fault == name)


@dataclass(frozen=True)
class Named:
    """A culprit as a certificate has it."""

    kind: str
    subject: str
    cause: str


@dataclass(frozen=True)
class Placed:
    """A fault with its nodes."""

    expected: Expected
    victim: str
    partner: str

    @property
    def nodes(self) -> list[str]:
        return {"V": [self.victim], "VP": [self.victim, self.partner], "head": ["head"], "": []}[self.expected.on]

    def is_right(self, part: Part, culprit: Named) -> bool:
        subjects = {
            "V": (self.victim,),
            "P": (self.partner,),
            "V–P": (f"{self.victim}–{self.partner}", f"{self.partner}–{self.victim}"),
            "*": (culprit.subject,),
        }.get(part.subject, (part.subject,))
        named = culprit.subject in subjects or (
            part.kind == "service" and any(culprit.subject.endswith(f" on {one}") for one in subjects)
        )
        return part.kind == culprit.kind and named and ("*" in part.causes or culprit.cause in part.causes)

    @property
    def drainable(self) -> set[str]:
        if not self.expected.drains or not self.expected.on.startswith("V"):
            return set()
        return {self.partner if part.subject == "P" else self.victim for part in self.expected.culprits}


def judge_turn(
    placed: Sequence[Placed], verdict: str, culprits: Sequence[Named], drained: set[str], *, partial: bool = False
) -> list[str]:
    """What is wrong with a run's answer; nothing if all faults, and only they, are named."""
    wrong = []
    verdicts = {one for p in placed for one in p.expected.verdicts} or {PASS}
    if FAIL in verdicts and len(placed) > 1:
        verdicts = {FAIL}
    if partial and PASS in verdicts:
        verdicts |= {INCONCLUSIVE}
    if verdict not in verdicts:
        wrong.append(f"verdict {verdict} instead of {' or '.join(sorted(verdicts))}")
    for one in placed:
        if one.expected.culprits and not any(one.is_right(p, c) for p in one.expected.culprits for c in culprits):
            wrong.append(f"{one.expected.fault}: not named")
    for culprit in culprits:
        parts = [(one, part) for one in placed for part in (*one.expected.culprits, *one.expected.also)]
        if not any(one.is_right(part, culprit) for one, part in parts):
            wrong.append(f"blamed besides: {culprit.kind} {culprit.subject} ({culprit.cause})")
    allowed = {name for one in placed for name in one.drainable}
    wrong += [f"drained although not at fault: {name}" for name in sorted(drained - allowed)]
    return wrong
