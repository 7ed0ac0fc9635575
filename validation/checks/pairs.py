"""Stage pairs: reach every node from every node, then measure every pair, and more pairs while a judge asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from validation.checks.reach import probe_reach
from validation.launch_ranks import Message
from validation.launcher import Emit, Fleet
from validation.model import CellRecord, FanInRecord, Judgement, Level, WantedFanIn, WantedRound
from validation.schedule import leaves_of, plan_rounds

Pair = tuple[str, str]
Purpose = Literal["plan", "retest", "control", "fleet", "leaf"]

MESSAGE_S = 0.13
"""A message takes so long at the declared speed: long against a shaper's burst, short enough for many rounds."""
LEAST_BYTES, MOST_BYTES = 1 << 20, 64 << 20
REPETITIONS = 3
BUDGET_S = 1.2
"""All messages of one direction; where the link is slower than declared, messages shrink to fit."""
FAN_BUDGET_S = 0.6
GROUP_TIMEOUT_S = 10.0
ROUND_TIMEOUT_S = 45.0
KEEP_GROUPS_UP_TO = 16
"""Each two-rank group holds threads and sockets: in larger fleets they are closed after their round."""
MOST_EXTRA_ROUNDS = 120
"""The judge ends by itself (tested); this only keeps a mistake in it from running for ever."""


def run_pairs(fleet: Fleet, level: Level, emit: Emit, judge_now: Callable[[], Judgement]) -> None:
    """Emit ReachRecords, CellRecords and FanInRecords; go on as long as `judge_now().wanted` is not empty."""
    stage = PairsStage(fleet, emit)
    stage.reach()
    for pairs in plan_rounds([node.name for node in fleet.nodes], level, leaves_of(fleet.nodes)):
        stage.measure(pairs, "plan")
    for _ in range(MOST_EXTRA_ROUNDS):
        wanted = judge_now().wanted
        measured = [stage.want(one) for one in wanted]
        if not any(measured):
            return


class PairsStage:
    """What goes on between rounds: which pairs can't be measured, and the names of their groups."""

    def __init__(self, fleet: Fleet, emit: Emit) -> None:
        self._fleet, self._emit = fleet, emit
        self._cut: set[Pair] = set()
        self._errors: dict[Pair, int] = {}
        self._first_round = fleet.rounds
        self._last_round_end = 0.0

    def reach(self) -> None:
        """All ordered pairs by plain TCP; a pair that fails one way is not measured."""
        fleet = self._fleet
        records = fleet.persist("pairs", lambda: probe_reach(fleet, fleet.nodes, stage="pairs"))
        for record in records:
            self._emit(record)
        self._cut = {_sorted((record.src, record.dst)) for record in records if not record.ok}

    def want(self, wanted: WantedRound | WantedFanIn) -> bool:
        """Measure what the judge asked for; False where none of it can be measured any more."""
        if isinstance(wanted, WantedFanIn):
            return self.fan_in(wanted)
        time.sleep(max(0.0, wanted.spacing_s - (time.monotonic() - self._last_round_end)))
        return self.measure(wanted.pairs, wanted.purpose, wanted.controls)

    def measure(self, pairs: Sequence[Pair], purpose: Purpose, controls: Sequence[Pair] = ()) -> bool:
        """One round, all pairs at the same time, the first of each sends first; False if there was none to measure."""
        control = {_sorted(pair) for pair in controls}

        def attempt() -> bool:
            possible = [pair for pair in pairs if self._possible(pair)]
            if possible:
                self._round(possible, purpose, control)
                self._last_round_end = time.monotonic()
            return bool(possible)

        return self._fleet.persist("pairs", attempt)

    def _possible(self, pair: Pair) -> bool:
        return set(pair) <= {node.name for node in self._fleet.nodes} and _sorted(pair) not in self._cut

    def _round(self, pairs: Sequence[Pair], purpose: Purpose, control: set[Pair]) -> None:
        fleet, number, at_s = self._fleet, self._fleet.next_round(), self._fleet.seconds()
        commands: dict[int, Message] = {}
        for a, b in pairs:
            shared = self._command("pair", (a, b), round=number, seed=number + 1)
            commands[fleet.lead(a).rank] = {**shared, "peer": fleet.lead(b).peer(), "leads": True}
            commands[fleet.lead(b).rank] = {**shared, "peer": fleet.lead(a).peer(), "leads": False}
        answers = fleet.ask("pairs", commands, timeout_s=ROUND_TIMEOUT_S)
        for a, b in pairs:
            ends = {name: answers.get(fleet.lead(name).rank, _NO_ANSWER) for name in (a, b)}
            if any(_error(end) for end in ends.values()):
                self._errors[_sorted((a, b))] = self._errors.get(_sorted((a, b)), 0) + 1
            is_control = _sorted((a, b)) in control
            for src, dst in ((a, b), (b, a)):
                cell = _cell(src, dst, ends[src], ends[dst], number, "control" if is_control else purpose, at_s)
                fleet.note_speed(cell)
                self._emit(cell)
        if len(answers) < len(commands):
            fleet.stop()  # a rank that did not come back may never: all start anew for the next round

    def _command(self, operation: str, pair: Pair, **more: Any) -> Message:
        speed = min(self._fleet.declared_gbps.get(name, 1.0) for name in pair)
        return {
            "op": operation,
            "group": self._group(pair),
            "message_bytes": message_bytes(speed),
            "repetitions": REPETITIONS,
            "budget_s": BUDGET_S,
            "timeout_s": GROUP_TIMEOUT_S,
            "keep": len(self._fleet.nodes) <= KEEP_GROUPS_UP_TO,
            **more,
        }

    def _group(self, pair: Pair) -> str:
        """Both ends make a group anew exactly when its name is new: after any error, with new workers, in a new stage.

        A world group closes the pair groups of its members only: what is left of an earlier stage has one end.
        """
        a, b = _sorted(pair)
        return f"pair/{self._fleet.generation}/{self._first_round}/{a}/{b}/{self._errors.get((a, b), 0)}"

    def fan_in(self, wanted: WantedFanIn) -> bool:
        """Both partners with one target at once, beside one alone just before."""

        def attempt() -> bool:
            possible = all(self._possible((wanted.target, partner)) for partner in wanted.partners)
            if possible:
                self._emit(self._fan_in(wanted))
                self._last_round_end = time.monotonic()
            return possible

        return self._fleet.persist("pairs", attempt)

    def _fan_in(self, wanted: WantedFanIn) -> FanInRecord:
        fleet, number, at_s = self._fleet, self._fleet.next_round(), self._fleet.seconds()
        target, partners = wanted.target, wanted.partners
        pairs = [(target, partner) for partner in partners]
        shared = self._command("fan", pairs[0], seed=number + 1, direction=wanted.direction, target=target)
        shared["budget_s"] = FAN_BUDGET_S
        shared |= {"groups": [self._group(pair) for pair in pairs], "is_target": False}
        leads = [fleet.lead(partner) for partner in partners]
        commands: dict[int, Message] = {
            fleet.lead(target).rank: {**shared, "is_target": True, "peers": [lead.peer() for lead in leads]},
            leads[0].rank: {**shared, "peers": [fleet.lead(target).peer(), None]},
            leads[1].rank: {**shared, "peers": [None, fleet.lead(target).peer()]},
        }
        answers = fleet.ask("pairs", commands, timeout_s=ROUND_TIMEOUT_S)
        ends = [answers.get(rank, _NO_ANSWER) for rank in commands]
        error = "; ".join(text for text in map(_error, ends) if text)
        receivers = ends[:1] if wanted.direction == "in" else ends[1:]
        alone = [flow for end in receivers for flow in end.get("alone", [])]
        together = [flow for end in receivers for flow in end.get("together", [])]
        if error:
            for pair in pairs:
                self._errors[_sorted(pair)] = self._errors.get(_sorted(pair), 0) + 1
        if len(answers) < len(commands):
            fleet.stop()
        return FanInRecord(
            round=number,
            target=target,
            direction=wanted.direction,
            partners=partners,
            single_gbps=total_gbps(alone[:1]),
            total_gbps=total_gbps(together),
            error=error[:300],
            at_s=at_s,
        )


