"""A healthy whole run, and the changes that tests make to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.simulator.run import whole_run
from validation.model import Culprit, FailureRecord, Judgement, NodeCheckRecord, Outcome, Record, Stage

HEALTHY = whole_run(4)


def changed(kind: type[Any], change: Callable[[Any], dict[str, Any]], records: Sequence[Record] = ()) -> list[Record]:
    """The healthy run with `change` applied to every record of one kind."""
    return [r.model_copy(update=change(r)) if isinstance(r, kind) else r for r in records or HEALTHY]


def failed_check(node: str, check: str, cause: str, **more: Any) -> NodeCheckRecord:
    return NodeCheckRecord(
        node=node, check=check, outcome=Outcome.FAIL, measured="bad", required="good", cause=cause,
        remedy="mend it", **more,
    )  # fmt: skip


def failure(node: str, what: str, detail: str, stage: Stage = "training", **more: Any) -> FailureRecord:
    return FailureRecord(stage=stage, node=node, rank=int(node[1:]) - 1, what=what, detail=detail, **more)


def named(judgement: Judgement) -> set[tuple[str, str, str, str | None]]:
    return {(c.kind, c.subject, c.cause, c.node) for c in judgement.culprits}


def only(judgement: Judgement) -> Culprit:
    (culprit,) = judgement.culprits
    return culprit
