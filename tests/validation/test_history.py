"""This cluster's own history: what is compared, what a change is, who is named for it, and what reading it costs."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.simulator.network import Faults
from tests.simulator.run import whole_run
from validation import history
from validation.history import SUMMARY, collect
from validation.model import CellRecord, Judgement, Outcome, Record, RunRecord, TrainingRecord
from validation.run_folder import RunFolder
from validation.verdict import judge
from validation.verdicts.evidence import Evidence
from validation.verdicts.history import judge_history, limit_of, measures

LAB = whole_run(4)
RUN = [r.model_copy(update={"substrate": "hardware"}) if isinstance(r, RunRecord) else r for r in LAB]
START = datetime(2025, 1, 1, tzinfo=UTC)


def slowed(share: float, *nodes: str, records: Sequence[Record] = RUN) -> list[Record]:
    """The same run with these nodes' sending slower."""
    return [
        r.model_copy(update={"repetitions_gbps": tuple(share * one for one in r.repetitions_gbps)})
        if isinstance(r, CellRecord) and r.src in nodes
        else r
        for r in records
    ]


def with_history(
    records: Sequence[Record], values: dict[str, list[float]], last: dict[str, float] | None = None
) -> Judgement:
    found = {"history": {"runs": 6, "measures": values, "last": last or {}}}
    return judge([r.model_copy(update={"baselines": found}) if isinstance(r, RunRecord) else r for r in records])


def sends(records: Sequence[Record], node: str) -> float:
    return next(v for m, v in measures(Evidence(records)).items() if m == ("sends", node))


BEFORE = {"sends n2": [0.951, 0.953, 0.956, 0.957, 0.958, 0.954]}
SLOW = slowed(0.92, "n2")
"""0.865 Gb/s: more than the declared speed × 0.80, so that only the history speaks."""


def rows(judgement: Judgement) -> list[Any]:
    return [row for row in judgement.results if row.check == "history"]


def test_a_run_like_the_earlier_ones_passes_and_says_its_origin() -> None:
    """The row's origin is the history, with how many runs and how far they lie apart."""
    judgement = with_history(RUN, BEFORE)
    (row,) = rows(judgement)
    assert (row.subject, row.outcome, row.origin) == ("n2", Outcome.PASS, "history of 6 runs (0.951–0.958)")
    assert judgement.verdict is Outcome.PASS


def test_a_first_fall_is_inconclusive_and_says_what_decides() -> None:
    """Nobody is named for one run; the node is not certified either."""
    judgement = with_history(SLOW, BEFORE)
    assert judgement.culprits == ()
    assert judgement.nodes["n2"] is Outcome.INCONCLUSIVE
    assert {outcome for node, outcome in judgement.nodes.items() if node != "n2"} == {Outcome.PASS}
    assert [text for text in judgement.undecided if "validate again" in text and "n2 sends 0.8" in text]


def test_the_same_fall_in_the_next_run_names_the_node() -> None:
    """Confirmed by a second run, a change is a fault: FAIL with the numbers of before."""
    judgement = with_history(SLOW, BEFORE, {"sends n2": 0.86})
    (culprit,) = judgement.culprits
    assert (culprit.subject, culprit.cause, culprit.node) == ("n2", "slower-than-before", "n2")
    assert "0.951–0.958" in culprit.evidence[0]


def test_a_fall_of_most_nodes_is_the_clusters() -> None:
    """A change that more than half of the nodes share has its reason outside of them."""
    slow = slowed(0.92, "n1", "n2", "n3")
    values = {f"sends n{number}": BEFORE["sends n2"] for number in (1, 2, 3, 4)}
    judgement = with_history(slow, values, {f"sends n{number}": 0.86 for number in (1, 2, 3)})
    (culprit,) = judgement.culprits
    assert (culprit.kind, culprit.cause, culprit.node) == ("cluster", "slower-than-before", None)


def test_a_noisy_history_has_a_wide_limit() -> None:
    """Where earlier runs lay far apart, the same value is no change."""
    noisy = {"sends n2": [0.86, 0.95, 0.99, 0.91, 0.97, 0.88]}
    assert with_history(SLOW, noisy).nodes["n2"] is Outcome.PASS


def test_four_runs_are_no_history() -> None:
    """Too few to know how far runs lie apart."""
    assert rows(with_history(SLOW, {"sends n2": [0.95] * 4})) == []


def test_a_node_that_is_named_already_is_not_judged_by_its_history() -> None:
    """One fault is one culprit."""
    records = whole_run(4, faults=Faults(send={"n2": 0.3}))
    judgement = with_history(records, BEFORE, {"sends n2": 0.28})
    assert [(culprit.subject, culprit.cause) for culprit in judgement.culprits] == [("n2", "network-egress")]
    assert {row.outcome for row in rows(judgement)} == {Outcome.SKIPPED}


def test_busy_processors_are_neither_judged_nor_remembered() -> None:
    """What was measured while no processor was idle is no measure of the network."""
    busy = [r.model_copy(update={"idle_share": 0.02}) if isinstance(r, CellRecord) else r for r in SLOW]
    assert not [m for m in measures(Evidence(busy)) if m.what == "sends"]


@pytest.mark.parametrize("what", ["computes", "sends"])
def test_a_rehearsal_shows_its_history_and_judges_nothing_by_it(what: str) -> None:
    """In a rehearsal or simulation a slower turn says nothing of a machine: others may be using it."""
    values = {f"{what} n1": [1e6] * 6}
    (row,) = rows(with_history(LAB, values))
    assert row.outcome is Outcome.NOT_APPLICABLE
    assert with_history(RUN, values).nodes["n1"] is Outcome.INCONCLUSIVE