_NO_ANSWER: Message = {"ok": False, "type": "Timeout", "error": f"no end within {ROUND_TIMEOUT_S:g} s"}


def message_bytes(speed_gbps: float) -> int:
    """Bytes of one message for a declared speed, in Gb/s."""
    return max(LEAST_BYTES, min(MOST_BYTES, int(speed_gbps * 1e9 / 8 * MESSAGE_S)))


def total_gbps(flows: Sequence[Sequence[float]]) -> float:
    """Gb/s of flows (bytes, seconds) that began together: all bytes over the longest time.

    Their sizes were chosen so that each takes as long alone: over separate links they end together, and over a shared
    one the last to end has waited for the others.
    """
    longest = max((seconds for _, seconds in flows), default=0.0)
    return round(sum(size for size, _ in flows) * 8 / 1e9 / longest, 5) if longest else 0.0


def _sorted(pair: Pair) -> Pair:
    return (pair[0], pair[1]) if pair[0] < pair[1] else (pair[1], pair[0])


def _error(answer: Message) -> str:
    """The error of an end, in one line; empty if it has none."""
    if not answer["ok"]:
        return f"{answer['type']}: {answer['error']}"
    return str(answer.get("error", ""))


def _cell(
    src: str, dst: str, sender: Message, receiver: Message, number: int, purpose: Purpose, at_s: float
) -> CellRecord:
    """The direction src → dst out of the answers of both ends; what was measured before an error is kept."""
    received = receiver.get("received") or {}
    shares = [end["idle_share"] for end in (sender, receiver) if end.get("idle_share") is not None]
    error = "" if received else "; ".join(text for text in (_error(receiver), _error(sender)) if text)
    return CellRecord(
        round=number,
        purpose=purpose,
        src=src,
        dst=dst,
        message_bytes=received.get("bytes", 0),
        repetitions_gbps=tuple(received.get("gbps", ())),
        latency_us=tuple(sender.get("latency_us", ())),
        verified=received.get("verified"),
        error=error[:300],
        at_s=at_s,
        idle_share=min(shares, default=None),
    )
