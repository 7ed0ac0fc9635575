"""What holds for whatever records: the judge is pure, repeatable, and careful with whom it drains."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.simulator.campaign import KINDS, case, noise
from tests.simulator.network import Faults, Noise
from tests.simulator.run import pairs_stage, whole_run
from validation.model import RECORD, CellRecord, Judgement, NodeCheckRecord, Outcome, Record
from validation.verdict import judge

SEEDS = st.integers(min_value=0, max_value=10_000)
COUNTS = st.sampled_from([2, 3, 4, 5])
FEW = settings(max_examples=20, deadline=None)


@cache
def noisy(count: int, seed: int) -> tuple[Record, ...]:
    """The pairs stage of a fleet with some fault (none with two nodes) under some noise."""
    import random

    rng = random.Random(seed)  # noqa: S311 - noise, not a secret
    faults = case(rng.choice(KINDS), count, rng).faults if count > 2 else Faults()
    records, _ = pairs_stage(count, faults, noise(rng), seed)
    return tuple(records)


def mixed(value: Any) -> Any:
    """The same JSON value with every dictionary the other way round."""
    if isinstance(value, dict):
        return {key: mixed(value[key]) for key in reversed(value)}
    return [mixed(item) for item in value] if isinstance(value, list) else value


@FEW
@given(COUNTS, SEEDS)
def test_the_same_records_give_the_same_judgement(count: int, seed: int) -> None:
    """Judging twice, after a JSON round trip and with dictionaries in another order, gives the same bytes."""
    records = noisy(count, seed)
    first = judge(records).model_dump_json()
    assert judge(records).model_dump_json() == first
    assert judge([RECORD.validate_json(r.model_dump_json()) for r in records]).model_dump_json() == first
    turned = [RECORD.validate_python(mixed(r.model_dump(mode="json"))) for r in records]
    assert judge(turned).culprits == judge(records).culprits
    assert sorted(judge(turned).nodes.items()) == sorted(judge(records).nodes.items())


@FEW
@given(COUNTS, SEEDS)
def test_only_a_failed_node_is_ever_to_be_drained(count: int, seed: int) -> None:
    """A culprit that drains belongs to a node whose own verdict is FAIL, and a FAIL of a node has such a culprit."""
    assert_drains_only_failed(judge(noisy(count, seed)))


OUTCOMES = st.sampled_from(list(Outcome))
CHECKS = st.lists(
    st.builds(
        NodeCheckRecord,
        node=st.sampled_from(["n1", "n2", "n3", "n4"]),
        check=st.sampled_from(["clock-offset", "mtu", "versions"]),
        outcome=OUTCOMES,
        cause=st.sampled_from(["clock", "mtu", "consistency"]),
        culprit_kind=st.sampled_from(["node", "service", "configuration"]),
        culprit=st.sampled_from(["", "NFS on head"]),
    ),
    max_size=8,
)
HEALTHY = whole_run(4)


@settings(max_examples=60, deadline=None)
@given(CHECKS)
def test_no_error_or_doubt_of_a_check_drains_a_node(checks: list[NodeCheckRecord]) -> None:
    """Whatever checks say: only FAIL drains, and ERROR or INCONCLUSIVE never leaves a node passed."""
    judgement = judge([*HEALTHY, *checks])
    assert_drains_only_failed(judgement)
    failed = {check.node for check in checks if check.outcome is Outcome.FAIL}
    assert {c.node for c in judgement.culprits if c.node} <= failed
    for check in checks:
        if check.outcome in (Outcome.ERROR, Outcome.INCONCLUSIVE):
            assert judgement.nodes[check.node] is not Outcome.PASS
            assert judgement.verdict is not Outcome.PASS


@FEW
@given(COUNTS, SEEDS)
@example(count=4, seed=0)
def test_good_readings_never_create_a_culprit(count: int, seed: int) -> None:
    """More good rounds of every pair can only clear: whoever is named then was named before."""
    records = noisy(count, seed)
    before = {(c.kind, c.subject) for c in judge(records).culprits}
    cells = [r for r in records if isinstance(r, CellRecord)]
    start = max(cell.round for cell in cells) + 10
    pairs = sorted({(cell.src, cell.dst) for cell in cells})
    best = {"round": start, "purpose": "plan", "repetitions_gbps": (1.0, 1.0, 1.0), "idle_share": 0.5}
    good = [cells[0].model_copy(update={**best, "src": a, "dst": b}) for a, b in pairs]
    after = {(c.kind, c.subject) for c in judge([*records[:-1], *good, records[-1]]).culprits}
    assert after <= before


def test_the_order_of_sets_does_not_show() -> None:
    """Another hash seed, so another order of every set of names, gives the same bytes."""
    code = (
        "from tests.simulator.run import pairs_stage; from tests.simulator.network import Faults, Noise\n"
        "faults = Faults(send={'n2': 0.4}, links={('n1', 'n3'): 0.4, ('n3', 'n1'): 0.4})\n"
        "print(pairs_stage(5, faults, Noise(), 3)[1].model_dump_json())"
    )
    root = Path(__file__).parents[2]
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, cwd=root, check=True,
            capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(texts) == 1


def test_the_judge_always_comes_to_an_end() -> None:
    """However noisy a fleet is, wishes end: simulated runs raise after four hundred of them."""
    wild = Noise(sigma=0.3, host_starts=0.3, node_starts=0.2, rounds=4.0)
    for seed in range(6):
        for count in (2, 3, 4, 6):
            _, judgement = pairs_stage(count, Faults(), wild, seed)
            assert judgement.wanted == ()


def assert_drains_only_failed(judgement: Judgement) -> None:
    drained = {culprit.node for culprit in judgement.culprits if culprit.node is not None}
    assert drained == {node for node, outcome in judgement.nodes.items() if outcome is Outcome.FAIL}
    if drained:
        assert judgement.verdict is Outcome.FAIL
