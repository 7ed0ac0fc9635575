"""The vote on silent errors: who is named, who is not, and what stays open."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.simulator.changes import HEALTHY, changed, failed_check, named, only
from tests.simulator.run import whole_run
from validation.golden import add_golden, load_golden
from validation.model import CollectiveRecord, FingerprintRecord, Judgement, Outcome, Record, RunRecord, TransportRecord
from validation.run_folder import RunFolder
from validation.verdict import judge
from validation.verdicts.silent_errors import golden_key, new_golden

RIGHT, WRONG, OTHER = "aa.bb.cc.dd", "aa.bb.cc.ff", "aa.00.cc.dd"
EPISODES = 4
SOFTWARE = {"torch": "2.6.0", "blas": "libblas.so.3"}


def prints(node: str, digests: Sequence[tuple[str, ...]] = (), **more: object) -> FingerprintRecord:
    """A rank that computes what is right, but for what a test says."""
    given: dict[str, object] = {
        "node": node, "rank": int(node[1:]) - 1, "local_rank": 0, "seed": 1, "steps": 5, "software": SOFTWARE,
        "kinds": ("products", "activations", "loss", "gradients"), "settings": ("one thread",),
        "digests": tuple(digests) or ((RIGHT, RIGHT),) * EPISODES,
    }  # fmt: skip
    return FingerprintRecord.model_validate(given | more)


def judged(
    *records: FingerprintRecord, run: Sequence[Record] = (), golden: dict[str, list[str]] | None = None
) -> Judgement:
    base = run or whole_run(len(records))
    baselines = {"golden": golden or {}}
    return judge([*changed(RunRecord, lambda r: {"baselines": baselines}, base), *records])


def rows(judgement: Judgement, check: str = "silent-errors") -> dict[str, Outcome]:
    return {r.subject: r.outcome for r in judgement.results if r.check == check and r.subject.startswith("n")}


def test_like_ranks_that_agree_pass() -> None:
    """All the same: each node passes, and is told how likely a rare error would have been seen."""
    judgement = judged(*map(prints, ("n1", "n2", "n3", "n4")), run=HEALTHY)
    assert judgement.verdict is Outcome.PASS
    assert rows(judgement) == dict.fromkeys(("n1", "n2", "n3", "n4"), Outcome.PASS)
    assert "an error once in 1,000 steps is seen with 4%" in next(
        r.evidence for r in judgement.results if r.check == "silent-errors" and r.subject == "n1"
    )


def test_a_lasting_error_is_named_by_the_majority() -> None:
    """n3 stands by other bits: named alone, lasting, with the kind of result that was first to differ."""
    judgement = judged(prints("n1"), prints("n2"), prints("n3", ((OTHER, OTHER),) * EPISODES))
    assert named(judgement) == {("node", "n3", "silent-data-corruption", "n3")}
    (fact,) = only(judgement).evidence
    assert "2 like peers" in fact
    assert "every time (lasting), first in the activations of episode 1" in fact
    assert rows(judgement) == {"n1": Outcome.PASS, "n2": Outcome.PASS, "n3": Outcome.FAIL}


def test_a_passing_error_is_counted() -> None:
    """One wrong result of eight is enough, and is told as passing."""
    judgement = judged(
        prints("n1"), prints("n2"), prints("n3", ((RIGHT, RIGHT), (RIGHT, WRONG)) + ((RIGHT, RIGHT),) * 2)
    )
    assert named(judgement) == {("node", "n3", "silent-data-corruption", "n3")}
    assert "in 1 of 8 repetitions (passing), first in the gradients of episode 2" in only(judgement).evidence[0]


def test_two_voters_can_only_differ() -> None:
    """Each stands by its own result: nobody is named, both are open, and the test that would decide is told."""
    judgement = judged(prints("n1"), prints("n2", ((WRONG, WRONG),) * EPISODES))
    assert judgement.culprits == ()
    assert rows(judgement) == {"n1": Outcome.INCONCLUSIVE, "n2": Outcome.INCONCLUSIVE}
    assert any("a third rank with sim would tell" in text for text in judgement.undecided)


def test_two_against_two_are_open() -> None:
    """Half is no majority."""
    wrong = [prints(node, ((WRONG, WRONG),) * EPISODES) for node in ("n3", "n4")]
    judgement = judged(prints("n1"), prints("n2"), *wrong)
    assert (judgement.culprits, set(rows(judgement).values())) == ((), {Outcome.INCONCLUSIVE})


def test_own_repeats_decide_between_two() -> None:
    """Of two, the one that contradicts itself, and once agrees with the other, is wrong."""
    judgement = judged(prints("n1"), prints("n2", ((RIGHT, WRONG),) + ((RIGHT, RIGHT),) * 3))
    assert named(judgement) == {("node", "n2", "silent-data-corruption", "n2")}
    assert "its peer and its own repeats" in only(judgement).evidence[0]


@pytest.mark.parametrize(("golden", "culprit"), [(RIGHT, "n2"), (WRONG, "n1")])
def test_a_golden_hash_decides_between_two(golden: str, culprit: str) -> None:
    """The one that gives what an earlier run established is right."""
    first = prints("n1")
    known = {golden_key("sim", first): [golden] * EPISODES}
    judgement = judged(first, prints("n2", ((WRONG, WRONG),) * EPISODES), golden=known)
    assert named(judgement) == {("node", culprit, "silent-data-corruption", culprit)}


def test_two_against_a_golden_hash_are_open_and_three_outvote_it() -> None:
    """A golden hash can be out of date: two that agree on something else are not blamed, three pass with advice."""
    known = {golden_key("sim", prints("n1")): [WRONG] * EPISODES}
    two = judged(prints("n1"), prints("n2"), golden=known)
    assert (two.culprits, set(rows(two).values())) == ((), {Outcome.INCONCLUSIVE})
    three = judged(prints("n1"), prints("n2"), prints("n3"), golden=known)
    assert (three.verdict, set(rows(three).values())) == (Outcome.PASS, {Outcome.PASS})
    assert any("outvote" in r.advice for r in three.results)


@pytest.mark.parametrize("software", [{**SOFTWARE, "torch": "2.7.0"}, {**SOFTWARE, "blas": "libopenblas.so.0"}])
def test_other_software_withholds_the_vote(software: dict[str, str]) -> None:
    """Other bits with another torch or BLAS prove nothing: not failed, not passed, and the others still vote."""
    odd = prints("n3", ((WRONG, WRONG),) * EPISODES, software=software)
    judgement = judged(prints("n1"), prints("n2"), odd)
    assert judgement.culprits == ()
    assert rows(judgement) == {"n1": Outcome.PASS, "n2": Outcome.PASS, "n3": Outcome.SKIPPED}


def test_a_failed_version_check_withholds_the_vote() -> None:
    """The consistency is the culprit, not the bits."""
    records = [*whole_run(3), failed_check("n3", "versions", "consistency")]
    judgement = judged(prints("n1"), prints("n2"), prints("n3", ((WRONG, WRONG),) * EPISODES), run=records)
    assert named(judgement) == {("node", "n3", "consistency", "n3")}
    assert rows(judgement)["n3"] is Outcome.SKIPPED


def test_unlike_hardware_is_never_compared() -> None:
    """A GPU of another model has its own group; alone in it, it is compared with itself only."""
    judgement = judged(prints("n1"), prints("n2"), prints("n3", ((WRONG, WRONG),) * EPISODES, device="H200"))
    assert judgement.culprits == ()
    assert rows(judgement)["n3"] is Outcome.NOT_APPLICABLE


def test_a_wrong_gpu_is_named_not_its_node() -> None:
    """Of three GPUs of one node and one of another, the one that errs is the culprit; its node is drained."""
    gpus = [prints("n1", device="H200", local_rank=at, rank=at) for at in range(3)]
    wrong = prints("n2", ((WRONG, WRONG),) * EPISODES, device="H200", local_rank=5, rank=3)
    assert named(judge([*whole_run(2), *gpus, wrong])) == {("gpu", "GPU 5 of n2", "silent-data-corruption", "n2")}


def test_errors_all_over_are_not_the_nodes() -> None:
    """When most ranks err now and then, each elsewhere, the work is not deterministic: nobody is named."""

    def once(episode: int) -> list[tuple[str, ...]]:
        return [(RIGHT, WRONG if at == episode else RIGHT) for at in range(EPISODES)]

    judgement = judged(prints("n1", once(0)), prints("n2", once(1)), prints("n3", once(2)))
    assert judgement.culprits == ()
    assert set(rows(judgement).values()) == {Outcome.INCONCLUSIVE}


def test_a_rank_without_a_result_is_an_error() -> None:
    """Not tested is not passed, and not the node's fault."""
    judgement = judged(prints("n1"), prints("n2"), prints("n3", error="RuntimeError: no kernel", digests=()))
    assert rows(judgement)["n3"] is Outcome.ERROR
    assert [c.kind for c in judgement.culprits if c.node] == []


