"""The circle method: every pair once a circle, no node twice in a round."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.schedule import circle_rounds, circles, plan_rounds


@settings(max_examples=40, deadline=None)
@given(st.integers(min_value=2, max_value=40))
def test_every_pair_meets_exactly_once_a_circle(count: int) -> None:
    """A circle holds each of the n(n−1)/2 pairs once, in whatever order its two nodes stand."""
    nodes = [f"n{number}" for number in range(count)]
    met = Counter(frozenset(pair) for pairs in circle_rounds(nodes) for pair in pairs)
    assert len(met) == count * (count - 1) // 2
    assert set(met.values()) == {1}


@settings(max_examples=40, deadline=None)
@given(st.integers(min_value=2, max_value=40))
def test_no_node_is_in_two_pairs_of_a_round(count: int) -> None:
    """Pairs of a round are disjoint, so that they do not disturb each other at a node."""
    for pairs in circle_rounds([f"n{number}" for number in range(count)]):
        nodes = [node for pair in pairs for node in pair]
        assert len(nodes) == len(set(nodes))


@pytest.mark.parametrize(("count", "rounds"), [(0, 0), (1, 0), (2, 1), (3, 3), (4, 3), (5, 5), (8, 7)])
def test_a_circle_has_as_few_rounds_as_possible(count: int, rounds: int) -> None:
    """N−1 rounds for an even number of nodes, N with one bye each for an odd number."""
    assert len(circle_rounds([f"n{number}" for number in range(count)])) == rounds


def test_a_node_listed_twice_is_refused() -> None:
    """A doubled name would measure a node against itself."""
    with pytest.raises(ValueError, match="listed twice"):
        circle_rounds(["n1", "n2", "n1"])


def test_a_small_fleet_repeats_its_circle_and_a_large_one_does_not() -> None:
    """Up to four nodes four circles, up to sixteen two, then one; the quick level halves that."""
    assert [circles(count, "standard") for count in (4, 16, 17)] == [4, 2, 1]
    assert [circles(count, "quick") for count in (4, 16, 17)] == [2, 1, 0]
    assert len(plan_rounds([f"n{number}" for number in range(4)], "standard")) == 12


def test_a_large_fleet_at_level_quick_takes_six_spread_rounds() -> None:
    """Six rounds of one circle already find slow nodes; no pair is in two of them."""
    rounds = plan_rounds([f"n{number}" for number in range(64)], "quick")
    assert len(rounds) == 6
    assert len({pair for pairs in rounds for pair in pairs}) == 6 * 32
