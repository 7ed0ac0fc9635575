"""The cluster's container registry, as the node sees it."""

import pytest

from validation.checks import registry
from validation.checks.node import Subject
from validation.node.plugin import Judge


@pytest.mark.check("registry")
def test_registry(subject: Subject, judge: Judge) -> None:
    judge(registry.registry(subject))