def test_equal_runs_hardly_ever_look_like_a_change() -> None:
    """Simulated: values of 3 to 10 % noise after 5 to 20 runs: less than one in a thousand falls below the limit."""
    rng = random.Random(1)  # noqa: S311 - noise, not a secret
    falls = 0
    for _ in range(4000):
        sigma, count = rng.uniform(0.03, 0.10), rng.randint(5, 20)
        values = [rng.gauss(1.0, sigma) for _ in range(count + 1)]
        falls += values[-1] < limit_of(values[:-1])
    assert falls <= 4


# --- the reports folder ------------------------------------------------------------------------------------------


def run_record(records: Sequence[Record]) -> RunRecord:
    return next(r for r in records if isinstance(r, RunRecord))


def stored(root: Path, number: int, records: Sequence[Record]) -> RunFolder:
    """A finished run of that day."""
    started = START + timedelta(days=number)
    folder = RunFolder.create(root, "sim", started)
    for record in records:
        change = {"started_at": started.strftime("%Y-%m-%dT%H:%M:%SZ"), "run_id": f"r{number}"}
        folder.append(record.model_copy(update=change) if isinstance(record, RunRecord) else record)
    return folder


def next_run(root: Path, number: int, *, fresh: bool = False) -> dict[str, Any]:
    folder = RunFolder.create(root, "sim", START + timedelta(days=number))
    started = (START + timedelta(days=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = collect(folder, run_record(RUN).model_copy(update={"started_at": started}), fresh=fresh)
    folder.discard()
    return found


def test_earlier_runs_are_found_and_confirm_a_change(tmp_path: Path) -> None:
    """Five good runs, then two slow ones: the second has both the values of the five and the first one's."""
    for number in range(5):
        stored(tmp_path, number, RUN)
    found = next_run(tmp_path, 6)["history"]
    assert len(found["measures"]["sends n2"]) == 5
    assert found["last"] == {}
    slow = [r.model_copy(update={"baselines": {"history": found}}) if isinstance(r, RunRecord) else r for r in SLOW]
    assert judge(slow).nodes["n2"] is Outcome.INCONCLUSIVE
    stored(tmp_path, 6, slow)
    again = next_run(tmp_path, 7)["history"]
    assert len(again["measures"]["sends n2"]) == 5
    assert again["last"]["sends n2"] == pytest.approx(sends(SLOW, "n2"), rel=1e-5)
    slow = [r.model_copy(update={"baselines": {"history": again}}) if isinstance(r, RunRecord) else r for r in SLOW]
    assert {culprit.cause for culprit in judge(slow).culprits} == {"slower-than-before"}


def test_each_result_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary beside the runs keeps what was read; a bounded number is read at a time, the newest first."""
    for number in range(14):
        stored(tmp_path, number, RUN)
    assert next_run(tmp_path, 20)["history"]["runs"] == history.READ_AT_MOST
    assert next_run(tmp_path, 20)["history"]["runs"] == 14
    monkeypatch.setattr("validation.history.summarise", lambda folder: pytest.fail("read again"))
    assert next_run(tmp_path, 20)["history"]["runs"] == 14
    assert (tmp_path / "sim" / SUMMARY).stat().st_size < 14 * 4096


@pytest.mark.parametrize(
    "change",
    [
        {"level": "burn-in"},
        {"version": "another"},
        {"substrate": "rehearsal"},
        {"lock": {"nodes": {f"n{number}": {"cpu_model": "new"} for number in (1, 2, 3, 4)}}},
    ],
)
def test_what_can_not_be_compared_does_not_count(tmp_path: Path, change: dict[str, Any]) -> None:
    """Another level, version, substrate or hardware: those runs are no history of this one."""
    other = [r.model_copy(update=change) if isinstance(r, RunRecord) else r for r in RUN]
    for number in range(5):
        stored(tmp_path, number, other)
    found = next_run(tmp_path, 9).get("history", {"measures": {}})
    assert not [key for key in found["measures"] if key.startswith("sends")]


def test_new_baseline_forgets_what_was_before(tmp_path: Path) -> None:
    """Said once, for this run and all later ones."""
    for number in range(5):
        stored(tmp_path, number, RUN)
    assert next_run(tmp_path, 6, fresh=True) == {}
    assert next_run(tmp_path, 7) == {}
    stored(tmp_path, 8, RUN)
    assert next_run(tmp_path, 9)["history"]["runs"] == 1


def test_broken_folders_are_no_obstacle(tmp_path: Path) -> None:
    """Half a file, an empty folder, a broken summary, a strange file: less history, never an error."""
    stored(tmp_path, 0, RUN)
    (stored(tmp_path, 1, RUN).results).write_text("{half", encoding="utf-8")
    (tmp_path / "sim" / "notes").mkdir()
    (tmp_path / "sim" / "latest").symlink_to("notes")
    (tmp_path / "sim" / SUMMARY).write_text("[]", encoding="utf-8")
    assert next_run(tmp_path, 5)["history"]["runs"] == 1
    assert json.loads((tmp_path / "sim" / SUMMARY).read_text(encoding="utf-8"))["runs"]


def test_turns_on_a_busy_host_are_not_compared() -> None:
    """A solo turn without an idle processor measures the others."""
    busy = [r.model_copy(update={"idle_share": 0.01}) if isinstance(r, TrainingRecord) else r for r in RUN]
    assert not [m for m in measures(Evidence(busy)) if m.what == "computes"]
    assert judge_history(Evidence(busy), ()).results == []
