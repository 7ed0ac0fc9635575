"""People of the inventory: known everywhere, in Slurm, and held to their limits."""

import pytest

from validation.checks import node_identity
from validation.checks.node import Subject
from validation.node.plugin import Judge


@pytest.mark.check("people-services")
def test_people_services(subject: Subject, judge: Judge) -> None:
    judge(node_identity.people_services(subject))


@pytest.mark.check("people")
def test_people(subject: Subject, judge: Judge) -> None:
    judge(node_identity.people(subject))


@pytest.mark.check("accounts")
def test_accounts(subject: Subject, judge: Judge) -> None:
    judge(node_identity.accounts(subject))


@pytest.mark.check("team-limits")
def test_team_limits(subject: Subject, judge: Judge) -> None:
    judge(node_identity.team_limits(subject))
