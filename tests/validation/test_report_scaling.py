"""The split of a step, efficiencies, and the sentence about what a faster network would bring."""

from __future__ import annotations

import pytest

from inventory.model import Substrate
from tests.validation.sample_builder import Builder
from validation import report_scaling
from validation.model import TrainingRecord
from validation.report_data import RunData, gather
from validation.report_scaling import Law
from validation.verdicts.step_split import split_step

NODES = ("n1", "n2", "n3")


def training(mode: str, count: int, step: float, compute: float, comm: float = 0.0, **more: object) -> TrainingRecord:
    nodes = NODES[:count]
    given: dict[str, object] = {
        "mode": mode, "nodes": nodes, "seed": 1, "global_batch": 12 if mode == "strong" else 4 * count, "steps": 13,
        "warmup_steps": 3, "losses": tuple(4.0 - 0.2 * at for at in range(13)),
        "step_seconds": dict.fromkeys(nodes, (step,) * 10), "compute_seconds": dict.fromkeys(nodes, (compute,) * 10),
        "comm_seconds": dict.fromkeys(nodes, (comm,) * 10), "data_seconds": dict.fromkeys(nodes, (0.001,) * 10),
        "parameter_sha256": dict.fromkeys(nodes, "a" * 64), "gradient_bytes": 0 if count == 1 else 2_000_000,
    }  # fmt: skip
    return TrainingRecord.model_validate(given | more)


def run_of(*trainings: TrainingRecord, substrate: Substrate = "hardware") -> RunData:
    run = Builder(substrate=substrate)
    run.begin()
    run.pairs()
    return gather([*run.records, *trainings])


def test_the_others_wait_for_the_slowest_to_compute() -> None:
    """Computing is the mean, spread what the slowest needs more, communication what it sees itself."""
    record = training(
        "ddp", 3, 0.040, 0.0,
        compute_seconds={"n1": (0.020,) * 10, "n2": (0.020,) * 10, "n3": (0.029,) * 10},
        comm_seconds={"n1": (0.019,) * 10, "n2": (0.019,) * 10, "n3": (0.010,) * 10},
    )  # fmt: skip
    split = split_step(record)
    assert split is not None
    assert (split.compute_s, split.spread_s, split.comm_s) == pytest.approx((0.023, 0.006, 0.010))
    assert split.words == "lost: communication 10 ms, compute spread 6 ms, data wait 1 ms"


def test_a_node_without_times_has_no_split() -> None:
    """Half a record is no measurement."""
    assert split_step(training("ddp", 2, 0.02, 0.02, step_seconds={"n1": (0.02,)})) is None


def test_weak_and_strong_efficiency_of_hardware() -> None:
    """Weak: throughput over n times that of one; strong: one node's step over n times the step of n."""
    data = run_of(
        training("ddp", 1, 0.020, 0.019), training("ddp", 3, 0.040, 0.019, 0.020),
        training("strong", 1, 0.060, 0.059), training("strong", 3, 0.040, 0.019, 0.020),
    )  # fmt: skip
    (row,) = report_scaling.rows(data)
    assert row.nodes == 3
    assert (row.weak, row.strong) == pytest.approx((0.5, 0.5))


def test_a_rehearsal_has_no_efficiency() -> None:
    """Its nodes share processors: the split is shown, an efficiency never."""
    trainings = (training("ddp", 1, 0.020, 0.019), training("ddp", 3, 0.040, 0.019, 0.020))
    (row,) = report_scaling.rows(run_of(*trainings, substrate="rehearsal"))
    assert (row.weak, row.strong) == (None, None)
    assert "Computed for nodes with processors of their own" in report_scaling.sentence(
        run_of(*trainings, substrate="rehearsal")
    )


def test_the_sentence_says_what_the_link_costs() -> None:
    """2 MB of gradients over 0.94 Gb/s cost as much as 22 ms of computing: 10 Gb/s would bring 2.7 instead of 1.5."""
    said = report_scaling.sentence(run_of(training("ddp", 1, 0.022, 0.021), training("ddp", 3, 0.045, 0.021, 0.023)))
    assert said.startswith("3 nodes train 1.5 times as fast as one; most of what is lost is communication (23 of 45 ms")
    assert "The link is the limit: 10 Gb/s would bring 2.7 times (computed)." in said
    assert "One node more would bring 1.8 times (computed)." in said


def test_a_fast_network_is_not_worth_replacing() -> None:
    """With little to carry, a faster one would bring little."""
    small = training("ddp", 3, 0.201, 0.2, 0.001, gradient_bytes=20_000)
    assert "A faster network would bring little." in report_scaling.sentence(
        run_of(training("ddp", 1, 0.2, 0.2), small)
    )


def test_without_pairs_or_a_second_node_nothing_is_said() -> None:
    """A sentence needs computing, gradients and a link."""
    assert report_scaling.sentence(run_of(training("ddp", 1, 0.02, 0.02))) == ""


def test_the_law() -> None:
    """T(n) = T₁ + 2(n−1)/n · S ÷ B: 1 MB at 8 Gb/s is 1 ms, 4 nodes carry it 1.5 times."""
    assert Law(0.010, 1_000_000).step_s(4, 8.0) == pytest.approx(0.0115)
    assert Law(0.010, 1_000_000).speedup(4, 8.0) == pytest.approx(4 * 0.010 / 0.0115)
