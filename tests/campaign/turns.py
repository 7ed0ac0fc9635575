"""One turn of a campaign: put faults in, validate, read whom the certificate names and who was drained, heal."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lab.errors import LabError
from lab.fault_model import Site
from lab.faults import FAULTS
from tests.campaign.expectations import Named, Placed, judge_turn
from tests.end_to_end.certify import Certified, decide
from tests.lab.handle import Lab


class Turn(BaseModel):
    """A line of the results file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    kind: str
    faults: tuple[str, ...]
    numbers: tuple[str, ...]
    nodes: tuple[str, ...]
    stages: str = "all"
    verdict: str = ""
    named: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    seconds: float = 0.0
    wrong: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    not_here: str = ""

    @property
    def detected(self) -> bool:
        return not any(text.startswith("verdict") or text.endswith("not named") for text in self.wrong)

    @property
    def blames_wrongly(self) -> bool:
        return any(text.startswith("blamed besides") for text in self.wrong)

    @property
    def drains_wrongly(self) -> bool:
        return any(text.startswith("drained") for text in self.wrong)


def one_turn(lab: Lab, key: str, kind: str, placed: Sequence[Placed], out: Path, stages: str = "") -> Turn:
    """The faults in, one run, healed again whatever happens; slurmctld's drains by the product are lifted after it."""
    names = tuple(one.expected.fault for one in placed)
    numbers = tuple(one.expected.number for one in placed)
    nodes = tuple("–".join(one.nodes) or "the machine" for one in placed)
    if why := not_here(names):
        return Turn(key=key, kind=kind, faults=names, numbers=numbers, nodes=nodes, not_here=why)
    before, began = drained_by_us(lab), time.monotonic()
    try:
        with broken(lab, placed):
            began = time.monotonic()
            found = decide(lab, out, *(("--only", stages) if stages else ()))
            seconds = time.monotonic() - began
            drained = drained_by_us(lab) - before
    except (AssertionError, subprocess.TimeoutExpired) as error:
        why = f"verdict: none, since {str(error).strip().splitlines()[-1][:300]}"
        seconds = round(time.monotonic() - began, 1)
        return Turn(key=key, kind=kind, faults=names, numbers=numbers, nodes=nodes, seconds=seconds, wrong=(why,))
    culprits = named_by(found)
    wrong = judge_turn(placed, found.certificate["verdict"], culprits, drained, partial=bool(stages))
    return Turn(
        key=key, kind=kind, faults=names, numbers=numbers, nodes=nodes, stages=stages or "all",
        verdict=found.certificate["verdict"],
        named=tuple(f"{one.kind} {one.subject}: {one.cause}" for one in culprits), drained=tuple(sorted(drained)),
        seconds=round(seconds, 1), wrong=tuple(wrong), undecided=tuple(found.certificate["undecided"][:6]),
    )  # fmt: skip


def not_here(names: Sequence[str]) -> str:
    """Why a fault can't be had on this machine."""
    nowhere: Site | None = None
    return "; ".join(f"{name}: {why}" for name in names if (why := FAULTS[name].unable(nowhere)))


def named_by(found: Certified) -> list[Named]:
    return [Named(kind, subject, cause) for kind, subject, cause in found.culprits]


@contextmanager
def broken(lab: Lab, placed: Sequence[Placed]) -> Iterator[None]:
    """The faults are in; taken out, and what they led to in Slurm lifted, whatever happens."""
    try:
        for one in placed:
            lab.lab("fault", one.expected.fault, *one.nodes)
        yield
    finally:
        lab.lab("heal")
        settle(lab)


def settle(lab: Lab, timeout_s: float = 60) -> None:
    """Wait until Slurm hears every node again, and take back the drains of this product."""
    deadline = time.monotonic() + timeout_s
    while True:
        states = slurm_states(lab)
        down = {name for name, (state, _) in states.items() if state.startswith("down")}
        again = sorted(down | drained_by_us(lab, states))
        if again:
            lab.ssh("head", f"scontrol update NodeName={','.join(again)} State=RESUME", check=False)
        elif states and all(state in ("idle", "drained", "mixed") for state, _ in states.values()):
            return
        if time.monotonic() > deadline:
            return
        time.sleep(0.5)


def slurm_states(lab: Lab) -> dict[str, tuple[str, str]]:
    """Node → state and reason; nothing while slurmctld does not answer."""
    try:
        said = lab.ssh("head", "sinfo -N -h -o '%N|%T|%E'", check=False).stdout
    except LabError:
        return {}
    rows = (line.split("|", 2) for line in said.splitlines() if line.count("|") >= 2)
    return {name: (state, reason) for name, state, reason in rows}


def drained_by_us(lab: Lab, states: dict[str, tuple[str, str]] | None = None) -> set[str]:
    """A reason stays after a node was resumed: its state tells."""
    states = slurm_states(lab) if states is None else states
    return {name for name, (state, reason) in states.items() if state.startswith("drain") and "klaster:" in reason}


class Results:
    """Turns on disk, a JSON line each, so that a campaign that was stopped goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Turn]:
        """Key → the last turn of that key."""
        if not self.path.exists():
            return {}
        lines = self.path.read_text(encoding="utf-8").splitlines()
        found: dict[str, Turn] = {}
        for line in lines:
            turn = Turn.model_validate_json(line)
            found[turn.key] = turn
        return found

    def add(self, turn: Turn) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(turn.model_dump_json() + "\n")
