"""The judge on products and memory bandwidth: right first, then speed beside like nodes, then heat."""

from __future__ import annotations

from typing import Any

from tests.simulator.changes import changed, named
from tests.simulator.run import whole_run
from validation.model import Judgement, Outcome, Record, RunRecord, SpeedRecord
from validation.verdict import judge

STEADY = (0.02,) * 60


def speed(node: str, factor: float = 1.0, **more: Any) -> SpeedRecord:
    given: dict[str, Any] = {
        "what": "product-fp32", "node": node, "rank": 0, "work": 4e7, "seconds": tuple(s / factor for s in STEADY),
        "cpu_share": 0.98, "idle_share": 0.5,
    }  # fmt: skip
    return SpeedRecord.model_validate(given | more)


def judged(*records: SpeedRecord, hardware: bool = False) -> Judgement:
    run: list[Record] = whole_run(3)
    if hardware:
        run = changed(RunRecord, lambda r: {"substrate": "hardware"}, run)
    return judge([*run, *records])


def rows(judgement: Judgement, check: str) -> dict[str, Outcome]:
    return {r.subject: r.outcome for r in judgement.results if r.check == check}


def test_like_speeds_pass_and_show_their_jitter() -> None:
    """Alike within 15 %: all pass, with rate, median and 99th percentile."""
    judgement = judged(speed("n1"), speed("n2", 0.9), speed("n3"))
    assert set(rows(judgement, "products").values()) == {Outcome.PASS}
    shown = next(r.measured for r in judgement.results if r.check == "products")
    assert "2 GFLOP/s product-fp32" in shown
    assert "p50 20 ms, p99 20 ms" in shown


def test_a_slow_memory_without_processor_time_is_named_on_an_idle_host() -> None:
    """Half the bandwidth of its peers, processor withheld, others idle: compute of n3."""
    slow = speed("n3", 0.5, what="triad", cpu_share=0.5)
    judgement = judged(speed("n1", what="triad"), speed("n2", what="triad"), slow)
    assert named(judgement) == {("node", "n3", "compute", "n3")}
    assert rows(judgement, "memory-bandwidth")["n3"] is Outcome.FAIL


def test_a_slow_turn_on_a_busy_host_names_nobody() -> None:
    """Without an idle processor a machine's slow turn is open; a lab node's, which shares a machine, is only shown."""
    slow = speed("n3", 0.3, cpu_share=0.5, idle_share=0.0)
    for hardware, outcome in ((False, Outcome.NOT_APPLICABLE), (True, Outcome.INCONCLUSIVE)):
        judgement = judged(speed("n1"), speed("n2"), slow, hardware=hardware)
        assert (judgement.culprits, rows(judgement, "products")["n3"]) == ((), outcome)


def test_a_rehearsals_busy_host_judges_by_processor_time() -> None:
    """Half the rate with half the processor time is as fast as the peers: a short turn that had to share passes."""
    shared = speed("n3", 0.5, cpu_share=0.5, idle_share=0.0)
    assert rows(judged(speed("n1"), speed("n2"), shared), "products")["n3"] is Outcome.PASS
    assert rows(judged(speed("n1"), speed("n2"), shared, hardware=True), "products")["n3"] is Outcome.INCONCLUSIVE


def test_the_best_of_repeated_turns_counts() -> None:
    """Noise only slows down: a slow turn with a good one beside it is good."""
    judgement = judged(speed("n1"), speed("n2"), speed("n3", 0.4, cpu_share=0.4), speed("n3"))
    assert set(rows(judgement, "products").values()) == {Outcome.PASS}


def test_a_wrong_product_is_silent_corruption() -> None:
    """Whatever its speed: one wrong result names the node."""
    judgement = judged(speed("n1"), speed("n2"), *[speed("n3", verified=False)] * 3)
    assert len(judgement.culprits[0].evidence) == 1
    assert named(judgement) == {("node", "n3", "silent-data-corruption", "n3")}


def test_slowing_down_under_long_load_is_heat_on_own_machines_only() -> None:
    """The last quarter at 0.8 of the first: heat on hardware, shown in a rehearsal, open if it had to share."""
    hot: dict[str, Any] = {"seconds": STEADY + tuple(s / 0.8 for s in STEADY), "sustained": True}
    assert named(judged(speed("n3", **hot), hardware=True)) == {("node", "n3", "heat", "n3")}
    assert rows(judged(speed("n3", **hot)), "sustained") == {"n3": Outcome.NOT_APPLICABLE}
    shared = judged(speed("n3", **hot, cpu_share=0.6), hardware=True)
    assert (shared.culprits, rows(shared, "sustained")) == ((), {"n3": Outcome.INCONCLUSIVE})
    assert rows(judged(speed("n3", sustained=True), hardware=True), "sustained") == {"n3": Outcome.PASS}


def test_a_rank_without_result_is_an_error_of_the_check() -> None:
    """Not measured is never passed."""
    judgement = judged(speed("n1"), speed("n2"), speed("n3", error="RuntimeError: no such type", seconds=()))
    assert rows(judgement, "products")["n3"] is Outcome.ERROR
    assert judgement.culprits == ()
