"""Is the node there, and does it answer the probe?"""

import pytest

from validation.checks import node_reach
from validation.checks.node import Subject
from validation.node.plugin import Judge


@pytest.mark.unreached
@pytest.mark.check("reachable")
def test_reachable(subject: Subject, judge: Judge) -> None:
    judge(node_reach.reachable(subject))


@pytest.mark.unreached
@pytest.mark.check("probe")
def test_probe(subject: Subject, judge: Judge) -> None:
    judge(node_reach.probe(subject))