def test_golden_hashes_are_learnt_and_only_made_longer(tmp_path: object, make_folder: Callable[[], RunFolder]) -> None:
    """A run in which all agree teaches them; a shorter run or one with an error changes nothing."""
    folder = make_folder()
    records = [*whole_run(2), prints("n1"), prints("n2")]
    add_golden(folder, records, judge(records))
    known = load_golden(folder.golden)
    assert list(known.values()) == [[RIGHT] * EPISODES]
    wrong = [*whole_run(2), prints("n1"), prints("n2", ((WRONG, WRONG),) * EPISODES)]
    assert new_golden(wrong, judge(wrong)) == {}
    longer = [*whole_run(2), *(prints(n, ((RIGHT, RIGHT),) * 9) for n in ("n1", "n2"))]
    add_golden(folder, longer, judge(longer))
    assert [len(one) for one in load_golden(folder.golden).values()] == [9]
    add_golden(folder, records, judge(records))
    assert [len(one) for one in load_golden(folder.golden).values()] == [9]


@pytest.fixture
def make_folder(tmp_path: object) -> Callable[[], RunFolder]:
    from datetime import UTC, datetime
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    return lambda: RunFolder.create(tmp_path, "sim", datetime.now(UTC))


def test_infinite_losses_survive_the_disk(make_folder: Callable[[], RunFolder]) -> None:
    """A flipped exponent makes a loss infinite: the record is read back as it was written."""
    from validation.model import TrainingRecord

    folder = make_folder()
    bad = next(r for r in HEALTHY if isinstance(r, TrainingRecord)).model_copy(update={"losses": (1.0, float("inf"))})
    folder.append(bad)
    assert folder.records() == [bad]


