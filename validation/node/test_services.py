"""Services of a node, munge and Slurm among them."""

import pytest

from validation.checks import node_services
from validation.checks.node import Subject
from validation.node.plugin import Judge


@pytest.mark.check("services")
def test_services(subject: Subject, judge: Judge) -> None:
    judge(node_services.services(subject))


@pytest.mark.check("failed-units")
def test_failed_units(subject: Subject, judge: Judge) -> None:
    judge(node_services.failed_units(subject))


@pytest.mark.check("munge")
def test_munge(subject: Subject, judge: Judge) -> None:
    judge(node_services.munge(subject))


@pytest.mark.check("slurm-controller")
def test_slurm_controller(subject: Subject, judge: Judge) -> None:
    judge(node_services.slurm_controller(subject))


@pytest.mark.check("slurm-state")
def test_slurm_state(subject: Subject, judge: Judge) -> None:
    judge(node_services.slurm_state(subject))


@pytest.mark.check("memory-limit")
def test_memory_limit(subject: Subject, judge: Judge) -> None:
    judge(node_services.memory_limit(subject))


@pytest.mark.check("cgroup")
def test_cgroup(subject: Subject, judge: Judge) -> None:
    judge(node_services.cgroup(subject))
