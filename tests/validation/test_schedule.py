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


def leaves(count: int, size: int) -> dict[str, str]:
    return {f"n{number}": f"leaf{number // size}" for number in range(count)}


@settings(max_examples=40, deadline=None)
@given(st.integers(min_value=2, max_value=40), st.integers(min_value=1, max_value=9))
def test_a_circle_on_leaves_holds_every_pair_once(count: int, size: int) -> None:
    """Inside the leaves, then across: each pair once and nobody twice in a round, whatever the leaves' sizes."""
    nodes = [f"n{number}" for number in range(count)]
    rounds = plan_rounds(nodes, "burn-in", leaves(count, size))
    met = Counter(frozenset(pair) for pairs in rounds for pair in pairs)
    assert len(met) == count * (count - 1) // 2
    assert len(set(met.values())) == 1
    for pairs in rounds:
        busy = [node for pair in pairs for node in pair]
        assert len(busy) == len(set(busy))


def test_a_circle_on_equal_leaves_costs_no_round_more() -> None:
    """64 nodes on 8 leaves: 63 rounds, as without leaves."""
    nodes = [f"n{number}" for number in range(64)]
    assert len(plan_rounds(nodes, "standard", leaves(64, 8))) == 63


@pytest.mark.parametrize(("count", "size"), [(64, 8), (512, 32), (1000, 40), (24, 12), (27, 9)])
def test_a_large_fleet_on_leaves_goes_twice_inside_and_four_times_across(count: int, size: int) -> None:
    """Level quick: two rounds inside among four across, in which no leaf has pairs of its own; no pair twice."""
    of = leaves(count, size)
    rounds = plan_rounds([f"n{number}" for number in range(count)], "quick", of)
    inside = [all(of[a] == of[b] for a, b in pairs) for pairs in rounds]
    across = [all(of[a] != of[b] for a, b in pairs) for pairs in rounds]
    assert inside == [False, True, False, False, True, False]
    assert across == [not one for one in inside]
    pairs = [frozenset(pair) for one in rounds for pair in one]
    assert len(pairs) == len(set(pairs))


def test_only_burn_in_goes_through_the_whole_circle_of_a_very_large_fleet() -> None:
    """Beyond 64 nodes a circle takes the better part of an hour."""
    assert [circles(count, "standard") for count in (64, 65)] == [1, 0]
    assert circles(1000, "burn-in") == 1