# --- transport against computing ---------------------------------------------------------------------------------


def gathered(wrong: dict[str, tuple[str, ...]]) -> TransportRecord:
    return TransportRecord(nodes=("n1", "n2", "n3", "n4"), bytes=1 << 20, wrong=wrong)


def test_parts_that_arrive_as_sent_leave_the_sum_to_a_rank() -> None:
    """Wrong sums everywhere though an all-gather is right: the remedy says that a rank adds wrongly."""
    sums = changed(CollectiveRecord, lambda r: {"verified": dict.fromkeys(r.nodes, False)})
    culprit = only(judge([*sums, gathered({})]))
    assert (culprit.kind, culprit.cause) == ("cluster", "data-corruption")
    assert "a rank adds wrongly" in culprit.remedy


def test_a_rank_that_computes_wrongly_explains_wrong_sums() -> None:
    """The vote names n3, and the sums of all are its symptom: one culprit."""
    sums = changed(CollectiveRecord, lambda r: {"verified": dict.fromkeys(r.nodes, False)})
    wrong = prints("n3", ((WRONG, WRONG),) * EPISODES)
    judgement = judge([*sums, gathered({}), prints("n1"), prints("n2"), wrong])
    assert named(judgement) == {("node", "n3", "silent-data-corruption", "n3")}


@pytest.mark.parametrize(
    ("wrong", "culprit"),
    [
        ({"n1": ("n3",), "n2": ("n3",)}, ("node", "n3", "data-corruption", "n3")),
        ({"n3": ("n1", "n2")}, ("node", "n3", "data-corruption", "n3")),
        ({"n3": ("n3",)}, ("node", "n3", "data-corruption", "n3")),
        ({"n1": ("n3",)}, ("link", "n1–n3", "data-corruption", None)),
    ],
)
def test_wrong_parts_name_what_they_have_in_common(
    wrong: dict[str, tuple[str, ...]], culprit: tuple[str, str, str, str | None]
) -> None:
    """A sender to many, a receiver from many, a node by itself; between two it is the link."""
    assert named(judge([*HEALTHY, gathered(wrong)])) == {culprit}
